"""Cost of starting a job from a large snapshot with kinds of vertices, and of checking it: seconds and memory.

    .venv/bin/python scripts/bench/kinds.py                                   # 1,000,000 vertices, 5,000,000 edges
    .venv/bin/python scripts/bench/kinds.py --vertices 20000 --edges 100000 --parts 3 --strings

The graph is synthetic: 60% users with 8 features, 30% items with 64 and 10% shops with 16. Users buy and follow, shops
sell; `rev_buys` mirrors `buys`, so the job has half as many edges again. The model is SAGE of two layers on every
relation and returns one kind. The job gets events on vertices and edges of the snapshot, deletions among them, in the
local runtime, and `freshet check` follows. Memory is that of `Private`, sampled from outside.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.model import save_model as write_model
from scripts.bench.embed import FRESHET
from scripts.bench.image import measured
from tests.support.graphs.kinds import by_kind, kinds_model, relation, sage_everywhere

SHARES = {"user": 6, "item": 3, "shop": 1}
WIDTHS = {"user": 8, "item": 64, "shop": 16}
RELATIONS = [
    relation("user", "buys", "item"),
    relation("item", "rev_buys", "user", mirrors=0),
    relation("shop", "sells", "item"),
    relation("user", "follows", "user"),
]
OF_EDGES = {"buys": 5, "sells": 2, "follows": 3}
HIDDEN, OUT = 32, 16


def save_model(folder: Path, out: str) -> None:
    """Write a SAGE model of two layers, which returns `out`."""
    relu = by_kind(**{kind: [{"type": "relu"}] for kind in ("user", "item")})
    second = [relation for relation in RELATIONS if relation["source"] != "shop"]
    numbers = [RELATIONS.index(one) for one in second]
    last = sage_everywhere(dict.fromkeys(WIDTHS, HIDDEN), OUT, second)
    for conv, number in zip(last["convs"], numbers, strict=True):
        conv["relation"] = number
    layers = [sage_everywhere(WIDTHS, HIDDEN, RELATIONS), relu, last]
    write_model(kinds_model(layers, [out], WIDTHS, RELATIONS), folder)


class Graph:
    """A graph at random: ids of each kind, and edges of each relation that events bring."""

    def __init__(self, vertices: int, edges: int, *, strings: bool) -> None:
        self.rng, self._strings = np.random.default_rng(1), strings
        self.sizes = {kind: vertices * share // 10 for kind, share in SHARES.items()}
        self.edges: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for one in RELATIONS:
            if one["type"] in OF_EDGES:
                m, source, target = edges * OF_EDGES[one["type"]] // 10, one["source"], one["target"]
                dst = self.rng.permutation(self.sizes[target])[
                    (self.sizes[target] * self.rng.random(m) ** 2).astype(np.int64)
                ]
                self.edges[one["type"]] = self.rng.integers(0, self.sizes[source], m), dst

    def ids(self, numbers: np.ndarray) -> pa.Array:
        """Return the ids of vertices, by their numbers within a kind."""
        found = pa.array(numbers.astype(np.int64))
        return found.cast(pa.string()) if self._strings else found

    def save(self, folder: Path) -> None:
        """Write the graph as a snapshot."""
        folder.mkdir(parents=True)
        kinds = list(WIDTHS)
        codes = self.rng.permutation(np.repeat(np.arange(len(kinds), dtype=np.int32), list(self.sizes.values())))
        numbers = np.empty(len(codes), np.int64)
        for code, kind in enumerate(kinds):
            numbers[codes == code] = np.arange(self.sizes[kind])
        offsets = np.append(0, np.cumsum(np.array(list(WIDTHS.values()))[codes]))
        x = pa.ListArray.from_arrays(offsets.astype(np.int32), self.rng.standard_normal(offsets[-1], np.float32))
        kind = pa.DictionaryArray.from_arrays(codes, kinds).cast(pa.string())
        pq.write_table(pa.table({"id": self.ids(numbers), "kind": kind, "x": x}), folder / "vertices.parquet")
        src, dst = (np.concatenate([ends[k] for ends in self.edges.values()]) for k in (0, 1))
        types = np.repeat(np.arange(len(self.edges), dtype=np.int32), [len(ends[0]) for ends in self.edges.values()])
        order = self.rng.permutation(len(src))
        type_ = pa.DictionaryArray.from_arrays(types[order], list(self.edges)).cast(pa.string())
        weight = self.rng.random(len(src), np.float32)
        edges = {"src": self.ids(src[order]), "dst": self.ids(dst[order]), "type": type_, "weight": weight}
        pq.write_table(pa.table(edges), folder / "edges.parquet")

    def save_events(self, path: Path, events: int) -> None:
        """Write events of all kinds on vertices and edges, most of which the snapshot has."""
        with path.open("wb") as file:
            for _ in range(events):
                file.write(orjson.dumps(self._event()) + b"\n")

    def _event(self) -> dict[str, Any]:
        chance, kind = self.rng.random(), str(self.rng.choice(list(WIDTHS)))
        vertex = self._id(int(self.rng.integers(self.sizes[kind] + 10)))
        if chance < 0.05:
            return {"op": "del_vertex", "kind": kind, "id": vertex}
        if chance < 0.3:
            x = self.rng.standard_normal(WIDTHS[kind], np.float32).tolist()
            return {"op": "add_vertex" if chance < 0.1 else "set_features", "kind": kind, "id": vertex, "x": x}
        name = str(self.rng.choice(list(self.edges)))
        ends = self.edges[name]
        if chance < 0.5:
            place = int(self.rng.integers(len(ends[0])))
            return {"op": "del_edge", "src": self._id(ends[0][place]), "dst": self._id(ends[1][place]), "type": name}
        src, dst = (self._id(one[self.rng.integers(len(one))]) for one in ends)
        return {"op": "add_edge", "src": src, "dst": dst, "type": name, "weight": 0.5}

    def _id(self, number: int) -> int | str:
        return str(number) if self._strings else int(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=5_000_000)
    parser.add_argument("--events", type=int, default=5_000)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--out", default="user", help="the kind that the model returns: user or item")
    parser.add_argument("--strings", action="store_true", help="ids are strings")
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        runs = measure(given, Path(folder))
    table = Table("command", "wall_s", "anonymous_MiB", "uss_MiB", box=SIMPLE)
    for name, run in runs.items():
        table.add_row(name, *(str(run[key]) for key in ("wall_s", "anonymous_MiB", "uss_MiB")))
    Console(stderr=True).print(table)
    told = {name: value for name, value in vars(given).items() if name != "work"}
    print(orjson.dumps(told | {"runs": runs}).decode())


def measure(given: argparse.Namespace, work: Path) -> dict[str, dict[str, Any]]:
    """Run and check the job."""
    graph = Graph(given.vertices, given.edges, strings=given.strings)
    graph.save(work / "S")
    graph.save_events(work / "events.jsonl", given.events)
    del graph
    save_model(work / "M", given.out)
    of = ["--model", work / "M", "--snapshot", work / "S", "--events", work / "events.jsonl", "--out", work / "out"]
    how = ["--runtime", "local", "--parts", given.parts, "--epoch-events", 1_000]
    commands: dict[str, list[object]] = {
        "run": [FRESHET, "run", *of, *how],
        "check": [FRESHET, "check", *of],
    }
    runs = {}
    for name, command in commands.items():
        runs[name] = measured(command)
        print(orjson.dumps({name: runs[name]}).decode(), file=sys.stderr, flush=True)
    return runs


if __name__ == "__main__":
    main()
