"""Finished and stopped jobs whose small files are damaged one by one, and what every command makes of them."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import save_model
from freshet.job import cli
from freshet.job.run.watching import RejectWatch
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.tables import place
from freshet.job.serving.tables.served_job import await_job
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.snapshot.writer import write_snapshot
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.random_graphs import random_graph
from tests.support.graphs.streams import random_records

EVENTS, VERTICES = 2500, 40
START_S = 300.0
SMALL_BYTES = 64 << 10
Rows = dict[int, bytes]

# Whatever a disk, a power cut or a person may make of a file, by name.
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
    "missing": lambda _: None,
    "zeros": lambda data: bytes(len(data)),
    "no UTF-8": lambda data: b"\xff\xfe" + data,
    "a list": lambda _: b"[]",
    "null": lambda _: b"null",
    "a number": lambda _: b"7",
    "an empty object": lambda _: b"{}",
    "nested": lambda _: b"[" * 100_000,
}


@dataclass
class Ended:
    """How a command ended in this process."""

    code: int
    out: str
    errors: str

    @property
    def last_line(self) -> str:
        return (self.errors.strip().splitlines() or [""])[-1]


@dataclass
class Given:
    """What jobs are of, and how commands are run on them; `truth` has the rows of the whole input."""

    folder: Path
    truth: Rows = field(default_factory=dict)

    @staticmethod
    def make(folder: Path) -> Given:
        save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 4), conv("sage_conv", 4, 3)]), folder / "model")
        lines = [orjson.dumps(one) for one in random_records(random.Random(5), EVENTS, IN_WIDTH, vertices=VERTICES)]
        lines[100:100] = [b"no event"] * 3
        (folder / "events.jsonl").write_bytes(b"\n".join(lines))
        graph = random_graph(1, vertices=VERTICES, edges=3 * VERTICES, width=IN_WIDTH)
        ids = np.arange(VERTICES) * 7 - 5
        write_snapshot(folder / "snapshot", ids, graph.x, ids[graph.src], ids[graph.dst], graph.values.weight)
        return Given(folder)

    @property
    def _inputs(self) -> list[str]:
        model, events, snapshot = (str(self.folder / name) for name in ("model", "events.jsonl", "snapshot"))
        return ["--model", model, "--events", events, "--snapshot", snapshot]

    def begin(self, out: Path, capsys: Any) -> Ended:
        options = ["--runtime", "local", "--epoch-events", "100", "--epoch-ms", "0", "--parts", "2"]
        return called(capsys, "run", *self._inputs, "--out", out, *options)

    def stop_early(self, out: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Ended:
        """A run that is stopped in good order after its first block."""
        with monkeypatch.context() as patched:
            patched.setattr(RejectWatch, "is_too_much", lambda _: True)
            return self.begin(out, capsys)

    def resume(self, out: Path, capsys: Any) -> Ended:
        return called(capsys, "run", *self._inputs, "--out", out, "--resume", "latest")

    def run_again(self, out: Path, capsys: Any) -> Ended:
        """As one who forgets --resume."""
        return self.begin(out, capsys)

    def check(self, out: Path, capsys: Any) -> Ended:
        return called(capsys, "check", *self._inputs, "--out", out, "--oracle", "own")

    def stop(self, out: Path, capsys: Any) -> Ended:
        return called(capsys, "stop", out)

    def export(self, out: Path, capsys: Any) -> Ended:
        return called(capsys, "export", "--out", out.parent / "exported", out)

    def compact(self, out: Path, capsys: Any) -> Ended:
        return called(capsys, "compact", out)

    def serve(self, out: Path, capsys: Any) -> Ended:
        """What `freshet serve` does with the folder, and a query of what it serves: the rows stand in `out`."""
        capsys.readouterr()

        def command() -> int:
            with served(out) as follower:
                epoch, rows = rows_of_table(follower)
                sys.argv = ["freshet"]
                print(json.dumps({"epoch": epoch, "rows": {str(id_): row.hex() for id_, row in rows.items()}}))
                cli.menu(["query"])(
                    args=["query", "--at", str(out / "tables"), "--format", "json", *map(str, list(rows)[:2])],
                    standalone_mode=False,
                )
            return 0

        code = cli._guarded(command)
        printed = capsys.readouterr()
        return Ended(code, printed.out, printed.err)


def called(capsys: Any, *arguments: object) -> Ended:
    """A command of freshet, in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main([str(one) for one in arguments])
    printed = capsys.readouterr()
    return Ended(int(ended.value.code or 0), printed.out, printed.err)


