"""Graphs that take the events of small streams one by one, and the rows that full passes in float64 make of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.oracles import kinds as scales_by_kind
from freshet.gnn.oracles import own_scale
from freshet.gnn.oracles.scaled import Scaled
from freshet.gnn.plan import Plan
from freshet.kinds import NO_NAME
from freshet.operators.checks.drawn_streams import Event
from freshet.operators.graph.rules import graph_rules
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.partitioner.reference.kinds import ReferenceKindsGraph
from freshet.schema import WEIGHT, edge_row

Vertex = Any
"""The id of a vertex, or a pair of the name of its kind and its id."""


class WantedRow(NamedTuple):
    """A row as a full pass makes it, with the scale of each value; (width,) float64."""

    vertex: Vertex
    row: np.ndarray
    scale: np.ndarray


class StreamGraph(Protocol):
    """A graph that takes the events of a stream one by one."""

    def take(self, event: Event) -> None:
        """Apply an event."""

    def rows(self, tolerance: float) -> Iterator[WantedRow]:
        """Yield the embeddings of the vertices that are there."""


class PlainStreamGraph:
    """The graph of a model without kinds."""

    def __init__(self, model: Model, plan: Plan) -> None:
        self._model, self._features = model, plan.features
        self._types = list(plan.edge_types) or None
        self._graph = ReferenceGraph(plan.features, graph_rules(plan, undirected=False))

    def take(self, event: Event) -> None:
        """Apply an event."""
        self._graph.apply(events_of([event], self._features, edge_types=self._types))

    def rows(self, tolerance: float) -> Iterator[WantedRow]:
        """Yield the embeddings of the vertices that are there."""
        there = self._graph.arrays()
        if there.ids:
            yield from _each(there.ids, own_scale.forward(self._model, there.graph, tolerance=tolerance))


class KindsStreamGraph:
    """The graph of a model with kinds."""

    def __init__(self, model: KindsModel, plan: KindsPlan) -> None:
        self._model, self._plan = model, plan
        self._graph = ReferenceKindsGraph(plan.features, graph_rules(plan, undirected=False))

    def take(self, event: Event) -> None:
        """Apply an event."""
        op, one, *more = event
        if op in ("add_edge", "del_edge"):
            name = more.pop(2 if op == "add_edge" else 1)
            kinds = self._graph.kinds
            source, _, target = kinds.triple(kinds.relations[kinds.relation_names.index(name)])
            ends = (source, one), (target, more[0])
            if op == "del_edge":
                self._graph.del_edge(*ends, name)
            else:
                self._graph.add_edge(*ends, edge_row({WEIGHT: more[1]}, *more[3:]), name)
            return
        vertex: Vertex = one if isinstance(one, tuple) else (NO_NAME, one)
        if op == "del_vertex":
            self._graph.del_vertex(vertex)
        else:
            self._graph.add_vertex(vertex, *(np.array(x, np.float32) for x in more))

    def rows(self, tolerance: float) -> Iterator[WantedRow]:
        """Yield the embeddings of the returned kinds that are there."""
        ids, graph = self._graph.kind_arrays()
        learned = self._plan.learned or (None,) * len(graph.x)
        x = [
            rows if one is None else np.concatenate([rows, one.find(np.array(of, np.int64))[0]], axis=1)
            for rows, one, of in zip(graph.x, learned, ids.values(), strict=True)
        ]
        made = scales_by_kind.forward(self._model, graph._replace(x=x), tolerance=tolerance)
        for kind, rows in made.items():
            yield from _each([(kind, one) for one in ids[kind]], rows)


def _each(vertices: list[Any], made: Scaled) -> Iterator[WantedRow]:
    for vertex, row, scale in zip(vertices, made.rows, made.scale, strict=True):
        yield WantedRow(vertex, row, scale)
