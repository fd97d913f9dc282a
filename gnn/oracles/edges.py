"""The edges of a graph as the full pass reads them: sorted by destination, whatever is merged there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

Array = np.ndarray

_CHUNK_EDGES = 1 << 17


class Edges:
    """The edges of a graph, sorted by destination, with their number of vertices.

    Shapes: src, dst (e,) int64 vertex numbers; weight (e,) dtype.
    """

    def __init__(self, vertices: int, src: Array, dst: Array, weight: Array) -> None:
        """Sort the edges by destination; ties keep their order."""
        order = np.argsort(dst, kind="stable")
        self.vertices, self.src, self.dst, self.weight = vertices, src[order], dst[order], weight[order]

    def sum_at_destinations(self, x: Array, factor: Array | None) -> Array:
        """Return for each vertex the sum of (factor *) x[src] over its in-edges, 0 if it has none."""
        return self._merge_at_destinations(np.add, x, factor)

    def _merge_at_destinations(self, merge: np.ufunc, x: Array, factor: Array | None) -> Array:
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
            out[self.dst[at]] = merge.reduceat(messages, at - starts[first], axis=0)
            first = last
        return out

    def aggregate(self, kind: str, x: Array, factor: Array | None = None) -> Array:
        """Return for each vertex the aggregate of (factor *) x[src] over its in-edges, 0 if it has none.

        `kind` is sum, mean, max, min, var or std; a standard deviation up to the root of 1e-5 is 0, as in PyG.
        """
        if kind in ("var", "std"):
            mean = self.aggregate("mean", x, factor)
            of_squares = self.aggregate("mean", x * x, None if factor is None else factor * factor)
            variance = np.where(of_squares - mean * mean < 0, 0, of_squares - mean * mean)
            return variance if kind == "var" else np.sqrt(np.where(variance <= 1e-5, 0, variance))
        merged = self._merge_at_destinations({"max": np.maximum, "min": np.minimum}.get(kind, np.add), x, factor)
        if kind == "mean":
            merged /= np.maximum(self.count(), 1)[:, None]
        return merged

    def pieces(self) -> Iterator[tuple[slice, slice, Edges]]:
        """Yield runs of vertices and their in-edges, both as slices and as edges that count destinations from there.

        For what is made by edge and would be too large for all at once.
        """
        ends = np.concatenate([[0], np.cumsum(self.count())])
        first = 0
        while first < self.vertices or first == 0:
            enough = int(np.searchsorted(ends, ends[first] + _CHUNK_EDGES, side="right")) - 1
            last = min(self.vertices, max(first + 1, enough))
            here = slice(ends[first], ends[last])
            yield (
                slice(first, last),
                here,
                Edges(last - first, self.src[here], self.dst[here] - first, self.weight[here]),
            )
            first = last or 1

    def of_messages(self) -> Edges:
        """Return the edges with a source of its own each, for rows that are by edge, in the order of these edges."""
        return Edges(self.vertices, np.arange(len(self.dst)), self.dst, self.weight)

    def count(self) -> Array:
        """Return the number of in-edges of each vertex."""
        return np.bincount(self.dst, minlength=self.vertices)
