"""The graph that events make, in plain dictionaries, one event at a time: what a LiveGraph is held against.

It shares nothing with the readers of the product, nor with the reference of the Partitioner.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Record = dict[str, Any]
Vertex = tuple[str, Any]  # kind and id; the kind is empty without kinds
Edge = tuple[int, Any, Any, Any]  # relation, ids of source and target, key
Content = tuple[dict[Vertex, list[float]], list[list[tuple[Any, ...]]]]


@dataclass(frozen=True)
class Bond:
    """A relation: kinds of its ends, type (None: edges have none), width of attr, and the relation that follows it.

    `mirror`: the number of that one, whose edges lead the other way round, or None; `is_given`: events bring its edges.
    """

    source: str
    type: str | None
    target: str
    width: int = 0
    mirror: int | None = None
    is_given: bool = True


@dataclass
class Truth:
    """The graph. `widths` of features by kind; `ttl` in ms, 0: edges stay."""

    widths: dict[str, int]
    bonds: Sequence[Bond]
    ttl: int = 0
    x: dict[Vertex, list[float]] = field(default_factory=dict)
    edges: dict[Edge, tuple[float, tuple[float, ...], int | None]] = field(default_factory=dict)
    clock: int | None = None

    def epoch(self, records: Iterable[Record]) -> None:
        """Take the events of an epoch; old edges go at its end."""
        for one in records:
            self._take(one)
            if one.get("ts") is not None:
                self.clock = max(one["ts"], self.clock if self.clock is not None else one["ts"])
        if self.ttl and self.clock is not None:
            self.edges = {e: v for e, v in self.edges.items() if v[2] is None or v[2] + self.ttl >= self.clock}

    def _born(self, vertex: Vertex) -> None:
        self.x.setdefault(vertex, [0.0] * self.widths[vertex[0]])

    def _take(self, one: Record) -> None:
        if "src" not in one:
            vertex = one.get("kind", ""), one["id"]
            if one["op"] == "del_vertex":
                self.x.pop(vertex, None)
                self.edges = {e: v for e, v in self.edges.items() if vertex not in self._ends(e)}
                return
            self._born(vertex)
            if one.get("x") is not None and self.widths[vertex[0]]:
                self.x[vertex] = list(map(float, one["x"]))
            return
        relation = one["relation"]
        bond = self.bonds[relation]
        both = [(relation, one["src"], one["dst"])]
        both += [] if bond.mirror is None else [(bond.mirror, one["dst"], one["src"])]
        if one["op"] == "del_edge":
            for edge in both:
                gone = [e for e in self.edges if e[:3] == edge and one.get("key") in ("*", e[3])]
                for e in gone:
                    del self.edges[e]
            return
        self._born((bond.source, one["src"]))
        self._born((bond.target, one["dst"]))
        attr = tuple(map(float, one.get("attr") or [0.0] * bond.width))
        for edge in both:
            self.edges[*edge, one.get("key")] = one.get("weight", 1.0), attr, one.get("ts")

    def _ends(self, edge: Edge) -> tuple[Vertex, Vertex]:
        bond = self.bonds[edge[0]]
        return (bond.source, edge[1]), (bond.target, edge[2])

    def content(self, attr: Sequence[bool]) -> Content:
        """Return features by vertex, and by relation the sorted edges, with attributes where `attr` says so."""
        edges: list[list[tuple[Any, ...]]] = [[] for _ in self.bonds]
        for (relation, src, dst, _), (weight, numbers, _) in self.edges.items():
            edges[relation].append((src, dst, weight, numbers if attr[relation] else ()))
        return self.x, [sorted(one) for one in edges]


def records_of(
    rng: random.Random,
    truth: Truth,
    count: int,
    ids: Sequence[Any],
    keys: Sequence[Any] = (),
    step: int = 1000,
) -> list[Record]:
    """Random events of such a graph; `relation` is its number, which `as_event` takes out. Times go on by `step`."""
    given = [number for number, bond in enumerate(truth.bonds) if bond.is_given]
    found: list[Record] = []
    for number in range(count):
        now = step * number - rng.choice([0, 0, 0, step // 2, 40 * step])
        timed = {"ts": now} if truth.ttl and rng.random() < 0.9 else {}
        draw = rng.random()
        if draw < 0.25:
            kind = rng.choice(list(truth.widths))
            op = "del_vertex" if draw < 0.03 else "add_vertex" if draw < 0.15 else "set_features"
            x = {"x": [rng.randint(-4, 4) for _ in range(truth.widths[kind])]} if op != "del_vertex" else {}
            found.append({"op": op, "id": rng.choice(ids), **({"kind": kind} if kind else {}), **x, **timed})
            continue
        relation = rng.choice(given)
        ends = {"src": rng.choice(ids), "dst": rng.choice(ids), "relation": relation}
        if keys and ends["src"] == ends["dst"]:
            ends["dst"] = next(one for one in ids if one != ends["src"])
        key = {"key": rng.choice(keys)} if keys and rng.random() < 0.8 else {}
        if draw < 0.4:
            key = {"key": "*"} if keys and rng.random() < 0.3 else key
            found.append({"op": "del_edge", **ends, **key, **timed})
            continue
        width = truth.bonds[relation].width
        attr = {"attr": [rng.randint(-4, 4) for _ in range(width)]} if width and rng.random() < 0.9 else {}
        weight = {"weight": rng.choice([0.5, 2.0, -3.0])} if rng.random() < 0.5 else {}
        found.append({"op": "add_edge", **ends, **key, **attr, **weight, **timed})
    return found


def as_event(truth: Truth, record: Record) -> Record:
    """Return a record as an event in JSON."""
    if "relation" not in record:
        return record
    bond = truth.bonds[record["relation"]]
    event = {name: value for name, value in record.items() if name != "relation"}
    named = {"src_kind": bond.source, "dst_kind": bond.target} if bond.source else {}
    return event | ({} if bond.type is None else {"type": bond.type}) | named


def content_of(data: Any, truth: Truth) -> Content:
    """Return the same of PyTorch Geometric's data; its ids are distinct, and its edges are ordered."""
    x: dict[Vertex, list[float]] = {}
    edges: list[list[tuple[Any, ...]]] = []
    has_kinds = "" not in truth.widths
    for kind, width in truth.widths.items():
        store = data[kind] if has_kinds else data
        ids = store["id"].tolist()
        assert ids == sorted(ids)
        assert store["num_nodes"] == len(ids) == len(set(ids))
        assert ("x" in store) == bool(width)
        rows = store["x"].tolist() if width else [[]] * len(ids)
        x |= {(kind, one): row for one, row in zip(ids, rows, strict=True)}
    for number, bond in enumerate(truth.bonds):
        store = data[bond.source, bond.type, bond.target] if has_kinds else data
        names = [(data[kind] if has_kinds else data)["id"] for kind in (bond.source, bond.target)]
        src, dst = store["edge_index"].numpy()
        attr = store["edge_attr"].numpy() if "edge_attr" in store else np.zeros((len(src), 0), np.float32)
        weight = store["edge_weight"].numpy()
        if "edge_type" in store:
            mine = store["edge_type"].numpy() == number
            src, dst, weight, attr = src[mine], dst[mine], weight[mine], attr[mine]
        assert (np.lexsort((src, dst)) == np.arange(len(src))).all()
        ends = [np.asarray(of)[rows].tolist() for of, rows in zip(names, (src, dst), strict=True)]
        carried = zip(*ends, weight.tolist(), map(tuple, attr.tolist()), strict=True)
        edges.append(sorted(carried))
    return x, edges


def assert_same_data(one: Any, other: Any) -> None:
    """Two graphs have the same attributes, bit by bit and in the same order."""
    assert str(one) == str(other)
    for left, right in zip(one.stores, other.stores, strict=True):
        assert left._key == right._key
        for name in left.keys():
            mine, yours = left[name], right[name]
            assert type(mine) is type(yours)
            same = mine == yours
            assert same if isinstance(same, bool) else bool(same.all()), f"{left._key} {name}"
