"""The full pass of layers whose messages add up or multiply terms of an edge's attributes, with their scales.

Part of gnn/oracles/own_scale.py; shares no code with the plan.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshet.gnn.declarations import CGConv, GENConv, GMMConv, NNConv
from freshet.gnn.oracles.attention import softmax_by_channel
from freshet.gnn.oracles.edges import SortedEdges
from freshet.gnn.oracles.scaled import (
    Scaled,
    activated,
    added,
    aggregated,
    exact,
    known,
    linear,
    multiplied,
    plus,
    rows_at,
    stacked,
    with_bias,
)

Array = np.ndarray
Weights = dict[str, Array]
Run = Callable[[str, Scaled], Scaled]
"""Runs the dense layers of a conv whose weights' names begin so."""


def attributed_conv(
    layer: CGConv | GENConv | GMMConv | NNConv, weights: Weights, x: Scaled, edges: SortedEdges, step: float, run: Run
) -> Scaled:
    """Return the rows after such a layer."""
    source, target = _terms(layer, weights, x)
    found = []
    for vertices, _, part in edges.pieces():
        ends = rows_at(source, part.src), rows_at(rows_at(target, vertices), part.dst)
        attr = exact(part.values.full_attr(layer.edge.attributes).astype(np.float64)) if layer.edge.attributes else None
        if isinstance(layer, CGConv):
            messages = _gated(layer, weights, ends, attr, step)
        elif isinstance(layer, GENConv):
            messages = _positive(layer, weights, ends[0], attr, step)
        else:
            assert attr is not None
            messages = _by_matrices(layer, weights, ends[0], attr, run)
        if isinstance(layer, GENConv) and layer.aggr == "softmax":
            at = softmax_by_channel(messages, layer.t, part.of_messages(), step)
        else:
            at = aggregated(layer.aggr, messages, part.of_messages(), None, step)
        if isinstance(layer, CGConv) and layer.batch_norm:
            at = with_bias(multiplied(at, weights["bn.scale"]), weights["bn.shift"])
        found.append(_ended(layer, weights, at, rows_at(target, vertices), rows_at(x, vertices)))
    out = stacked(found)
    return run("nn.", out) if isinstance(layer, GENConv) else out


def _terms(layer: CGConv | GENConv | GMMConv | NNConv, weights: Weights, x: Scaled) -> tuple[Scaled, Scaled]:
    """Return what messages read of sources and of targets."""
    if isinstance(layer, GMMConv):
        return linear(x, weights["g"].T), x
    if isinstance(layer, GENConv) and "lin_src.weight" in weights:
        made = (linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias")) for name in ("lin_src", "lin_dst"))
        return next(made), next(made)
    return x, x


def _product(one: Scaled, other: Scaled) -> Scaled:
    rows = one.rows * other.rows
    return Scaled(rows, known(np.abs(rows) + np.hypot(one.rows * other.scale, one.scale * other.rows)))


def _gated(layer: CGConv, weights: Weights, ends: tuple[Scaled, Scaled], attr: Scaled | None, step: float) -> Scaled:
    width = layer.in_channels
    made = []
    for name in ("lin_f", "lin_s"):
        weight = weights[f"{name}.weight"]
        opened = linear(ends[1], weight[:, :width], weights.get(f"{name}.bias"))
        opened = added(opened, linear(ends[0], weight[:, width : 2 * width]))
        made.append(opened if attr is None else added(opened, linear(attr, weight[:, 2 * width :])))
    gate = activated(made[0], lambda rows: 1 / (1 + np.exp(-rows)), step)
    return _product(gate, activated(made[1], lambda rows: np.logaddexp(0, rows), step))


def _positive(layer: GENConv, weights: Weights, source: Scaled, attr: Scaled | None, step: float) -> Scaled:
    opened = source
    if attr is not None:
        opened = added(source, linear(attr, weights["lin_edge.weight"], weights.get("lin_edge.bias")))
    at = activated(opened, lambda rows: np.maximum(rows, 0), step)
    return Scaled(at.rows + layer.eps, at.scale + layer.eps)


def _by_matrices(layer: GMMConv | NNConv, weights: Weights, source: Scaled, attr: Scaled, run: Run) -> Scaled:
    """The source's terms times the numbers that an edge has: a matrix, or a weight for each kernel."""
    if isinstance(layer, NNConv):
        shape = len(attr.rows), layer.in_channels, layer.out_channels
        matrix = Scaled(*(of.reshape(shape) for of in run("nn.", attr)))
        terms = _product(Scaled(*(of[:, :, None] for of in source)), matrix)
    else:
        apart = attr.rows[:, None, :] - weights["mu"][None]
        weight = np.exp((-0.5 * apart**2 / (1e-15 + weights["sigma"] ** 2)).sum(axis=2))[:, :, None]
        shape = len(attr.rows), layer.kernels, layer.out_channels
        terms = _product(Scaled(*(of.reshape(shape) for of in source)), exact(weight))
    scale = np.abs(terms.rows).sum(axis=1) + np.sqrt((terms.scale**2).sum(axis=1))
    return Scaled(terms.rows.sum(axis=1), known(scale))


def _ended(
    layer: CGConv | GENConv | GMMConv | NNConv, weights: Weights, at: Scaled, target: Scaled, mine: Scaled
) -> Scaled:
    """The aggregate with what is made of the vertex's own row."""
    if isinstance(layer, CGConv | GENConv):
        return added(at, mine if isinstance(layer, CGConv) else target)
    name = "root.weight" if isinstance(layer, GMMConv) else "lin.weight"
    at = plus(at, linear(mine, weights[name])) if name in weights else at
    return with_bias(at, weights["bias"]) if layer.bias else at
