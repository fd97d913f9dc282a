"""`freshet check` against change logs made by hand from the oracle: it passes what is right and nothing else."""

import json

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest

from gnn import oracle, torch_oracle
from gnn.model import save_model
from gnn.plan import compile_plan
from job.change_log_reader import ChangeLogReader
from job.check import check
from job.errors import UsageError
from job.run_file import write_json
from operators.change_log import ChangeLog, EpochRows, LogFile
from operators.parser import Origin, Parser
from operators.replay_graph import ReferenceGraph
from operators.snapshot import write_snapshot
from tests.support.models import conv, make_model

WIDTH, OUT = 4, 3
FIRST, SECOND = "a.jsonl", "b.jsonl"


def events_of(seed, count, names, bad_every=7):
    """Lines of all five kinds; every seventh is no event."""
    rng = np.random.default_rng(seed)
    lines = []
    for k in range(count):
        a, b = (names[int(i)] for i in rng.integers(0, len(names), 2))
        x = rng.integers(-3, 4, WIDTH).tolist()
        record = [
            {"op": "add_edge", "src": a, "dst": b, "weight": float(rng.integers(1, 4))},
            {"op": "add_edge", "src": b, "dst": a},
            {"op": "add_vertex", "id": a, "x": x},
            {"op": "set_features", "id": b, "x": x},
            {"op": "del_edge", "src": a, "dst": b},
            {"op": "del_vertex", "id": a},
        ][int(rng.choice(6, p=[0.4, 0.2, 0.1, 0.1, 0.1, 0.1]))]
        lines.append(b"not json" if k % bad_every == 3 else orjson.dumps(record))
    return lines


class Run:
    """A finished run in a folder: two event files read in turns, 10 lines of each an epoch."""

    def __init__(self, folder, kind="int", snapshot=False, undirected=False, epochs=6):
        self.folder, self.kind, self.out = folder, kind, folder / "out"
        self.names = [k if kind == "int" else f"vertex {k}" for k in range(12)]
        self.model = make_model(1, [conv("graph_conv", WIDTH, 5), conv("sage_conv", 5, OUT)])
        save_model(self.model, folder / "model")
        self.snapshot = folder / "snapshot" if snapshot else None
        self.graph = ReferenceGraph(WIDTH, undirected)
        self.parser = Parser(WIDTH, kind)
        self.log = ChangeLog(self.out, 0, OUT, kind, [FIRST, SECOND])
        self.epochs, self.before = [], {}
        if snapshot:
            self._write_snapshot()
        self._stream(epochs)
        run = {"model_sha256": compile_plan(self.model).sha256, "undirected": undirected, "id_type": kind}
        run |= {"sources": [FIRST, SECOND], "snapshot": str(self.snapshot) if snapshot else None}
        write_json(self.out / "run.json", run)

    def _write_snapshot(self):
        x = np.arange(20, dtype=np.float32).reshape(5, WIDTH)
        write_snapshot(self.snapshot, self.names[:5], x, self.names[:4], self.names[1:5])
        for row, name in enumerate(self.names[:5]):
            self.graph.add_vertex(name, x[row])
        for a, b in zip(self.names[:4], self.names[1:5], strict=True):
            self.graph.add_edge(a, b)
        self._end_epoch(0, None)

    def _stream(self, epochs):
        lines = {FIRST: events_of(1, 10 * epochs, self.names), SECOND: events_of(2, 10 * epochs, self.names)}
        for name in lines:
            (self.folder / name).write_bytes(b"\n".join(lines[name]) + b"\n")
        for epoch in range(1, epochs + 1):
            positions = []
            for number, name in enumerate(lines):
                begin = 10 * (epoch - 1)
                data = b"\n".join(lines[name][begin : begin + 10]) + b"\n"
                events, _ = self.parser.parse_jsonl(data, Origin(number, name), begin)
                self.graph.apply(events)
                positions.append((number, 0, int(events.position[-1]), len(events)))
            self._end_epoch(epoch, np.array(positions, np.int64))
            assert len(self.graph) > 3

    def _end_epoch(self, epoch, positions):
        graph = self.graph.arrays()
        now = dict(zip(graph.ids, oracle.forward(self.model, *graph[1:])[-1].astype(np.float32), strict=True))
        changed = [k for k, row in now.items() if k not in self.before or (row != self.before[k]).any()]
        dead = [k for k in self.before if k not in now]
        self.before = now
        rows = np.array([now[k] for k in changed], np.float32).reshape(-1, OUT)
        self.epochs.append(EpochRows(epoch, [self._ids(changed + dead)], [rows], len(changed), len(dead), positions))
        self.log.write(LogFile(len(self.epochs) - 1, self.epochs[-1:]))

    def _ids(self, keys):
        if self.kind == "int":
            return np.array(keys, np.int64)
        encoded = [key.encode() for key in keys]
        offsets = np.cumsum([0] + [len(text) for text in encoded]).astype(np.int32)
        return offsets, np.frombuffer(b"".join(encoded), np.uint8)

    def rewrite(self, change):
        """Change the table of the last file that has rows."""
        path = sorted((self.out / "embeddings").glob("*.parquet"))[-1]
        table = pq.read_table(path)
        pq.write_table(change(table), path)

    def check(self, capsys, **options):
        events = [str(self.folder / FIRST), str(self.folder / SECOND)]
        options = {"events": events, "snapshot": self.snapshot} | options
        capsys.readouterr()
        code = check(self.folder / "model", out=self.out, **options)
        printed = capsys.readouterr()
        assert printed.out.count("\n") == 1
        self.told = printed.err
        return code, json.loads(printed.out)