@contextmanager
def served(out: Path) -> Iterator[Follower]:
    """A server's follower and its table, which is what people read."""
    tables = out / "tables"
    job = await_job(tables, 0.0)
    with place.only_server(tables):
        follower = Follower(job, tables, 1 << 20)
        deadline = time.monotonic() + START_S
        try:
            follower.start(lambda: time.monotonic() > deadline or follower.trouble is not None)
            if follower._shown is None:
                from freshet.files.json_file import DamagedFileError

                raise DamagedFileError(follower.trouble or f"{out}: nothing to serve in time")
            while follower.step():
                pass
            yield follower
        finally:
            follower.close(forget=True)


def rows_of_table(follower: Follower) -> tuple[int, Rows]:
    known, found, _ = follower.table.content()
    assert isinstance(known, np.ndarray)
    lives = found.own >= 0
    rows = zip(known[lives].tolist(), found.rows[lives], strict=True)
    return found.epoch, {id_: row.tobytes() for id_, row in rows}


def rows_of_log(out: Path, epoch: int | None = None) -> Rows:
    state = ChangeLogReader(out).state_at(epoch)
    return {int(id_): row.tobytes() for id_, row in zip(state.ids, state.vectors, strict=True)}


def graph_of(snapshot: Path) -> tuple[Any, Any]:
    """What an export has."""
    vertices = {row["id"]: row["x"] for row in pq.read_table(snapshot / "vertices.parquet").to_pylist()}
    edges = {(row["src"], row["dst"]): row["weight"] for row in pq.read_table(snapshot / "edges.parquet").to_pylist()}
    return vertices, edges


def small_files(out: Path) -> list[str]:
    """Every small file of a job; of those that come for each operator, part or number, one."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        kind = re.sub(r"\d+|[0-9a-f]{8}", "N", name)
        if name.startswith("base/") and path.name == "image.json":
            kind = "base/image.json"
        if name.startswith("state/") and path.name not in ("CURRENT", "rocksdict-config.json"):
            continue
        if path.is_file() and path.suffix != ".bin" and path.stat().st_size < SMALL_BYTES:
            found[kind] = name
    return sorted(found.values())


def damages_of(name: str) -> dict[str, Callable[[bytes], bytes | None]]:
    """What is done to a file, of all that DAMAGES has (which the reader of JSON files is held against).

    A file of the change log that is gone is a matter of `check`.
    """
    kinds = ["empty", "half"]
    kinds += [] if name.startswith(("embeddings/", "epochs/")) else ["missing"]
    kinds += ["an empty object", "no UTF-8"] if name.endswith(".json") else []
    return {kind: DAMAGES[kind] for kind in kinds}


def damage(path: Path, how: Callable[[bytes], bytes | None]) -> bool:
    """Damage a file; whether it is another one now."""
    before = path.read_bytes()
    after = how(before)
    if after is None:
        path.unlink()
    elif after != before:
        path.write_bytes(after)
    return after != before


def copy_of(job: Path, folder: Path) -> Path:
    shutil.copytree(job, folder / "O", copy_function=_copied)
    return folder / "O"


def _copied(source: str, target: str) -> None:
    if source.endswith(".bin"):  # of images, which nobody changes
        os.link(source, target)
    else:
        shutil.copy2(source, target)
