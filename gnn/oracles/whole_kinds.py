"""Runs the plan of a model with kinds on a whole graph at once, by the functions that a job uses."""

from __future__ import annotations

import numpy as np

from freshet.gnn.kind_layers.plans import KindPlan, KindsLayer, KindsPlan, RelationPlan
from freshet.gnn.kind_layers.relation_conv import InEdges
from freshet.gnn.kind_layers.typed_sums import TypedSums
from freshet.gnn.layers.base import Context
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.oracles.whole_graph import contexts
from freshet.kinds_graph import KindsGraph
from freshet.schema import Graph


def forward(plan: KindsPlan, graph: KindsGraph) -> list[list[Rows]]:
    """Return x_1..x_L of a whole graph by kind, behind each what is carried with it; (n, 0) where a kind has none.

    Shapes: results, for each layer and kind (n, width of the layer for the kind) float32.
    """
    rows = [np.ascontiguousarray(x, np.float32) for x in graph.x]
    outputs = []
    for layer in plan.layers:
        sent = [_sent(one, x, graph) for one, x in zip(layer.kinds, rows, strict=True)]
        rows = [_updated(layer, one, sent, number, graph) for number, one in enumerate(layer.kinds)]
        outputs.append(rows)
    return outputs


def _sent(plan: KindPlan | None, x: Rows, graph: KindsGraph) -> Rows:
    if plan is None or not plan.sends:
        return np.empty((len(x), 0), np.float32)
    return plan.send(x, {one: _degrees(one, x, graph) for one in plan.sent_degrees if one is not None})


def _degrees(number: int, x: Rows, graph: KindsGraph) -> Context:
    """Return the degrees of vertices with these rows in a relation within their kind."""
    return contexts(Graph(x, *graph.edges[number]))


def _updated(layer: KindsLayer, plan: KindPlan | None, sent: list[Rows], number: int, graph: KindsGraph) -> Rows:
    rows = sent[number]
    if plan is None or not plan.updates:
        return np.empty((len(rows), 0), np.float32)
    into = [layer.relations[place] for place in plan.relations]
    own = rows[:, : plan.message_width] if plan.self_is_message else rows[:, plan.message_width :]
    aggregates = [aggregate(relation, sent, graph) for relation in into]
    counts: list[InEdges] = [
        _degrees(one.number, rows, graph)
        if one.number in plan.read_degrees
        else np.bincount(graph.edges[one.number].dst, minlength=len(rows)).astype(np.int32)
        for one in into
    ]
    return plan.update(aggregates, np.ascontiguousarray(own), counts)


def aggregate(plan: RelationPlan, sent: list[Rows], graph: KindsGraph) -> Rows:
    """Return what update reads of every target's messages, (targets, state_width) float32."""
    if not isinstance(plan.conv, TypedSums):
        return _synopses(plan, plan.number, sent, graph)
    targets, states = len(sent[plan.target]), [_synopses(plan, number, sent, graph) for number in plan.numbers]
    counts = [np.bincount(graph.edges[number].dst, minlength=targets) for number in plan.numbers]
    relations, places = np.nonzero(counts)  # of the pairs that have edges
    found = np.stack(states)[relations, places], np.stack(counts)[relations, places].astype(np.int32)
    return plan.conv.folded(targets, places, relations, *found)


def _synopses(plan: RelationPlan, number: int, sent: list[Rows], graph: KindsGraph) -> Rows:
    """Return the synopsis of every target's messages of one relation, (targets, synopsis_width) float32."""
    src, dst, values = plan.edge.kept(*graph.edges[number])
    messages = plan.edge.messages(sent[plan.source][:, plan.source_columns][src], values)
    return plan.synopsis.whole(messages, dst, sent[plan.target][:, plan.target_columns])