@pytest.mark.parametrize("kind", ["int", "string"])
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("snapshot", [False, True])
def test_a_right_run_passes(tmp_path, capsys, kind, undirected, snapshot):
    run = Run(tmp_path, kind, snapshot, undirected)
    code, line = run.check(capsys, oracle="own")
    assert code == 0
    assert line["max_rel_error"] < 1e-6
    assert "stopped" not in run.told
    assert line["vertices"] == len(run.graph) > 3
    expected = {"missing": 0, "extra": 0, "nan": 0, "mismatched": 0, "duplicates": 0, "epoch": 6, "oracle": "own"}
    assert {name: line[name] for name in expected} == expected


@pytest.mark.skipif(not torch_oracle.available(), reason="torch and torch-geometric are not installed")
def test_pytorch_geometric_is_the_oracle_where_it_is_installed(tmp_path, capsys):
    code, line = Run(tmp_path).check(capsys)
    assert (code, line["oracle"]) == (0, "pyg")


def altered(table):
    rows = table.to_pylist()
    victim = next(row for row in rows if not row["deleted"])
    victim["embedding"][1] += 0.5
    return type(table).from_pylist(rows, table.schema)


def without_first(table):
    rows = table.to_pylist()
    rows.remove(next(row for row in rows if not row["deleted"]))
    return type(table).from_pylist(rows, table.schema)


def with_another(table):
    rows = table.to_pylist()
    row = dict(rows[0], id=999, deleted=False)
    return type(table).from_pylist([*rows, row], table.schema)


def with_one_twice(table):
    rows = table.to_pylist()
    return type(table).from_pylist([*rows, rows[0]], table.schema)


def with_nan(table):
    rows = table.to_pylist()
    next(row for row in rows if not row["deleted"])["embedding"][0] = float("nan")
    return type(table).from_pylist(rows, table.schema)


@pytest.mark.parametrize(
    ("change", "field"),
    [(altered, "max_abs_error"), (with_another, "extra"), (with_one_twice, "duplicates"), (with_nan, "mismatched")],
)
def test_one_wrong_row_fails(tmp_path, capsys, change, field):
    run = Run(tmp_path)
    run.rewrite(change)
    code, line = run.check(capsys, oracle="own")
    assert code == 1
    assert line[field] >= 0.5


def test_a_row_that_is_not_there_fails(tmp_path, capsys):
    run = Run(tmp_path, epochs=1)
    run.rewrite(without_first)
    code, line = run.check(capsys, oracle="own")
    assert (code, line["missing"]) == (1, 1)


def test_the_tolerance_decides(tmp_path, capsys):
    run = Run(tmp_path)
    run.rewrite(altered)
    code, line = run.check(capsys, oracle="own", tolerance=1.0)
    assert code == 0
    assert line["max_rel_error"] > 1e-4


def test_a_run_that_was_stopped_is_checked_at_its_last_recorded_epoch(tmp_path, capsys):
    run = Run(tmp_path)
    # Another sink part may have come further than the epochs tell: rows of later epochs do not count.
    for name in ("epochs-00000004.parquet", "epochs-00000005.parquet"):
        (run.out / "epochs" / name).unlink()
    assert ChangeLogReader(run.out).last_epoch() == 4
    code, line = run.check(capsys, oracle="own")
    assert (code, line["epoch"]) == (0, 4)
    assert "stopped before the end of its input" in run.told


def test_files_may_lie_elsewhere_by_now(tmp_path, capsys):
    run = Run(tmp_path)
    (tmp_path / "moved").mkdir()
    for name in (FIRST, SECOND):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    code, _ = run.check(capsys, oracle="own", events=[str(tmp_path / "moved")])
    assert code == 0


def test_the_run_tells_what_is_not_given_and_a_flag_wins(tmp_path, capsys):
    run = Run(tmp_path, undirected=True)
    assert run.check(capsys, oracle="own")[0] == 0
    assert run.check(capsys, oracle="own", undirected=False)[0] == 1


def test_wrong_use_is_refused(tmp_path, capsys):
    run = Run(tmp_path, snapshot=True)
    with pytest.raises(UsageError, match=r"--snapshot: the run in .* began with"):
        run.check(capsys, snapshot=None)
    with pytest.raises(UsageError, match="got 1 files, the run read 2"):
        run.check(capsys, events=[str(tmp_path / FIRST)])
    (tmp_path / SECOND).write_bytes(b"".join((tmp_path / SECOND).read_bytes().splitlines(True)[:20]))
    with pytest.raises(UsageError, match=r"after 43 events b\.jsonl stands at 20, the run at 30: not what it read"):
        run.check(capsys)
    other = make_model(2, [conv("graph_conv", WIDTH, OUT)])
    save_model(other, tmp_path / "other")
    with pytest.raises(UsageError, match="give the model of the run"):
        check(tmp_path / "other", [str(tmp_path / FIRST)], run.out)
    with pytest.raises(UsageError, match="no folder embeddings"):
        check(tmp_path / "model", [str(tmp_path / FIRST)], tmp_path)
    for path in (run.out / "epochs").iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="no epoch is complete"):
        run.check(capsys)
