"""Breaks the code on purpose, one line at a time, and sees whether the tests named beside it notice.

    .venv/bin/python scripts/tools/mutate.py [--only NAME] [--list]

Each mutation is made in a copy of the checkout, and its tests run there. Ends with a table, and with 1 if one survives
or no longer fits its file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.tools.mutations_of_keys import OF_KEYS

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900


class Mutation(NamedTuple):
    """In `file`, `old` (which is there once) becomes `new`; `tests` (those of the file, if empty) should fail then.

    `plain`: kernels run as plain Python there, which is sooner done than compiling them.
    """

    name: str
    file: str
    old: str
    new: str = ""
    tests: str = ""
    plain: bool = False


_STATE, _GRAPH = "tests/unit/state/test_", "tests/unit/operators/graph/test_"
_AGGREGATES = "tests/unit/operators/aggregates/test_"
_EPOCHS, _SINK = "tests/unit/operators/epochs/test_", "tests/unit/operators/sink/test_"
_EMBED = "tests/unit/operators/embed/test_"
_STAGE, _SUMS = "tests/unit/operators/test_stage.py", f"{_AGGREGATES}exact_sums.py"
SEEDS = "tests/simulation/test_simulation.py::test_some_seeds"
PAGES = "tests/simulation/test_simulation.py::test_no_page_changes_unnoticed"
# The one left out deletes 66,000 edges of a hub: in plain Python that would end by its time limit, whatever is mutated.
FOLDS = (
    f"{_AGGREGATES}folds.py --deselect {_AGGREGATES}folds.py::test_more_messages_hold_an_extremum_than_can_be_counted"
)
TESTS = {
    "state/sweep.py": f"{_STATE}sweep.py",
    "state/table.py": f"{_STATE}table.py",
    "state/image.py": f"{_STATE}image.py",
    "state/memory/table_memory.py": f"{_STATE}mapped_image.py",
    "state/rocks_backend.py": f"{_STATE}value_log.py",
    "operators/epochs/partitioner_stage.py": f"{_EPOCHS}partitioner_stage.py {_EPOCHS}markers.py {SEEDS}",
    "operators/epochs/cutter.py": f"{_EPOCHS}partitioner_stage.py {_EPOCHS}input_positions.py",
    "operators/epochs/journal.py": f"{_EPOCHS}markers.py {SEEDS}",
    "operators/stage.py": _STAGE,
    "operators/inbox.py": _STAGE,
    "operators/graph/part_columns.py": f"{_GRAPH}part_columns.py {PAGES}",
    "operators/storage/tail.py": PAGES,
    "operators/aggregates/extrema/kernels.py": FOLDS,
    "operators/aggregates/extrema/channels.py": FOLDS,
    "operators/aggregates/extrema/rereading.py": FOLDS,
    "operators/aggregates/attention/kernels.py": f"{_AGGREGATES}attention.py",
    "operators/aggregates/attention/sides.py": f"{_AGGREGATES}attention.py",
    "operators/aggregates/attention/recomputed.py": f"{_AGGREGATES}attention.py",
    "operators/aggregates/attention/reading.py": f"{_AGGREGATES}attention.py",
    "operators/aggregates/moments.py": f"{_AGGREGATES}moments.py",
    "operators/aggregates/gates.py": f"{_AGGREGATES}gates.py",
    "operators/aggregates/edge_networks.py": f"{_AGGREGATES}edge_networks.py",
    "job/folder/lock.py": "tests/unit/job/folder/test_lock.py",
    "job/run/resume.py": "tests/unit/job/run/test_attempts.py",
    "operators/sink/log_output.py": f"{_SINK}core.py",
    "operators/sink/change_log.py": f"{_SINK}replay.py",
    "operators/epochs/cut_segments.py": f"{_EPOCHS}cut_log.py",
    "operators/epochs/cut_topic.py": f"{_EPOCHS}cut_topic.py",
    "operators/aggregates/attention/attention.py": f"{_EMBED}ranges.py",
    "operators/aggregates/extrema/extrema.py": f"{_EMBED}ranges.py",
    "operators/embed/range_pass.py": f"{_EMBED}embedding.py -k lost_edge",
}
_MOMENTS, _GATES = "operators/aggregates/moments.py", "operators/aggregates/gates.py"
_NETWORKS = "operators/aggregates/edge_networks.py"
_REMADE = TESTS[_NETWORKS]
_EXTREMA = "operators/aggregates/extrema/kernels.py"
_SOFTMAX, _EXTREMA_PASS = "operators/aggregates/attention/attention.py", "operators/aggregates/extrema/extrema.py"
_CHANNELS, _REREADING = (_EXTREMA.replace("kernels", one) for one in ("channels", "rereading"))
_ATTENTION = "operators/aggregates/attention/kernels.py"
_SIDES, _DELTAS, _READING = (_ATTENTION.replace("kernels", name) for name in ("sides", "deltas", "reading"))
_STORAGE = "operators/storage/"
_SEGMENTS, _CUT_TOPIC = "operators/epochs/cut_segments.py", "operators/epochs/cut_topic.py"
_FEAST, _SERVER = "job/serving/doors/feast.py", "job/serving/doors/routes/features.py"
_PAST, _PROTOBUF = "job/history/past_rows.py", "operators/parser/registry/protobuf.py"
TESTS[_FEAST] = TESTS[_SERVER] = "tests/unit/job/serving/test_feast_bytes.py"
TESTS[_PAST], TESTS[_PROTOBUF] = (
    "tests/unit/job/history/test_doubts.py",
    "tests/unit/operators/parser/test_registry_values.py",
)
SUMS = f"{_SUMS} --deselect {_SUMS}::test_small_steps_of_many_neighbours_are_not_lost"


def of_sums(name: str, file: str, old: str, new: str = "") -> Mutation:
    """One of the exact sums."""
    return Mutation(name, file, old, new, SUMS, plain=True)


MUTATIONS = [
    Mutation(
        "two readings of an own conv are not compared",
        "gnn/pyg/own/running.py",
        "if (found := difference(made[0], made[1])) is not None:",
        "if (found := difference(made[0], made[0])) is not None:",
        "tests/unit/gnn/pyg/test_own_readings.py",
    ),
    Mutation(
        "a constant that differs by row is taken as its first",
        "gnn/pyg/own/recorder.py",
        "if rows.dtype == torch.bool or not bool(is_same.all()):",
        "if rows.dtype == torch.bool:",
        "tests/unit/gnn/pyg/test_own_readings.py",
    ),
    Mutation(
        "edges of a snapshot expire in epoch 0",
        "partitioner/core.py",
        "if not snapshot:",
        "if True:",
        "tests/unit/partitioner/test_edge_ttl.py -k behind_it",
        plain=True,
    ),
    Mutation(
        "what became of events counts again in a replay",
        "operators/epochs/partitioner_stage.py",
        "            if progress.note(change.effects._asdict()):",
        "        if progress.note(change.effects._asdict()):\n            if True:",
        f"{_EPOCHS}noted.py",
        plain=True,
    ),
    Mutation(
        "a restore takes the last cut, which may lack pages", "state/sweep.py", "max(metas[-1] - 1, 0)", "metas[-1]"
    ),
    Mutation(
        "superseded pages go one marker early",
        "state/sweep.py",
        'self._superseded += [f"{page}@{tag}" for tag in older]',
        'out.deletes += [f"{page}@{tag}" for tag in older]',
    ),
    Mutation("the cut of a restore goes", "state/sweep.py", "{_META}@{self.marker - 1}", "{_META}@{self.marker}"),
    Mutation("a restored table ends with a page", "state/sweep.py", ".set_rows(rows, self.part)", ".part_rows"),
    Mutation("a page is written as it is now", "state/table.py", "if self._copied[place]:", "if False:"),
    Mutation("checksums are not looked at", "state/image.py", "if where is not None:", "if False:"),
    Mutation("another page is named", "state/image.py", "first = damaged[0] *", "first = damaged[-1] *"),
    Mutation("a raised shift leaves sums as they are", _SOFTMAX, "s[v, j] *= factor", "pass"),
    Mutation("an extremum takes no NaN", _EXTREMA_PASS, " or m != m:", ":"),
    Mutation("lost messages are not noticed", "operators/embed/range_pass.py", "if missing:", "if False:"),
    Mutation("a mapped file is not checked", "state/image.py", "stored[part].check(file.fileno())", "pass"),
    Mutation(
        "what is mapped is the file's own",
        "state/memory/private_map.py",
        "mmap.MAP_PRIVATE | _NO_RESERVE | _FIXED",
        "mmap.MAP_SHARED | _FIXED",
    ),
    Mutation(
        "behind a mapped file is no fill",
        "state/table.py",
        "range(self.parts) if self.fill else ()",
        "()",
        f"{_STATE}mapped_image.py",
    ),
    Mutation("an old manifest stays", "state/image.py", '    (folder / "image.json").unlink(missing_ok=True)\n'),
    Mutation("a write may be short", "state/rocks_backend.py", "rest = rest[written:]", "rest = rest[len(rest) :]"),
    Mutation(
        "a replay ends early",
        "operators/epochs/partitioner_stage.py",
        "self.epoch < self.progress.epoch:\n            yield",
        "self.epoch < 0:\n            yield",
    ),
    Mutation(
        "the last replayed epoch does not say so",
        "operators/epochs/partitioner_stage.py",
        "epoch <= progress.epoch",
        "epoch < progress.epoch",
    ),
    Mutation(
        "the journal is cut at the last marker",
        "operators/epochs/journal.py",
        "before = self._markers[-1]",
        "before = _Marker(epoch, ends)",
    ),
    Mutation(
        "an epoch's block is taken again", "operators/stage.py", "epoch <= self.epoch or", "epoch < self.epoch or"
    ),
    Mutation("a lost epoch goes unnoticed", "operators/stage.py", "epoch != self.epoch + 1", "epoch <= self.epoch"),
    Mutation("blocks come in the order of arrival", "operators/inbox.py", "in sorted(complete)]", "in complete]"),
    Mutation(
        "a replica's row is not durable",
        "operators/graph/part_columns.py",
        "        touch(of.dense, row)\n        of.dense.data[row, part] = number\n",
        "        of.dense.data[row, part] = number\n",
    ),
    Mutation(
        "a replica in a list is not durable",
        "operators/graph/part_columns.py",
        "            touch(lists.pool, at)\n            pool[at], pool[at + 1] = pool[at - 2], pool[at - 1]\n",
        "            pool[at], pool[at + 1] = pool[at - 2], pool[at - 1]\n",
    ),
    Mutation(
        "what a dropped master held stays durable",
        "state/table.py",
        "            self.touch_rows(rows)\n            self.data[rows] = self.fill\n",
        "            self.data[rows] = self.fill\n",
        PAGES,
    ),
    Mutation("partials are not durable", _STORAGE + "partial_rows.py", "            touch(partial, places[i])\n"),
    Mutation("own rows of the tail are not durable", _STORAGE + "tail.py", "            one.own.touch_rows(slots)\n"),
    Mutation(
        "a shorter file replaces a longer",
        "operators/sink/change_log.py",
        "return file.partial and rows",
        "return False and rows",
    ),
    Mutation("a tie is not counted", _CHANNELS, "[to + i]) + equal,", "[to + i]),", plain=True),
    Mutation("an exposed channel stays", _REREADING, "at += np.int64(exposed > 0)", "at += 0", plain=True),
    Mutation("an altered row is not told", _REREADING, "if ext.altered[row]:", "if False:", plain=True),
    Mutation("a kept message stays counted", _EXTREMA, "        if held:\n", "        if False:\n", plain=True),
    Mutation("holders are not durable", _EXTREMA, "    touch(ext.holders, row)\n", "", PAGES),
    Mutation(
        "sides are not moved", _SIDES, "change(att, source, z, u, q, v, h, 1 - side, 1, serial)", "pass", plain=True
    ),
    Mutation(
        "what a full list of flips has is forgotten",
        _SIDES,
        "            _flip(att, edges, count, serial)\n",
        plain=True,
    ),
    Mutation(
        "a target keeps its old sides",
        _SIDES,
        "            att.reals[v, target_at(att, h)] = turns.rows[row, att.terms.target + h]\n",
        plain=True,
    ),
    Mutation(
        "lossy channels are counted from elsewhere",
        _DELTAS,
        "by = (np.int64(first) - np.int64(att.before)) & np.int64(31)",
        "by = np.int64(0)",
        plain=True,
    ),
    Mutation("a residual is left out", _READING, "width if end.residual else 0", "0", plain=True),
    Mutation("little that is left stays", _ATTENTION, "return not denominator >= _LEAST", "return False", plain=True),
    Mutation("a changed target is not summed again", _DELTAS, "            renew(att, v, serial)\n", plain=True),
    Mutation("terms of sources are not durable", _SIDES, "        touch(att.near, u)\n", "", PAGES),
    Mutation("softmax sums are not durable", _ATTENTION, "        touch(att.s, row)\n", "", PAGES),
    Mutation(
        "a worn variance stays", _MOMENTS, "elif _is_worn(mom, row, np.float64(many)):", "elif False:", plain=True
    ),
    Mutation("what squares lost is not durable", _MOMENTS, "        touch(mom.lost, row)\n", "", PAGES),
    Mutation("messages of a changed target stay", _NETWORKS, "[self._turned, ", "[", plain=True),
    Mutation("worn rows of a network's messages stay", _NETWORKS, ", self._inner.worn(edges)", plain=True),
    Mutation("an exposed row is not listed", _EXTREMA_PASS, "if exposed and", "if False and", _REMADE, plain=True),
    Mutation("remade extrema are not told", _EXTREMA_PASS, "mark(ext, rows[i], serial)", "pass", _REMADE, plain=True),
    Mutation("a changed gate is not summed afresh", _GATES, "            gates.renew[v] = serial\n", plain=True),
    Mutation("a lock on a file that has gone is one", "job/folder/lock.py", "if _is_at(lock, path):", "if True:"),
    Mutation("two attempts have one number", "job/run/resume.py", "run=former.run + 1", "run=former.run"),
    Mutation("a marker waits for no file", "operators/sink/log_output.py", "self.writer.wait(self._at_marker)", "pass"),
    Mutation("a cut may be short", _SEGMENTS, "done += written", "done = len(line)"),
    Mutation("half a cut stays", _SEGMENTS, "os.ftruncate(self._file, self.size)", "pass"),
    Mutation("an attempt thought dead goes on", _SEGMENTS, "if not self.segment.path.exists():", "if False:"),
    Mutation(
        "a topic is read before it is fenced",
        _CUT_TOPIC,
        "        channel.fence()\n        newest = self._of_later_run(run)\n",
        "        newest = self._of_later_run(run)\n        channel.fence()\n",
    ),
    Mutation(
        "cuts of a topic go too early", _CUT_TOPIC, "self._settled[0][0] <= needed", "self._settled[0][0] <= needed + 4"
    ),
    Mutation(
        "positions are not compared",
        "operators/epochs/cutter.py",
        "        self._positions.refuse_changed(cut, pieces)\n",
    ),
    Mutation(
        "unset fields are values", _PROTOBUF, "if field.has_presence and not message.HasField(field.name)", "if 0"
    ),
    Mutation("epochs that are not visible are history", _PAST, " & (batch.epochs <= log.upto)"),
    Mutation("Feast's bound is of one id", _FEAST, "sum(around + count * of", "sum(around + of"),
    Mutation("Feast's ids count once", _SERVER, "(values)) + 2 * size_sent", "(values)) + size_sent"),
    of_sums("a worn sum stays", "operators/aggregates/exact_sums.py", "_WORN = 2.0**-20", "_WORN = 2.0**20"),
    of_sums(
        "a lossy channel is forgotten",
        "operators/aggregates/exact_sums.py",
        "    note[row, LOSSY] |= np.int32(",
        "    np.int32(",
    ),
    of_sums(
        "what was lost is that of the term",
        "operators/aggregates/exact_sums.py",
        "size = max(size, abs(sums[row, j]))",
        "size = size",
    ),
    of_sums(
        "fresh sums are not compensated",
        "operators/aggregates/exact_sums.py",
        "            fresh[0, j] = whole\n",
        "            pass\n",
    ),
    of_sums(
        "a fresh sum has lost nothing",
        "operators/aggregates/exact_sums.py",
        "    if lossy:\n        note_loss(sums, note, row, lossy, 0.0)\n",
    ),
    of_sums(
        "a rounded difference is exact", "operators/aggregates/sums/kernels.py", "if scratch.inexact[r]:", "if False:"
    ),
    of_sums(
        "what differences lose is not kept",
        "operators/aggregates/sums/kernels.py",
        "note_loss(s, note, v, lossy, 2.0 * abs(weight[i]) * scratch.scale[r])",
        "pass",
    ),
    of_sums(
        "an empty row keeps its rest", "operators/aggregates/sums/synopses.py", "            clear_sum(syn.s, row)\n"
    ),
    of_sums(
        "what the scrubber mends is not told",
        "operators/aggregates/sums/synopses.py",
        "            mark(syn, row, serial)\n            replace_sum",
        "            replace_sum",
    ),
    *(Mutation(name, file, old, new, tests, plain=True) for name, file, old, new, tests in OF_KEYS),
]


def copy_tree(target: Path) -> None:
    """The files of the checkout, with the machine code that numba keeps beside them."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    kept = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/**/__pycache__/**/*.nb[ic]")]
    for name in (*listed, *(one for one in kept if not one.startswith("."))):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():  # packages of freshet/ are links
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def run(mutation: Mutation, tree: Path) -> str:
    """Run a mutation and return its outcome: killed, SURVIVED, or why it could not be tried."""
    path = tree / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
        return f"DOES NOT FIT: {mutation.file} has its line {text.count(mutation.old)} times"
    environ = os.environ | ({"NUMBA_DISABLE_JIT": "1"} if mutation.plain else {})
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider"]
    try:
        path.write_text(text.replace(mutation.old, mutation.new))
        done = subprocess.run(
            [*command, *(mutation.tests or TESTS[mutation.file]).split()],
            cwd=tree, env=environ, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"killed: nothing came within {TIMEOUT_S} s"
    finally:
        path.write_text(text)
    if done.returncode == 0:
        return "SURVIVED"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode != 1 or not failed:
        return f"NOT TRIED: pytest ended with {done.returncode}: {done.stdout.strip()[-300:]}"
    return f"killed by {failed[0].split()[1].rpartition('/')[2]}"


def main() -> int:
    """Try the mutations; a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name or file has this in it")
    parser.add_argument("--list", action="store_true", help="name them, and try none")
    options = parser.parse_args()
    chosen = [one for one in MUTATIONS if options.only in f"{one.file}: {one.name}"]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="freshet-mutate-") as folder:
        copy_tree(Path(folder))
        for mutation in chosen:
            began = time.monotonic()
            result = "" if options.list else run(mutation, Path(folder))
            survived += not (options.list or result.startswith("killed"))
            print(f"{mutation.file}: {mutation.name}: {result} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen)} mutations, {survived} not killed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
