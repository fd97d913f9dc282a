"""The full pass of programs of messages, step by step, with the scales of their values.

Part of gnn/oracles/own_scale.py; shares no code with the plan.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshet.gnn.convs.program import (
    ArithmeticStep,
    BesideStep,
    ByHeadStep,
    ColumnsStep,
    ConstantStep,
    FunctionStep,
    ProgramStep,
    RepeatStep,
    RowsStep,
)
from freshet.gnn.declarations import Layer, MessageConv
from freshet.gnn.oracles.attention import softmax_by_head
from freshet.gnn.oracles.edges import SortedEdges
from freshet.gnn.oracles.factors import message_edges
from freshet.gnn.oracles.scaled import (
    Scaled,
    activated,
    added,
    aggregated,
    exact,
    known,
    past_range,
    rows_at,
    side_by_side,
    stacked,
)

Array = np.ndarray
Weights = dict[str, Array]
Run = Callable[[Layer, Weights, Scaled], Scaled]
"""Runs a layer of rows."""

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "neg": np.negative,
}


def message_conv(
    layer: MessageConv, weights: Weights, x: Scaled, own: Scaled, edges: SortedEdges, step: float, run: Run
) -> Scaled:
    """Return the rows after such a layer; `x` are the rows of sources, `own` those of targets."""
    found = []
    for vertices, _, part in message_edges(layer, edges).pieces():
        values = ends_of(x, own, vertices, part)
        if "weight" in layer.reads:
            values["weight"] = exact(part.values.weight.astype(np.float64)[:, None])
        if layer.edge_channels:
            values["attr"] = exact(part.values.full_attr(layer.edge_channels).astype(np.float64))
        for i, one in enumerate(layer.program):
            values[str(i)] = _Made(weights, f"program.{i}.", len(part.src), step, run).by(one, values)
        summed = summed_up(layer.aggr, layer.heads, values[layer.last], part.of_messages(), step)
        found.append(_updated(layer, weights, summed, rows_at(own, vertices), step, run))
    return stacked(found)


def _updated(layer: MessageConv, weights: Weights, summed: Scaled, own: Scaled, step: float, run: Run) -> Scaled:
    values = {"aggregate": summed, "own": own}
    for i, one in enumerate(layer.update or ()):
        values[str(i)] = _Made(weights, f"update.{i}.", len(summed.rows), step, run).by(one, values)
    return summed if layer.update is None else values[str(len(layer.update) - 1)]


def ends_of(x: Scaled, own: Scaled, vertices: slice, edges: SortedEdges) -> dict[str, Scaled]:
    """Return the rows of both ends of edges into these vertices, of `x` and of `own`."""
    return {"source": rows_at(x, edges.src), "target": rows_at(rows_at(own, vertices), edges.dst)}


def summed_up(aggr: str | tuple[str, ...], heads: int, messages: Scaled, edges: SortedEdges, step: float) -> Scaled:
    """Return the aggregates of messages, of softmax those of [scores | values]."""
    if aggr == "softmax":
        scores, values = (Scaled(*(of[:, at] for of in messages)) for at in (slice(heads), slice(heads, None)))
        return softmax_by_head(scores, values, edges, step)
    kinds = (aggr,) if isinstance(aggr, str) else aggr
    return side_by_side([aggregated(kind, messages, edges, None, step) for kind in kinds])


class _Made:
    """The rows that a step makes of edges."""

    def __init__(self, weights: Weights, prefix: str, edges: int, step: float, run: Run) -> None:
        names = (name for name in weights if name.startswith(prefix))
        self._weights = {name[len(prefix) :]: weights[name] for name in names}
        self._edges, self._step, self._run = edges, step, run

    def by(self, one: ProgramStep, values: dict[str, Scaled]) -> Scaled:
        """Return the rows of a step."""
        of = [values[name] for name in one.of]
        if isinstance(one, ColumnsStep):
            return Scaled(*(rows[:, one.begin : one.end] for rows in of[0]))
        if isinstance(one, BesideStep):
            return side_by_side(of)
        if isinstance(one, ConstantStep):
            return exact(np.tile(self._weights["value"], (self._edges, 1)))
        if isinstance(one, RowsStep):
            return self._run(one.layer, self._weights, of[0])
        if isinstance(one, RepeatStep):
            return Scaled(*(np.repeat(rows, one.times, axis=1) for rows in of[0]))
        if isinstance(one, ByHeadStep):
            return _by_head(of[0], one.heads, is_mean=one.op == "mean_columns")
        if isinstance(one, FunctionStep):
            return activated(of[0], FUNCTIONS[one.op], self._step)
        assert isinstance(one, ArithmeticStep)
        return arithmetic(one.op, of[0], of[1], self._step)


def _by_head(x: Scaled, heads: int, *, is_mean: bool) -> Scaled:
    rows, scale = (of.reshape(len(of), heads, of.shape[1] // heads) for of in x)
    size = past_range(np.abs(rows).sum(axis=2)) + np.sqrt((scale**2).sum(axis=2))
    count = rows.shape[2] if is_mean else 1
    return Scaled(rows.sum(axis=2) / count, known(size / count))


def arithmetic(op: str, one: Scaled, other: Scaled, step: float) -> Scaled:
    """Return what add, sub, mul, div, max or min makes of two arrays of rows, value by value."""
    if op in ("add", "sub"):
        both = added(one, other if op == "add" else Scaled(-other.rows, other.scale))
        return Scaled(both.rows, known(past_range(both.scale)))
    if op in ("max", "min"):  # moves by no more than the value that moves most
        of = np.maximum if op == "max" else np.minimum
        return Scaled(of(one.rows, other.rows), np.maximum(one.scale, other.scale))
    if op == "mul":
        rows = one.rows * other.rows
        off = np.abs(one.rows) * other.scale + np.abs(other.rows) * one.scale + step * one.scale * other.scale
    else:
        rows = one.rows / other.rows
        least = np.maximum(np.abs(other.rows) - step * other.scale, 0)  # a divisor that may be 0 says nothing
        off = (one.scale + np.abs(rows) * other.scale) / least
    return Scaled(rows, known(past_range(np.abs(rows)) + off))
