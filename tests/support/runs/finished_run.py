"""Finished runs in a folder, made by hand from the oracle, for tests of `freshet check`, and ways to falsify them."""

from __future__ import annotations

import json

import numpy as np
import orjson
import pyarrow.parquet as pq

from freshet.files.json_file import write_json
from freshet.gnn.model import save_model
from freshet.gnn.plan import compile_plan
from freshet.job.results.check import check
from freshet.operators.output_folders import LogFolders
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.sink.change_log import ChangeLog
from freshet.operators.sink.epoch_rows import EpochRows, LogFile
from freshet.operators.snapshot.writer import write_snapshot
from freshet.partitioner.config import GraphRules
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features
from tests.support import oracle
from tests.support.graphs.models import conv, make_model

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

    def __init__(self, folder, kind="int", snapshot=False, undirected=False, epochs=6, model=None):
        self.folder, self.kind, self.out = folder, kind, folder / "out"
        self.names = [k if kind == "int" else f"vertex {k}" for k in range(12)]
        self.model = model or make_model(1, [conv("graph_conv", WIDTH, 5), conv("sage_conv", 5, OUT)])
        self.accepted = self.rejected = 0
        save_model(self.model, folder / "model")
        self.snapshot = folder / "snapshot" if snapshot else None
        self.graph = ReferenceGraph(Features(WIDTH), GraphRules(undirected))
        self.parser = Parser(Features(WIDTH), kind)
        self.log = ChangeLog(LogFolders(self.out), 0, OUT, kind, [FIRST, SECOND])
        self.epochs, self.before = [], {}
        if snapshot:
            self._write_snapshot()
        self._stream(epochs)
        run = {"model_sha256": compile_plan(self.model).sha256, "undirected": undirected, "id_type": kind}
        run |= {"sources": [FIRST, SECOND], "snapshot": str(self.snapshot) if snapshot else None}
        counted = {"events": self.accepted + self.rejected, "rejected": self.rejected}
        counted["rows"] = sum(one.size for one in self.epochs if one.epoch > 0)
        status = {"part": 0, "epoch": epochs, "visible": epochs, "vertices": len(self.graph), **counted}
        write_json(self.out / "status" / "sink-0.json", status)
        summary = {**counted, "epochs": epochs}
        write_json(self.out / "run.json", {**run, "state": "finished", "epoch": epochs, "parts": 1, "summary": summary})

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
                events, letters = self.parser.parse_jsonl(data, Origin(number, name), begin)
                self.accepted, self.rejected = self.accepted + len(events), self.rejected + len(letters)
                self.graph.apply(events)
                positions.append((number, 0, int(events.position[-1]), len(events)))
            self._end_epoch(epoch, np.array(positions, np.int64))
            assert len(self.graph) > 3

    def _end_epoch(self, epoch, positions):
        graph = self.graph.arrays()
        now = dict(zip(graph.ids, oracle.forward(self.model, graph.graph)[-1].astype(np.float32), strict=True))
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

    def rewrite(self, change, file=-1):
        """Change the table of the last file that has rows, or of another."""
        path = sorted((self.out / "embeddings").glob("*.parquet"))[file]
        table = pq.read_table(path)
        pq.write_table(change(table), path)

    def update(self, name, **fields):
        """Change fields of a JSON file; a field that is None goes."""
        content = {**json.loads((self.out / name).read_bytes()), **fields}
        write_json(self.out / name, {key: value for key, value in content.items() if value is not None})

    def check(self, capsys, **options):
        events = [str(self.folder / FIRST), str(self.folder / SECOND)]
        options = {"events": events, "snapshot": self.snapshot} | options
        capsys.readouterr()
        code = check(self.folder / "model", out=self.out, **options)
        printed = capsys.readouterr()
        assert printed.out.count("\n") == 1
        self.told = printed.err
        return code, json.loads(printed.out)


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


def part_of(number):
    return f"embeddings/part-0-{number:08d}.parquet"


def epochs_of(number):
    return f"epochs/epochs-{number:08d}.parquet"
