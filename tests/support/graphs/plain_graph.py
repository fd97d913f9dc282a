"""The graph that events lead to which are known to be good: no rule of the job or of its check has a say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from freshet.gnn.model import Model
from freshet.gnn.oracles import own_scale
from freshet.gnn.oracles.scaled import Scaled
from freshet.operators.sink.change_log_reader import Positions
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features, edge_row


def apply(graph: ReferenceGraph, event: dict[str, Any]) -> None:
    """Take in one event (types and times are not looked at)."""
    op = event["op"]
    if op == "add_edge":
        weight = event.get("weight")
        values = edge_row({} if weight is None else {"weight": weight}, event.get("attr"))
        graph.add_edge(event["src"], event["dst"], values)
    elif op == "del_edge":
        graph.del_edge(event["src"], event["dst"])
    elif op == "del_vertex":
        graph.del_vertex(event["id"])
    else:
        x = event.get("x")
        graph.add_vertex(event["id"], None if x is None else np.array(x, np.float32))


def embeddings(graph: ReferenceGraph, model: Model) -> tuple[np.ndarray, Scaled]:
    """The ids, and what a full pass makes of each.

    Shapes: (n,) int64; (n, out_width)
    """
    arrays = graph.arrays()
    return np.array(arrays.ids, np.int64), own_scale.forward(model, arrays.graph)


def replay(good: list[list[bytes]], positions: Positions, features: Features) -> tuple[ReferenceGraph, int]:
    """The graph after all epochs that a run recorded, and how many events they took (see `in_order`)."""
    graph = ReferenceGraph(features)
    return graph, in_order(good, positions, lambda event: apply(graph, event))


def in_order(good: list[list[bytes]], positions: Positions, take: Callable[[dict[str, Any]], None]) -> int:
    """Hand over the events of all epochs that a run recorded, in their order; return their number.

    `good`: by partition of the one topic, its good events as JSON. An epoch takes so many of each, in the order of the
    partitions.

    Raises: AssertionError when the epochs do not take all of them.
    """
    applied, taken = 0, [0] * len(good)
    for k in np.lexsort((positions.partition, positions.epoch)).tolist():
        partition, count = int(positions.partition[k]), int(positions.events[k])
        begin = taken[partition]
        taken[partition] = begin + count
        for line in good[partition][begin : begin + count]:
            event = orjson.loads(line)
            if event is not None:  # one that was refused, which the epochs count
                take(event)
                applied += 1
    ends = [len(lines) for lines in good]
    assert taken == ends, f"the epochs took {taken} events of the partitions, which have {ends}"
    return applied
