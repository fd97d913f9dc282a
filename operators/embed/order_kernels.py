"""Kernels that run over the whole topology: numbering ids, counting, next uses, completion scores."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.partitioner.hash_index import HashIndex, after, has_room, home_of, matches, put, row_at
from freshet.state.salt import hash_text, mix


@kernel
def follow(first: int, ends: np.ndarray, dst: np.ndarray, latest: np.ndarray, following: np.ndarray) -> None:
    """Find the next source of each edge's end, for the sources from `first` on, from the last edge backwards.

    Shapes: ends (n + 1,) int64; dst, following (m,) int32; latest (vertices,) int32, brought on.
    """
    for u in range(len(ends) - 2, -1, -1):
        for e in range(ends[u + 1] - 1, ends[u] - 1, -1):
            following[e] = latest[dst[e]]
            latest[dst[e]] = first + u


@kernel
def completion_scores(ends: np.ndarray, dst: np.ndarray, count: np.ndarray, scores: np.ndarray) -> None:
    """Mean over a source's out-edges of 1 / in-degree of the destination; -1 for one without out-edges.

    Source: ATLAS (arXiv 2605.09402) section 3.8.
    """
    for u in range(len(ends) - 1):
        total = np.float64(0)
        for e in range(ends[u], ends[u + 1]):
            total += 1.0 / np.float64(count[dst[e]])
        degree = ends[u + 1] - ends[u]
        scores[u] = total / np.float64(degree) if degree > 0 else -1.0


@kernel
def count_contexts(
    first: int,
    ends: np.ndarray,
    dst: np.ndarray,
    weight: np.ndarray,
    count: np.ndarray,
    degree: np.ndarray,
    loop: np.ndarray,
) -> None:
    """Add these sources' edges to the contexts of their destinations (see gnn.layers.base.Context)."""
    for u in range(len(ends) - 1):
        for e in range(ends[u], ends[u + 1]):
            count[dst[e]] += 1
            if dst[e] != first + u:
                degree[dst[e]] += np.float64(weight[e])
            elif np.isnan(loop[dst[e]]):
                loop[dst[e]] = weight[e]
            else:  # of several types
                loop[dst[e]] += weight[e]


@kernel
def count_sources(src: np.ndarray, counts: np.ndarray) -> None:
    """Add one to the count of each source."""
    for i in range(len(src)):
        counts[src[i]] += 1


@kernel
def number_ints(
    index: HashIndex, keys: np.ndarray, known: int, ids: np.ndarray, start: int, out: np.ndarray
) -> tuple[int, int]:
    """The number of each id from `start` on, new ones in the order of their coming.

    Returns where room ran out, or n, and how many ids are known then.
    Shapes: keys (room,) int64, the ids by number; ids (n,) int64; out (n,) int32.
    """
    for i in range(start, len(ids)):
        half = mix(index.salt, ids[i])
        at, found = home_of(index, half), np.int64(-1)
        while index.entries[at]:
            if matches(index, at, half) and keys[row_at(index, at)] == ids[i]:
                found = row_at(index, at)
                break
            at = after(index, at)
        if found < 0:
            if known == len(keys) or not has_room(index, known + 1):
                return i, known
            keys[known] = ids[i]
            put(index, half, known)
            found = np.int64(known)
            known += 1
        out[i] = found
    return len(ids), known


@kernel
def number_names(
    index: HashIndex,
    bounds: np.ndarray,
    pool: np.ndarray,
    known: int,
    offsets: np.ndarray,
    data: np.ndarray,
    start: int,
    out: np.ndarray,
) -> tuple[int, int]:
    """`number_ints` for strings: the text of number k is pool[bounds[k]:bounds[k + 1]].

    Shapes: bounds (room + 1,) int64; pool (bytes,) uint8; offsets (n + 1,) int64; data uint8.
    """
    for i in range(start, len(offsets) - 1):
        begin, end = offsets[i], offsets[i + 1]
        half = mix(index.salt, np.int64(hash_text(index.salt, data, begin, end)))
        at, found = home_of(index, half), np.int64(-1)
        while index.entries[at]:
            if matches(index, at, half):
                row = row_at(index, at)
                same = bounds[row + 1] - bounds[row] == end - begin
                for j in range(end - begin):
                    if not same:
                        break
                    same = pool[bounds[row] + j] == data[begin + j]
                if same:
                    found = row
                    break
            at = after(index, at)
        if found < 0:
            full = known + 1 == len(bounds) or bounds[known] + end - begin > len(pool)
            if full or not has_room(index, known + 1):
                return i, known
            for j in range(end - begin):
                pool[bounds[known] + j] = data[begin + j]
            bounds[known + 1] = bounds[known] + end - begin
            put(index, half, known)
            found = np.int64(known)
            known += 1
        out[i] = found
    return len(offsets) - 1, known
