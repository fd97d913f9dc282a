"""Sorts more edges than fit in memory: dealt to buckets of neighbouring sources on disk, each then sorted by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from freshet.operators.embed.files import DiskFile
from freshet.operators.embed.order_kernels import count_contexts
from freshet.operators.embed.topology import COUNT, DEGREE, DST, LOOP, OFFSETS, OUT_COUNT, OUT_DEGREE, WEIGHT

EDGE = np.dtype([("src", "<i4"), ("dst", "<i4"), ("weight", "<f4"), ("etype", "<i4")])
BUCKETS = "buckets"


class EdgeSorter:
    """Makes the topology's files of a file of edges in the order of their coming."""

    def __init__(
        self, folder: Path, vertices: int, bucket_edges: int, *, weighted: bool, out_degrees: bool = False
    ) -> None:
        self._folder, self._vertices, self._weighted = folder, vertices, weighted
        self._out_degrees = out_degrees
        self._bucket_edges = bucket_edges

    def sort(
        self, raw: Path, edges: int, counts: np.ndarray, *, keep_all: bool, loop_twice: Callable[[int], None]
    ) -> tuple[int, int]:
        """Write offsets, destinations, weights and contexts; returns how many edges are left, and loops; removes `raw`.

        Of equal (source, destination, type) the last one holds, unless `keep_all`. `loop_twice` is called with a vertex
        that has self-loops of two types.
        Shapes: counts (vertices,) int32, edges by source
        """
        bounds, ends = self._bounds(counts)
        source = DiskFile(raw)
        if len(bounds) > 2:
            source = self._deal(source, edges, bounds, ends)
        left = self._write(source, bounds, ends, keep_all, loop_twice)
        source.close()
        for path in (raw, self._folder / BUCKETS):
            path.unlink(missing_ok=True)
        return left

    def _bounds(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first sources of the buckets and where their edges begin, both with the end."""
        total = np.cumsum(counts, dtype=np.int64)
        bounds, begun = [0], 0
        while bounds[-1] < self._vertices:
            last = int(np.searchsorted(total, begun + self._bucket_edges, side="right"))
            bounds.append(max(last, bounds[-1] + 1))
            begun = int(total[bounds[-1] - 1])
        ends = [0, *(int(total[bound - 1]) for bound in bounds[1:])]
        return np.array(bounds, np.int64), np.array(ends, np.int64)

    def _deal(self, raw: DiskFile, edges: int, bounds: np.ndarray, ends: np.ndarray) -> DiskFile:
        out = DiskFile(self._folder / BUCKETS, edges * EDGE.itemsize)
        filled = ends[:-1].copy()
        step = max(1, self._bucket_edges // 2)
        for begin in range(0, edges, step):
            some = raw.read(begin * EDGE.itemsize, np.empty(min(step, edges - begin), EDGE))
            bucket = np.searchsorted(bounds, some["src"], side="right") - 1
            order = np.argsort(bucket.astype(np.uint16) if len(bounds) < 1 << 16 else bucket, kind="stable")
            sizes = np.bincount(bucket, minlength=len(filled))
            some, at = some[order], 0
            for k in np.flatnonzero(sizes).tolist():
                out.write(int(filled[k]) * EDGE.itemsize, some[at : at + sizes[k]])
                filled[k] += sizes[k]
                at += sizes[k]
        raw.close()
        raw.path.unlink()
        return out

    def _write(
        self, source: DiskFile, bounds: np.ndarray, ends: np.ndarray, keep_all: bool, loop_twice: Callable[[int], None]
    ) -> tuple[int, int]:
        edges = int(ends[-1])
        offsets = DiskFile(self._folder / OFFSETS, 8 * (self._vertices + 1))
        dst = DiskFile(self._folder / DST, 4 * edges)
        weight = DiskFile(self._folder / WEIGHT, 4 * edges) if self._weighted else None
        n = self._vertices
        count, degree, loop = np.zeros(n, np.int32), np.zeros(n, np.float64), np.full(n, np.nan, np.float32)
        contexts: dict[str, np.ndarray] = {COUNT: count, DEGREE: degree, LOOP: loop}
        if self._out_degrees:
            contexts |= {OUT_COUNT: np.zeros(n, np.int32), OUT_DEGREE: np.zeros(n, np.float64)}
        done = loops = 0
        for k in range(len(bounds) - 1):
            some = source.read(int(ends[k]) * EDGE.itemsize, np.empty(int(ends[k + 1] - ends[k]), EDGE))
            some = _sorted(some, keep_all, loop_twice)
            first, last = int(bounds[k]), int(bounds[k + 1])
            here = np.zeros(last - first + 1, np.int64)
            np.cumsum(np.bincount(some["src"] - first, minlength=last - first), out=here[1:])
            to, weights = np.ascontiguousarray(some["dst"]), np.ascontiguousarray(some["weight"])
            count_contexts(first, here, to, weights, count, degree, loop)
            if self._out_degrees:
                others = some[some["src"] != some["dst"]]
                src = others["src"] - first
                contexts[OUT_COUNT][first:last] = np.bincount(src, minlength=last - first)
                contexts[OUT_DEGREE][first:last] = np.bincount(src, others["weight"], minlength=last - first)
            offsets.write(8 * first, here + done)
            dst.write(4 * done, to)
            if weight is not None:
                weight.write(4 * done, weights)
            done += len(some)
            loops += int(np.count_nonzero(some["src"] == some["dst"]))
        if not n:
            offsets.write(0, np.zeros(1, np.int64))
        for file in (offsets, dst, weight):
            if file is not None:
                file.sync()
                file.close()
        for name, values in contexts.items():
            file = DiskFile(self._folder / name, values.nbytes)
            file.write(0, values)
            file.sync()
            file.close()
        return done, loops


def _sorted(some: np.ndarray, keep_all: bool, loop_twice: Callable[[int], None]) -> np.ndarray:
    """Edges by source, destination and type, of equal ones the last; with `keep_all` as they come."""
    key = some["src"].astype(np.uint64) << np.uint64(32) | some["dst"].astype(np.uint64)
    if keep_all or not some["etype"].any():
        order = np.argsort(key, kind="stable")
    else:
        order = np.lexsort((some["etype"], key))
    key, some = key[order], some[order]
    if keep_all or len(some) < 2:
        return some
    same_ends = key[1:] == key[:-1]
    same = same_ends & (some["etype"][1:] == some["etype"][:-1])
    twice = np.flatnonzero(same_ends & ~same & (some["src"][1:] == some["dst"][1:]))
    if len(twice):
        loop_twice(int(some["src"][twice[0]]))
    return some[~np.append(same, False)]
