"""The graph that good events lead to, by dictionaries alone: no code of the job takes part, its Parser least of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from gnn import oracle
from gnn.model import Model
from job.change_log_reader import Positions


class PlainGraph:
    """Features of the live vertices, and the weights of their edges, both ways round."""

    def __init__(self, width: int) -> None:
        self._zeros = [0.0] * width
        self.x: dict[int, list[float]] = {}
        self.out: dict[int, dict[int, float]] = {}
        self.into: dict[int, set[int]] = {}

    def apply(self, event: dict[str, Any]) -> None:
        """Take in one event (types, attributes and times are not looked at)."""
        op = event["op"]
        if op == "add_edge":
            src, dst, weight = event["src"], event["dst"], event.get("weight")
            self._add(src)
            self._add(dst)
            self.out[src][dst] = 1.0 if weight is None else weight
            self.into[dst].add(src)
        elif op == "del_edge":
            src, dst = event["src"], event["dst"]
            if self.out.get(src, {}).pop(dst, None) is not None:
                self.into[dst].discard(src)
        elif op == "del_vertex":
            self._delete(event["id"])
        else:
            self._add(event["id"])
            if event.get("x") is not None:
                self.x[event["id"]] = event["x"]

    def _add(self, vertex: int) -> None:
        if vertex not in self.x:
            self.x[vertex], self.out[vertex], self.into[vertex] = self._zeros, {}, set()

    def _delete(self, vertex: int) -> None:
        if self.x.pop(vertex, None) is None:
            return
        for dst in self.out.pop(vertex):
            if dst != vertex:
                self.into[dst].discard(vertex)
        for src in self.into.pop(vertex):
            if src != vertex:
                del self.out[src][vertex]

    def embeddings(self, model: Model) -> tuple[np.ndarray, np.ndarray]:
        """The ids, and what a full pass makes of each.

        Shapes: (n,) int64; (n, out_width)
        """
        ids = np.array(sorted(self.x), np.int64)
        number = {vertex: k for k, vertex in enumerate(ids.tolist())}
        edges = [(number[src], number[dst], w) for src, found in self.out.items() for dst, w in found.items()]
        src, dst, weight = zip(*edges, strict=True)
        x = np.array([self.x[vertex] for vertex in ids.tolist()], np.float32)
        ends = np.array(src, np.int64), np.array(dst, np.int64), np.array(weight, np.float32)
        return ids, oracle.forward(model, x, *ends)[-1]


def replay(good: list[list[bytes]], positions: Positions, width: int) -> tuple[PlainGraph, int]:
    """The graph after all epochs that a run recorded, and how many events they took.

    `good`: by partition of the one topic, its good events as JSON. An epoch takes so many of each, in the order of the
    partitions.

    Raises: AssertionError when the epochs do not take all of them.
    """
    graph = PlainGraph(width)
    taken = [0] * len(good)
    for k in np.lexsort((positions.partition, positions.epoch)).tolist():
        partition, count = int(positions.partition[k]), int(positions.events[k])
        begin = taken[partition]
        taken[partition] = begin + count
        for line in good[partition][begin : begin + count]:
            graph.apply(orjson.loads(line))
    ends = [len(lines) for lines in good]
    assert taken == ends, f"the epochs took {taken} events of the partitions, which have {ends}"
    return graph, sum(taken)
