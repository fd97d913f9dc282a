"""Runs the plan of a model with kinds on a whole graph at once, by the functions that a job uses."""

from __future__ import annotations

import numpy as np

from freshet.gnn.kind_layers.plans import KindPlan, KindsLayer, KindsPlan, RelationPlan
from freshet.gnn.numerics.dense import Rows
from freshet.kinds_graph import KindsGraph


def forward(plan: KindsPlan, graph: KindsGraph) -> list[list[Rows]]:
    """Return x_1..x_L of a whole graph by kind, behind each what is carried with it; (n, 0) where a kind has none.

    Shapes: results, for each layer and kind (n, width of the layer for the kind) float32.
    """
    rows = [np.ascontiguousarray(x, np.float32) for x in graph.x]
    outputs = []
    for layer in plan.layers:
        sent = [_sent(one, x) for one, x in zip(layer.kinds, rows, strict=True)]
        rows = [_updated(layer, one, sent, number, graph) for number, one in enumerate(layer.kinds)]
        outputs.append(rows)
    return outputs


def _sent(plan: KindPlan | None, x: Rows) -> Rows:
    return np.empty((len(x), 0), np.float32) if plan is None or not plan.sends else plan.send(x)


def _updated(layer: KindsLayer, plan: KindPlan | None, sent: list[Rows], number: int, graph: KindsGraph) -> Rows:
    rows = sent[number]
    if plan is None or not plan.updates:
        return np.empty((len(rows), 0), np.float32)
    into = [layer.relations[place] for place in plan.relations]
    own = rows[:, : plan.message_width] if plan.self_is_message else rows[:, plan.message_width :]
    aggregates = [aggregate(relation, sent, graph) for relation in into]
    counts = [np.bincount(graph.edges[one.number].dst, minlength=len(rows)).astype(np.int32) for one in into]
    return plan.update(aggregates, np.ascontiguousarray(own), counts)


def aggregate(plan: RelationPlan, sent: list[Rows], graph: KindsGraph) -> Rows:
    """Return the synopsis of every target's messages of a relation, (targets, synopsis_width) float32."""
    src, dst, values = graph.edges[plan.number]
    if plan.skip_loops:
        edges = np.flatnonzero(src != dst)
        src, dst, values = src[edges], dst[edges], values[edges]
    messages = sent[plan.source][:, plan.source_columns][src]
    if plan.weighted:
        messages = messages * values.weight[:, None]
    if plan.edge_width:
        messages = np.concatenate([messages, values.full_attr(plan.edge_width)], axis=1)
    return plan.synopsis.whole(messages, dst, sent[plan.target][:, plan.target_columns])
