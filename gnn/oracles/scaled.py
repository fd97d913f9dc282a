"""Rows with the scales of their values, step by step: a sum, a product, an activation.

Each step makes the values, the magnitude of what was summed for them, and what comes through of the scales before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from freshet.gnn.declarations import Quantile
from freshet.gnn.oracles.all_messages import of_all, of_none
from freshet.gnn.oracles.edges import SortedEdges

Array = np.ndarray

FLOAT32_MAX = float(np.finfo(np.float32).max)
_ROWS = 1 << 14


class Scaled(NamedTuple):
    """Rows, and how large an error of 1 is in each value.

    Shapes: rows, scale (n, width) float64
    """

    rows: Array
    scale: Array


def exact(rows: Array) -> Scaled:
    """Rows that came as they are."""
    return Scaled(rows, np.broadcast_to(0.0, rows.shape))


def aggregated(kind: str | Quantile, x: Scaled, edges: SortedEdges, factor: Array | None, step: float) -> Scaled:
    """An aggregate of (factor *) the rows of the in-neighbours."""
    if kind in ("sum", "mean"):
        return gathered(x, edges, factor, kind == "mean")
    if kind == "var":
        return variance(x, edges, factor, step)
    if kind == "std":
        return activated(variance(x, edges, factor, step), lambda of: np.sqrt(np.where(of <= 1e-5, 0, of)), step)
    if isinstance(kind, Quantile) or kind == "mul":
        return _of_all(kind, x, edges, factor, step)
    if kind not in ("max", "min"):
        msg = f"the oracle knows no aggregate {kind!r}; it has sum, mean, max, min, var, std, mul and quantiles"
        raise ValueError(msg)
    rows, largest, through = edges.gather(kind, x.rows, x.scale, factor)
    # a maximum moves by no more than the message that moves most
    return Scaled(rows, known(past_range(largest) + through))


def _of_all(kind: Quantile | str, x: Scaled, edges: SortedEdges, factor: Array | None, step: float) -> Scaled:
    """Return the products or quantiles of (factor *) the rows of the in-neighbours."""
    found = []
    for _, here, part in edges.pieces():
        times = np.ones(1) if factor is None else factor[here, None]
        messages, scale = x.rows[part.src] * times, x.scale[part.src] * np.abs(times)
        count, shape = part.count(), (part.vertices, messages.shape[1])
        ends, out = np.append(0, np.cumsum(count)), Scaled(np.full(shape, of_none(kind)), np.zeros(shape))
        for v in np.flatnonzero(count):
            run = slice(ends[v], ends[v + 1])
            out.rows[v], out.scale[v] = of_all(kind, messages[run], scale[run], step)
        found.append(Scaled(out.rows, known(past_range(np.abs(out.rows)) + out.scale)))
    return stacked(found)


def variance(x: Scaled, edges: SortedEdges, factor: Array | None, step: float) -> Scaled:
    """A message that is off moves the variance by twice its distance from the mean, and by its error's square."""
    found = []
    for _, here, part in edges.pieces():
        times = np.ones(1) if factor is None else factor[here, None]
        messages, far = x.rows[part.src] * times, (x.scale + np.abs(x.rows))[part.src] * np.abs(times)
        by_edge, count = part.of_messages(), np.maximum(part.count(), 1)[:, None]
        away = messages - by_edge.mean(messages)[part.dst]
        first, second = (by_edge.sum_at_destinations(of, None) for of in ((2 * away * far) ** 2, far**2))
        size = past_range(by_edge.mean(messages**2))
        moved = np.sqrt(first) / count + step * second / count + np.where(size < np.inf, 0, np.inf)
        rows = by_edge.variance(messages)
        found.append(Scaled(rows, known(rows + moved)))
    return stacked(found)


def gathered(x: Scaled, edges: SortedEdges, factor: Array | None, mean: bool = False) -> Scaled:
    """Sums (or means) of (factor *) the rows of the in-neighbours."""
    rows, size, through = edges.gather("sum", x.rows, x.scale, factor)
    count = np.maximum(edges.count(), 1)[:, None] if mean else 1
    return Scaled(rows / count, known((past_range(size) + through) / count))


