"""The full pass of messages that are programs or a user's functions, with the scales of their values.

What a written function sums inside is not known, so the scale of a value is how far it moves when all that the function
reads moves by its own size and error at once, in one direction or the other: by the root of the mean square of a few
trials.

Part of gnn/oracles/own_scale.py; shares no code with the plan but the order of steps (gnn/convs/evaluator.py), and what
calls the user's functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from freshet.gnn.convs.evaluator import Evaluator
from freshet.gnn.convs.program import ProgramStep
from freshet.gnn.declarations import Layer, MessageConv, OwnLayer, Quantile
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
from freshet.gnn.own.aggregates import Redone, SoftmaxOf, SumOf
from freshet.gnn.own.loading import layer_class
from freshet.gnn.own.running import RunningLayer

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
    found: list[Scaled] = []
    message = evaluator(layer.program, weights, "program.", step, run)
    update = evaluator(layer.update or (), weights, "update.", step, run)
    for vertices, _, part in message_edges(layer, edges).pieces():
        values = ends_of(x, own, vertices, part)
        if "weight" in layer.reads:
            values["weight"] = exact(part.values.weight.astype(np.float64)[:, None])
        if layer.edge_channels:
            values["attr"] = exact(part.values.full_attr(layer.edge_channels).astype(np.float64))
        if layer.self_columns is not None:
            values["attr"] = _with_loops(values["attr"], rows_at(own, vertices), layer.self_columns, part)
        (messages,) = message.of(values, len(part.src))
        if layer.self_messages is not None:
            messages = _with_loops(messages, rows_at(own, vertices), layer.self_messages, part)
        summed = summed_up(layer.kinds, layer.heads, messages, part.of_messages(), step)
        given = {"aggregate": summed, "own": rows_at(own, vertices)}
        found += update.of(given, len(summed.rows)) if layer.update else [summed]
    return stacked(found)


def _with_loops(of_edges: Scaled, own: Scaled, first: int, edges: SortedEdges) -> Scaled:
    """Return rows of edges with those of added self-loops, each the last of its vertex: columns of the own row."""
    last, made = np.cumsum(edges.count()) - 1, Scaled(*map(np.array, of_edges))
    for whole, of_vertices in zip(made, own, strict=True):
        whole[last] = of_vertices[:, first : first + whole.shape[1]]
    return made


def evaluator(
    program: Sequence[ProgramStep], weights: Weights, prefix: str, step: float, run: Run
) -> Evaluator[Scaled]:
    """Return what runs a program on values with their scales; `prefix` is that of its weights' names."""
    of_program = {name.removeprefix(prefix): of for name, of in weights.items() if name.startswith(prefix)}
    last = [str(len(program) - 1)] if program else []
    return Evaluator(program, _WithScales(of_program, step, run), last)


def ends_of(x: Scaled, own: Scaled, vertices: slice, edges: SortedEdges) -> dict[str, Scaled]:
    """Return the rows of both ends of edges into these vertices, of `x` and of `own`."""
    return {"source": rows_at(x, edges.src), "target": rows_at(rows_at(own, vertices), edges.dst)}


def summed_up(kinds: Sequence[str | Quantile], heads: int, messages: Scaled, edges: SortedEdges, step: float) -> Scaled:
    """Return the aggregates of messages, of softmax those of [scores | values]."""
    if "softmax" in kinds:
        scores, values = (Scaled(*(of[:, at] for of in messages)) for at in (slice(heads), slice(heads, None)))
        return softmax_by_head(scores, values, edges, step)
    return side_by_side([aggregated(kind, messages, edges, None, step) for kind in kinds])


