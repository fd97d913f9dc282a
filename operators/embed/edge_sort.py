"""Sorts more edges than fit in memory: dealt to buckets of neighbouring sources on disk, each then sorted by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from freshet.operators.embed.files import DiskFile
from freshet.operators.embed.memory_plan import BudgetError, sorted_bytes
from freshet.operators.embed.order_kernels import count_contexts
from freshet.operators.embed.topology import (
    COUNT,
    DEGREE,
    DST,
    LOOP,
    MORE_LOOPS,
    OFFSETS,
    OUT_COUNT,
    OUT_DEGREE,
    WEIGHT,
)
from freshet.partitioner.config import LOOP_OF_SECOND_KEY, LOOP_OF_SECOND_TYPE
from freshet.partitioner.ids import INT, STRING

EDGE = np.dtype([("src", "<i4"), ("dst", "<i4"), ("weight", "<f4"), ("etype", "<i4")])
# With keys: an integer as it is, of a text 128 bits of hash. Texts would be as long as they are, in memory too.
KEYED_EDGES = {
    "": EDGE,
    INT: np.dtype([*EDGE.descr, ("key", "<i8")]),
    STRING: np.dtype([*EDGE.descr, ("key", "<u8"), ("key_too", "<u8")]),
}
_FIELDS = len(EDGE.names or ())
BUCKETS = "buckets"
LoopTwice = Callable[[int, int], None]


class EdgeSorter:
    """Makes the topology's files of a file of edges in the order of their coming."""

    def __init__(
        self,
        folder: Path,
        vertices: int,
        bucket_edges: int,
        *,
        weighted: bool,
        out_degrees: bool = False,
        edge: np.dtype = EDGE,
    ) -> None:
        """`edge`: one of KEYED_EDGES, as the file of edges has them."""
        self._folder, self._vertices, self._weighted = folder, vertices, weighted
        self._out_degrees = out_degrees
        self._bucket_edges, self._edge = bucket_edges, edge

    def sort(
        self, raw: Path, edges: int, counts: np.ndarray, *, keep_all: bool, loop_twice: LoopTwice
    ) -> tuple[int, int]:
        """Write offsets, destinations, weights and contexts; returns how many edges are left, and loops; removes `raw`.

        Of equal (source, destination, type), and key where there are such, the last one holds, unless `keep_all`.
        `loop_twice` is called with a vertex that has self-loops of two types or keys, and the reason against that.
        Shapes: counts (vertices,) int32, edges by source
        Raises: BudgetError where parallel edges of one source are more than fit in memory.
        """
        bounds, ends = self._bounds(counts)
        self._refuse_too_many(int(np.diff(ends).max(initial=0)))
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

    def _refuse_too_many(self, most: int) -> None:
        """See that the edges of each bucket fit: without keys no source has more edges than there are vertices."""
        if self._edge is not EDGE and most > max(2 * self._bucket_edges, 1 << 16):
            needed = sorted_bytes(self._edge.itemsize) * most + 40 * self._vertices
            msg = f"one vertex has {most:,} out-edges with keys, which are sorted in {needed:,} bytes of memory"
            raise BudgetError(msg)

    def _deal(self, raw: DiskFile, edges: int, bounds: np.ndarray, ends: np.ndarray) -> DiskFile:
        size = self._edge.itemsize
        out = DiskFile(self._folder / BUCKETS, edges * size)
        filled = ends[:-1].copy()
        step = max(1, self._bucket_edges // 2)
        for begin in range(0, edges, step):
            some = raw.read(begin * size, np.empty(min(step, edges - begin), self._edge))
            bucket = np.searchsorted(bounds, some["src"], side="right") - 1
            order = np.argsort(bucket.astype(np.uint16) if len(bounds) < 1 << 16 else bucket, kind="stable")
            sizes = np.bincount(bucket, minlength=len(filled))
            some, at = some[order], 0
            for k in np.flatnonzero(sizes).tolist():
                out.write(int(filled[k]) * size, some[at : at + sizes[k]])
                filled[k] += sizes[k]
                at += sizes[k]
        raw.close()
        raw.path.unlink()
        return out

    def _write(
        self, source: DiskFile, bounds: np.ndarray, ends: np.ndarray, keep_all: bool, loop_twice: LoopTwice
    ) -> tuple[int, int]:
        edges, size = int(ends[-1]), self._edge.itemsize
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
            some = source.read(int(ends[k]) * size, np.empty(int(ends[k + 1] - ends[k]), self._edge))
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
            looped = some["src"][some["src"] == some["dst"]]
            loops += len(looped)
            if (looped[1:] == looped[:-1]).any():  # of a source they are neighbours
                more = contexts.setdefault(MORE_LOOPS, np.zeros(n, np.int32))
                more[first:last] = np.maximum(np.bincount(looped - first, minlength=last - first), 1) - 1
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


def _sorted(some: np.ndarray, keep_all: bool, loop_twice: LoopTwice) -> np.ndarray:
    """Edges by source, destination and type, of equal ones the last; the others, or all, in the order of their coming.

    With `keep_all` all are kept, and types do not count.
    """
    ends = some["src"].astype(np.uint64) << np.uint64(32) | some["dst"].astype(np.uint64)
    types = [some["etype"]] if not keep_all and some["etype"].any() else []
    keys = [] if keep_all else [some[name] for name in (some.dtype.names or ())[_FIELDS:]]
    order = np.lexsort((*keys, *types, ends)) if types or keys else np.argsort(ends, kind="stable")
    if not keep_all and len(some) > 1:
        order = order[np.append(~_are_equal(order, [ends, *types, *keys]), True)]
        if keys:  # which tell edges apart, and no more
            order.sort()
            order = order[np.lexsort((*(one[order] for one in types), ends[order]))]
        twice = np.flatnonzero(_are_equal(order, [ends]) & (some["src"] == some["dst"])[order[1:]])
        if len(twice):
            one, other = some[order[twice[0] :][:2]]
            reason = LOOP_OF_SECOND_KEY if one["etype"] == other["etype"] else LOOP_OF_SECOND_TYPE
            loop_twice(int(one["src"]), reason)
    return some[order]


def _are_equal(order: np.ndarray, columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return where rows have the values of the next one; (n - 1,) bool."""
    equal = np.ones(len(order) - 1, bool)
    for column in columns:
        values = column[order]
        equal &= values[1:] == values[:-1]
    return equal
