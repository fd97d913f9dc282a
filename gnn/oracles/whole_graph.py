"""Runs a plan on a whole graph at once: what the incremental job must arrive at, by the same layer functions."""

from __future__ import annotations

import numpy as np

from freshet.gnn.numerics.dense import Rows
from freshet.gnn.plan import Context, LayerPlan, Plan


def contexts(vertices: int, src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> Context:
    """Return the context of every vertex of a graph.

    Shapes: src, dst (e,) vertex numbers; weight (e,) float32.
    """
    is_loop = src == dst
    loop = np.bincount(dst[is_loop], weight[is_loop].astype(np.float64), minlength=vertices).astype(np.float32)
    loop[np.bincount(dst[is_loop], minlength=vertices) == 0] = np.nan
    degree = np.bincount(dst[~is_loop], weight[~is_loop].astype(np.float64), minlength=vertices)
    return Context(np.bincount(dst, minlength=vertices).astype(np.int32), degree.astype(np.float64), loop)


def forward(
    plan: Plan, x: np.ndarray, src: np.ndarray, dst: np.ndarray, weight: np.ndarray | None = None
) -> list[Rows]:
    """Return x_1..x_L of a whole graph, through the plan's send and update; behind each what is carried with it.

    Shapes: as gnn.oracles.oracle.forward; results float32.
    """
    weight = np.ones(len(src), np.float32) if weight is None else np.asarray(weight, np.float32)
    ctx = contexts(len(x), src, dst, weight)
    rows = np.ascontiguousarray(x, np.float32)
    outputs = []
    for layer in plan.layers:
        sent = layer.send(rows, ctx)
        own = sent[:, : layer.message_width] if layer.self_is_message else sent[:, layer.message_width :]
        rows = layer.update(aggregate(layer, sent, src, dst, weight), np.ascontiguousarray(own), ctx)
        outputs.append(rows)
    return outputs


def aggregate(layer: LayerPlan, sent: Rows, src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> Rows:
    """Return the synopsis of every vertex's messages, of shape (n, synopsis_width)."""
    if layer.skip_loops:
        edges = src != dst
        src, dst, weight = src[edges], dst[edges], weight[edges]
    targets = sent[:, : layer.message_width]
    messages = targets[src]
    if layer.weighted:
        messages = messages * weight[:, None]
    return layer.synopsis.whole(messages, dst, targets)