class _WithScales:
    """Algebra of values with their scales."""

    def __init__(self, weights: Weights, step: float, run: Run) -> None:
        self._weights, self._step, self._run = weights, step, run

    def moved(self, how: Callable[[Sequence[np.ndarray]], np.ndarray], of: Sequence[Scaled]) -> Scaled:
        return Scaled(*map(how, zip(*of, strict=True)))

    def constant(self, name: str) -> Callable[[int], Scaled]:
        return lambda count: exact(np.tile(self._weights[f"{name}.value"], (count, 1)))

    def by_head(self, of: Scaled, heads: int, *, is_mean: bool) -> Scaled:
        rows, scale = (one.reshape(len(one), heads, one.shape[1] // heads) for one in of)
        size = past_range(np.abs(rows).sum(axis=2)) + np.sqrt((scale**2).sum(axis=2))
        count = rows.shape[2] if is_mean else 1
        return Scaled(rows.sum(axis=2) / count, known(size / count))

    def by_value(self, op: str, of: Sequence[Scaled]) -> Scaled:
        if op in FUNCTIONS:
            return activated(of[0], FUNCTIONS[op], self._step, 0.0 if op == "sqrt" else -np.inf)
        if op == "where":
            return where(*of)
        return arithmetic(op, of[0], of[1], self._step)

    def layer(self, name: str, layer: Layer) -> Callable[[Scaled], Scaled]:
        begin = f"{name}."
        weights = {of.removeprefix(begin): w for of, w in self._weights.items() if of.startswith(begin)}
        return lambda of: self._run(layer, weights, of)


def arithmetic(op: str, one: Scaled, other: Scaled, step: float) -> Scaled:
    """Return what arithmetic or a comparison makes of two arrays of rows, value by value."""
    if op in ("add", "sub"):
        both = added(one, other if op == "add" else Scaled(-other.rows, other.scale))
        return Scaled(both.rows, known(past_range(both.scale)))
    if op in ("max", "min"):  # moves by no more than the value that moves most
        of = np.maximum if op == "max" else np.minimum
        return Scaled(of(one.rows, other.rows), np.maximum(one.scale, other.scale))
    if op in ("greater", "equal"):  # values that may be on either side say nothing
        rows = (np.greater if op == "greater" else np.equal)(one.rows, other.rows).astype(np.float64)
        near = np.abs(one.rows - other.rows) < step * (one.scale + other.scale)
        return Scaled(rows, np.where(near, np.inf, 0.0))
    if op == "atan2":
        return _angle(one, other, step)
    if op == "mul":
        rows = one.rows * other.rows
        off = np.abs(one.rows) * other.scale + np.abs(other.rows) * one.scale + step * one.scale * other.scale
    else:
        rows = one.rows / other.rows
        least = np.maximum(np.abs(other.rows) - step * other.scale, 0)  # a divisor that may be 0 says nothing
        off = (one.scale + np.abs(rows) * other.scale) / least
    return Scaled(rows, known(past_range(np.abs(rows)) + off))


def _angle(one: Scaled, other: Scaled, step: float) -> Scaled:
    """Return the angles of points; one that may be the origin says nothing, unless it is where both rows are 0.

    An angle of half a turn is as near to one of minus half a turn.
    """
    rows, length = np.arctan2(one.rows, other.rows), np.hypot(one.rows, other.rows)
    least = np.maximum(length - step * np.hypot(one.scale, other.scale), 0)
    off = (np.abs(one.rows) * other.scale + np.abs(other.rows) * one.scale) / (least * length)
    turns = (other.rows < 0) & (np.abs(one.rows) <= step * one.scale) & (one.scale > 0)
    return Scaled(rows, known(np.where(length == 0, 0.0, np.where(turns, np.inf, np.abs(rows) + off))))


def where(mask: Scaled, one: Scaled, other: Scaled) -> Scaled:
    """Return the one where a mask is not 0, else the other."""
    rows, scale = (np.where(mask.rows != 0, a, b) for a, b in zip(one, other, strict=True))
    return Scaled(rows, np.where(np.isinf(mask.scale), np.inf, scale))


_TRIALS, _SAFELY = 6, 2.0


def own_layer(
    layer: OwnLayer, weights: dict[str, Array], x: Scaled, own: Scaled, edges: SortedEdges, step: float
) -> Scaled:
    """Return the rows after a written layer; `x` are the rows of sources, `own` those of targets."""
    code, widths = layer_class(layer.code, layer.source), (layer.in_channels, layer.edge_channels)
    running = RunningLayer(code, weights, layer.options, *widths, layer.target_channels)
    found = []
    for vertices, _, part in edges.pieces():
        mine, sources = rows_at(own, vertices), rows_at(x, part.src)
        none = exact(np.empty((len(part.src), 0)))
        source = moved(running.source, [sources], step)
        target = rows_at(moved(running.target, [mine], step), part.dst) if running.widths.target else none
        weight = exact(part.values.weight.astype(np.float64)[:, None])
        attr = exact(part.values.full_attr(layer.edge_channels).astype(np.float64)) if layer.edge_channels else none
        messages = moved(running.message, [source, target, weight, attr], step)
        aggregate = _aggregate(running, messages, part.of_messages(), step)
        read = moved(running.own, [mine], step) if running.widths.own else exact(mine.rows[:, :0])
        found.append(moved(running.update, [aggregate, read], step))
    return stacked(found)


def _aggregate(running: RunningLayer, messages: Scaled, edges: SortedEdges, step: float) -> Scaled:
    aggr = running.aggregate
    if isinstance(aggr, Redone):
        return moved(lambda rows: _redone(running, rows, edges), [messages], step)
    if isinstance(aggr, SoftmaxOf):
        messages = Scaled(*(np.roll(of, aggr.heads, axis=1) for of in messages))  # scores first
        return summed_up(["softmax"], aggr.heads, messages, edges, step)
    assert isinstance(aggr, SumOf)  # there is no other kind
    return summed_up([aggr.kind], 1, messages, edges, step)


def _redone(running: RunningLayer, messages: Array, edges: SortedEdges) -> Array:
    """Fold the messages of each vertex."""
    out = np.zeros((edges.vertices, running.widths.aggregate))
    ends = np.cumsum(np.bincount(edges.dst, minlength=edges.vertices))
    some = np.flatnonzero(np.diff(ends, prepend=0))
    if some.size:
        states = [running.fold(messages[ends[v - 1] if v else 0 : ends[v]]) for v in some]
        out[some] = running.read(np.stack(states))
    return out


def moved(function: Callable[..., Array], given: Sequence[Scaled], step: float) -> Scaled:
    """Return the rows of a function of rows, and how far they move."""
    rows = function(*(one.rows for one in given))
    total, random = np.zeros(rows.shape), np.random.default_rng(0)
    for _ in range(_TRIALS):
        sizes = [step * (one.scale + np.abs(one.rows)) for one in given]
        away = [one.rows + size * random.choice((-1, 1), size.shape) for one, size in zip(given, sizes, strict=True)]
        total += (function(*away) - rows) ** 2
    change = _SAFELY * np.sqrt(total / _TRIALS) / step
    return Scaled(rows, known(past_range(np.abs(rows)) + change))
