"""Random events of edges with keys, of which several stand between two vertices at a time."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from freshet.kinds import Kinds
from freshet.partitioner.events import ALL_KEYS, OP_ADD_EDGE, OP_DEL_EDGE, OP_DEL_EDGES, Events
from freshet.partitioner.ids import NO_KEY, Ids
from tests.support.graphs.kind_reference import KindGraph

FEW = 4  # keys, and the edge without one


def with_keys(events: Events, seed: int, kind: str, *, every: float = 0.15) -> Events:
    """The events with keys; that share of deletions takes all edges of a pair."""
    rng, op, keys = random.Random(f"keys {seed}"), events.op.copy(), list[int]()
    for event, code in enumerate(events.op.tolist()):
        number = rng.randrange(FEW + 1)
        is_edge = code in (OP_ADD_EDGE, OP_DEL_EDGE)
        if code == OP_DEL_EDGE and rng.random() < every:
            op[event], is_edge = OP_DEL_EDGES, False
        keys.append(number - 3 if is_edge and number < FEW else NO_KEY)
    if kind == "int":
        return replace(events, op=op, keys=Ids.of_ints(np.array(keys, np.int64)))
    texts = ["" if key == NO_KEY else f"payment {key}" * (4 + key) for key in keys]
    return replace(events, op=op, keys=Ids.of_strings(texts))


def keyed_rows(rows: Sequence[tuple[Any, ...]], events: Events) -> list[tuple[Any, ...]]:
    """The rows of these events, about vertices with kinds, with their keys behind the operation."""
    found = []
    for event, (op, *fields) in enumerate(rows):
        key = ALL_KEYS if events.op[event] == OP_DEL_EDGES else events.key_of(event)
        found.append((op if key is None else f"{op}#{key}", *fields))
    return found


class KeyedKindGraph(KindGraph):
    """What events mean where vertices have kinds and edges have keys."""

    def __init__(self, kinds: Kinds, one_loop: Collection[int] = ()) -> None:
        """`one_loop`: relations of which a vertex has one self-loop at most; one with another key is rejected."""
        super().__init__(kinds)
        self.one_loop = one_loop
        self.edges: dict[Any, tuple[float, tuple[float, ...]]] = {}

    def _edge(
        self, op: str, relation: int, src: Any, dst: Any, weight: float = 1.0, attr: Any = None, *, ts: int | None
    ) -> None:
        op, _, key = op.partition("#")
        for edge in self.both_ways(relation, src, dst):
            parallel = [one for one in self.edges if one[:3] == edge]
            if op == "del_edge":
                for one in parallel:
                    if key in (ALL_KEYS, one[3]):
                        del self.edges[one]
                continue
            of, to = self.ends(edge)
            if of == to and relation in self.one_loop and any(one[3] != key for one in parallel):
                return
            for vertex in (of, to):
                self.born(vertex)
            width = self.kinds.relations[edge[0]].edge_width
            self.edges[*edge, key] = weight, tuple(attr)[:width] if attr else (0.0,) * width
