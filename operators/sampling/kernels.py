"""Kernels of the sampler: in-edges by vertex, samples without replacement, and numbers of vertices within a batch."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner, kernel


@kernel
def count_targets(dst: np.ndarray, ends: np.ndarray) -> None:
    """Add one to ends[d + 1] for each in-edge of d.

    Shapes: dst (m,) int64; ends (n + 1,) int64
    """
    for e in range(len(dst)):
        ends[dst[e] + 1] += 1


@kernel
def sort_by_target(src: np.ndarray, dst: np.ndarray, at: np.ndarray, sources: np.ndarray, edges: np.ndarray) -> None:
    """Put sources and numbers of edges in the order of their targets, those of one target in the order of edges.

    Shapes: src, dst (m,) int64; at (n,) int64, where each target's begin, moved on; sources, edges (m,)
    """
    for e in range(len(dst)):
        place = at[dst[e]]
        sources[place] = src[e]
        edges[place] = e
        at[dst[e]] = place + 1


@kernel
def count_sampled(ends: np.ndarray, nodes: np.ndarray, begin: int, end: int, fanout: int) -> int:
    """Return how many in-edges of nodes[begin:end] are taken: at most `fanout` of each, all where it is negative."""
    total = 0
    for i in range(begin, end):
        degree = ends[nodes[i] + 1] - ends[nodes[i]]
        total += degree if fanout < 0 else min(degree, fanout)
    return total


@kernel
def sample_in_edges(
    ends: np.ndarray,
    sources: np.ndarray,
    edges: np.ndarray,
    nodes: np.ndarray,
    begin: int,
    end: int,
    fanout: int,
    random: np.ndarray,
    taken: np.ndarray,
    slots: np.ndarray,
    found: np.ndarray,
) -> None:
    """Take min(in-degree, fanout) distinct in-edges of each of nodes[begin:end], each set of them equally likely.

    This is Floyd's algorithm: the j-th choice of k from d is below d - k + j + 1, and is d - k + j where that number
    was chosen before. It takes time of k, however large d is.
    Shapes: ends (n + 1,) int64; sources, edges (m,); random (1,) uint64; taken (a power of two, at least 2 k,) int64,
        -1 before and after; slots (k,) int64; found (3, count) int64: source, place of the target, number of the edge
    Source: Bentley, Floyd, A Sample of Brilliance (CACM 1987)
    """
    mask = len(taken) - 1
    out = 0
    for i in range(begin, end):
        first = ends[nodes[i]]
        degree = ends[nodes[i] + 1] - first
        if fanout < 0 or degree <= fanout:
            for e in range(first, first + degree):
                found[0, out] = sources[e]
                found[1, out] = i
                found[2, out] = edges[e]
                out += 1
            continue
        for k in range(fanout):
            last = degree - fanout + k
            chosen = _below(random, last + 1)
            at = _slot(taken, mask, chosen)
            if taken[at] == chosen:
                chosen = last
                at = _slot(taken, mask, chosen)
            taken[at] = chosen
            slots[k] = at
            found[0, out] = sources[first + chosen]
            found[1, out] = i
            found[2, out] = edges[first + chosen]
            out += 1
        for k in range(fanout):
            taken[slots[k]] = -1


@inner
def _slot(taken: np.ndarray, mask: int, number: int | np.int64) -> int | np.int64:
    """Return where a number stands in a table, or the free place where it belongs."""
    at = number & mask
    while taken[at] != -1 and taken[at] != number:
        at = (at + 1) & mask
    return at


@inner
def _below(random: np.ndarray, bound: int) -> np.int64:
    """Return an integer from 0 to bound - 1, each equally likely."""
    limit = np.uint64(bound)
    number = _next(random)
    if number < limit:  # else it is not among the first 2^64 modulo bound, which are one too many
        least = (np.uint64(0) - limit) % limit
        while number < least:
            number = _next(random)
    return np.int64(number % limit)


@inner
def _next(random: np.ndarray) -> np.uint64:
    """Return 64 random bits: SplitMix64."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    return _mixed(random[0])


@inner
def _mixed(z: np.uint64) -> np.uint64:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def mix_in(random: np.ndarray, nodes: np.ndarray) -> None:
    """Have random numbers depend on vertices and their order.

    Shapes: random (1,) uint64; nodes (n,) int64
    """
    for i in range(len(nodes)):
        random[0] = _mixed(random[0] + np.uint64(nodes[i]) + np.uint64(0x9E3779B97F4A7C15))


@kernel
def number_sources(sources: np.ndarray, nodes: np.ndarray, count: int, places: np.ndarray) -> int:
    """Replace vertices by their places among `nodes`; new ones are added there. Returns how many there are then.

    Shapes: sources (edges,) int64; nodes (room,) int64; places (vertices,), -1 for those that are not there
    """
    for e in range(len(sources)):
        vertex = sources[e]
        if places[vertex] < 0:
            places[vertex] = count
            nodes[count] = vertex
            count += 1
        sources[e] = places[vertex]
    return count
