"""Random events of edges with keys, of which several stand between two vertices at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from freshet.partitioner.events import ALL_KEYS, OP_ADD_EDGE, OP_DEL_EDGE, OP_DEL_EDGES, Events
from freshet.partitioner.ids import NO_KEY, Ids

FEW = 4  # keys, and the edge without one


def with_keys(events: Events, seed: int, kind: str, *, every: float = 0.15, loops: bool = True) -> Events:
    """The events with keys, of self-loops if `loops`; that share of deletions takes all edges of a pair."""
    rng, op, keys = random.Random(f"keys {seed}"), events.op.copy(), list[int]()
    for event, (code, a, b) in enumerate(zip(events.op.tolist(), events.a.to_list(), events.b.to_list(), strict=True)):
        number = rng.randrange(FEW + 1)
        is_edge = code in (OP_ADD_EDGE, OP_DEL_EDGE) and (loops or a != b)
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
