"""Random events of edges with keys, of which several stand between two vertices at a time."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from freshet.partitioner.events import NO_KEY, OP_ADD_EDGE, OP_DEL_EDGE, OP_DEL_EDGES, Events, Ids

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
