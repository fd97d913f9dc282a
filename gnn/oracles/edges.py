"""The edges of a graph as the full pass reads them: sorted by destination, whatever is merged there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.schema import EdgeValues

Array = np.ndarray

# small enough that malloc takes arrays of such rows from its heap, which costs no page faults
_CHUNK_EDGES, _CHUNK_VERTICES = 1 << 14, 1 << 14
_SUM, _MAX, _MIN = 0, 1, 2
_GATHERED = {"sum": _SUM, "max": _MAX, "min": _MIN}


class SortedEdges:
    """The edges of a graph, sorted by destination, with their number of vertices.

    `passed`, if set, is called with the number of vertices that `pieces` has passed.

    Shapes: src, dst (e,) int64 vertex numbers; values of e edges.
    """

    passed: Callable[[int], None] | None = None

    def __init__(self, vertices: int, src: Array, dst: Array, values: EdgeValues) -> None:
        """Sort the edges by destination; ties keep their order."""
        if (dst[1:] < dst[:-1]).any():
            order = np.argsort(dst, kind="stable")
            src, dst, values = src[order], dst[order], values[order]
        self.vertices, self.src, self.dst, self.values = vertices, src, dst, values

    def sum_at_destinations(self, x: Array, factor: Array | None) -> Array:
        """Return for each vertex the sum of (factor *) x[src] over its in-edges, 0 if it has none."""
        out = np.zeros((self.vertices, x.shape[1]), x.dtype)
        starts = np.flatnonzero(np.r_[True, self.dst[1:] != self.dst[:-1]]) if len(self.dst) else np.empty(0, np.int64)
        ends = np.r_[starts[1:], len(self.dst)]
        first = 0
        while first < len(starts):  # whole destinations, about _CHUNK_EDGES edges at a time
            last = max(first + 1, int(np.searchsorted(ends, starts[first] + _CHUNK_EDGES, side="right")))
            here = slice(starts[first], ends[last - 1])
            messages = x[self.src[here]]
            if factor is not None:
                messages = messages * factor[here, None]
            at = starts[first:last]
            out[self.dst[at]] = np.add.reduceat(messages, at - starts[first], axis=0)
            first = last
        return out

    def mean(self, x: Array) -> Array:
        """Return for each vertex the mean of x[src] over its in-edges, 0 if it has none."""
        return self.sum_at_destinations(x, None) / np.maximum(self.count(), 1)[:, None]

    def variance(self, x: Array) -> Array:
        """Return for each vertex the variance of x[src] over its in-edges, 0 if it has none; never below 0."""
        mean = self.mean(x)
        variance = self.mean(x * x) - mean * mean
        return np.where(variance < 0, 0, variance)

    def gather(self, kind: str, x: Array, scale: Array, factor: Array | None) -> tuple[Array, Array, Array]:
        """Return three aggregates at once, none of which makes an array by edge.

        They are the sum, max or min of factor * x[src]; of its magnitude the sum, or the largest; and of factor *
        scale[src] the root of the sum of its squares, or the largest. All are 0 without in-edges.

        Shapes: x, scale (n, width); factor (e,), 1 by default; results (vertices, width) float64
        """
        out, size, through = (np.zeros((self.vertices, x.shape[1])) for _ in range(3))
        factor = np.ones(1) if factor is None else factor.astype(np.float64, copy=False)
        if not scale.strides[0]:  # one row that stands for all
            scale = scale[:1]
        how = _GATHERED[kind]
        x, scale = np.ascontiguousarray(x), np.ascontiguousarray(scale)
        _gather(how, x, scale, self.src, self._ends(), np.ascontiguousarray(factor), out, size, through)
        if how == _SUM:
            np.sqrt(through, out=through)
        return out, size, through

    def _ends(self) -> Array:
        return np.append(0, np.cumsum(self.count()))

    def pieces(self) -> Iterator[tuple[slice, slice, SortedEdges]]:
        """Yield runs of vertices and their in-edges, both as slices and as edges that count destinations from there.

        For arrays by edge, which are too large for all edges at once.
        """
        ends = self._ends()
        first = 0
        while first < self.vertices or first == 0:
            enough = int(np.searchsorted(ends, ends[first] + _CHUNK_EDGES, side="right")) - 1
            last = min(self.vertices, max(first + 1, min(enough, first + _CHUNK_VERTICES)))
            here = slice(ends[first], ends[last])
            if self.passed is not None:
                self.passed(first)
            yield (
                slice(first, last),
                here,
                SortedEdges(last - first, self.src[here], self.dst[here] - first, self.values[here]),
            )
            first = last or 1

    def of_messages(self) -> SortedEdges:
        """Return the edges with a source of its own each, for rows that are by edge, in the order of these edges."""
        return SortedEdges(self.vertices, np.arange(len(self.dst)), self.dst, self.values)

    def count(self) -> Array:
        """Return the number of in-edges of each vertex."""
        return np.bincount(self.dst, minlength=self.vertices)


@kernel
def _gather(
    how: int, x: Array, scale: Array, src: Array, ends: Array, factor: Array, out: Array, size: Array, through: Array
) -> None:
    for v in range(len(ends) - 1):
        for e in range(ends[v], ends[v + 1]):
            row, times = src[e], factor[e if len(factor) > 1 else 0]
            far = row if len(scale) > 1 else 0
            for j in range(x.shape[1]):
                term, off = times * x[row, j], times * scale[far, j]
                if how == _SUM:
                    out[v, j] += term
                    size[v, j] += abs(term)
                    through[v, j] += off * off
                    continue
                is_new = term > out[v, j] if how == _MAX else term < out[v, j]
                if e == ends[v] or is_new or term != term:
                    out[v, j] = term
                for bound, value in ((size, abs(term)), (through, abs(off))):
                    if value > bound[v, j] or value != value:
                        bound[v, j] = value