def linear(x: Scaled, weight: Array, bias: Array | None = None) -> Scaled:
    """Rows times a weight matrix, and a bias."""
    size = past_range(np.abs(x.rows) @ np.abs(weight).T)
    at = Scaled(x.rows @ weight.T, known(size + np.sqrt(x.scale**2 @ (weight**2).T)))
    return at if bias is None else with_bias(at, bias)


def multiplied(x: Scaled, factor: Array) -> Scaled:
    """Rows times constants."""
    rows = x.rows * factor
    return Scaled(rows, known(past_range(np.abs(rows)) + x.scale * np.abs(factor)))


def with_bias(x: Scaled, bias: Array) -> Scaled:
    """Rows and constants."""
    return Scaled(x.rows + bias, x.scale + np.abs(bias))


def side_by_side(parts: Sequence[Scaled]) -> Scaled:
    """Rows side by side."""
    return Scaled(*(np.concatenate(columns, axis=1) for columns in zip(*parts, strict=True)))


def stacked(parts: Sequence[Scaled]) -> Scaled:
    """Runs of rows, one after the other."""
    return Scaled(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def by_pieces(x: Scaled, edges: SortedEdges, made: Callable[[Scaled, SortedEdges], Scaled]) -> Scaled:
    """Apply `made` to runs of vertices, with their own rows and in-edges, so that temporary arrays are small."""
    parts = ((vertices, made(rows_at(x, vertices), part)) for vertices, _, part in edges.pieces())
    return _whole(edges.vertices, parts, None)


def by_rows(vertices: int, made: Callable[[slice], Scaled], into: Scaled | None = None) -> Scaled:
    """Apply `made` to runs of rows; the result replaces `into`, if that is given and has the same width."""
    runs = (slice(first, min(vertices, first + _ROWS)) for first in range(0, max(1, vertices), _ROWS))
    return _whole(vertices, ((run, made(run)) for run in runs), into)


def _whole(vertices: int, parts: Iterable[tuple[slice, Scaled]], out: Scaled | None) -> Scaled:
    for run, part in parts:
        if out is None or out.rows.shape[1] != part.rows.shape[1]:
            out = Scaled(*(np.empty((vertices, part.rows.shape[1])) for _ in part))
        out.rows[run], out.scale[run] = part
    assert out is not None
    return out


def wide(x: Scaled) -> Scaled:
    """Return the rows in float64; features stay unchanged as long as only sums read them."""
    return Scaled(x.rows.astype(np.float64, copy=False), x.scale)


def rows_at(x: Scaled, places: slice | Array) -> Scaled:
    """Some of the rows, in float64."""
    return wide(Scaled(x.rows[places], x.scale[places]))


def plus(one: Scaled, other: Scaled) -> Scaled:
    """The sum of two rows each."""
    return Scaled(one.rows + other.rows, known(np.hypot(one.scale, other.scale)))


def added(one: Scaled, other: Scaled) -> Scaled:
    """Return the sum, at the scale of both terms, which may cancel."""
    both = plus(one, other)
    return Scaled(both.rows, both.scale + np.abs(one.rows) + np.abs(other.rows))


def activated(x: Scaled, function: Callable[[Array], Array], step: float, least: float = -np.inf) -> Scaled:
    """A value by value function, whose kinks and flat ends the difference over a whole step sees.

    least: what rows from there on stay above, as sums of squares above 0.
    """
    rows, off = function(x.rows), step * x.scale
    below = np.where(x.rows >= least, np.maximum(x.rows - off, least), x.rows - off)
    change = np.maximum(np.abs(function(x.rows + off) - rows), np.abs(function(below) - rows))
    return Scaled(rows, np.where(np.isfinite(x.scale), known(past_range(np.abs(rows)) + change / step), np.inf))


def normalized(x: Scaled) -> Scaled:
    """Rows of length 1: what moves a value moves the length of its row, too."""
    length = np.maximum(np.linalg.norm(x.rows, axis=1, keepdims=True), 1e-12)
    rows = x.rows / length
    of_length = np.abs(rows) * np.linalg.norm(rows * x.scale, axis=1, keepdims=True)
    return Scaled(rows, known(np.abs(rows) + (x.scale + of_length) / length))


def past_range(size: Array) -> Array:
    """Infinity where float32 may have run over; the terms of a sum that stays below can't."""
    return np.where(size <= FLOAT32_MAX, size, np.inf)


def known(scale: Array) -> Array:
    """Scales with infinity where they are not known."""
    return np.where(np.isnan(scale), np.inf, scale)
