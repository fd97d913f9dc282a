"""Masters of a graph that is there as a whole, as a snapshot is: METIS, with few edges between parts of equal work.

A stream places each vertex by the little that is known when it comes, a snapshot need not: on graphs with communities
a quarter of the edges are cut that the streaming rules cut, and new edges between old vertices mostly stay inside a
part, too (docs/design/parts.md has figures). Later vertices are placed by the streaming rules.

Source: RIPPLE++ section 4 begins its streams like that; Karypis and Kumar, METIS.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

EDGES_MAX = 1 << 23  # larger graphs come as a stream
EDGE_BYTES = 270  # of memory at most, for a time: on random graphs, which METIS finds nothing to merge in
VERTICES_A_PART_MIN = 16  # where there are fewer, parts could stay empty


def whole_masters(src: np.ndarray, dst: np.ndarray, vertices: int, parts: int) -> np.ndarray | None:
    """The part of each vertex, -1 for those without a neighbour; None where the graph is to be placed as a stream.

    The work of a part is taken to be that of its vertices and of their in-edges, which live there. The same graph
    gives the same parts.

    Shapes: src, dst (edges,) integers, by vertex; result (vertices,) int32.
    """
    if len(src) > EDGES_MAX:
        return None
    adjacent = _neighbours(src, dst, vertices)
    degree = np.bincount(adjacent // vertices, minlength=vertices)
    linked = np.flatnonzero(degree)
    if len(linked) < VERTICES_A_PART_MIN * parts:
        return None
    import pymetis

    index = pymetis.zero_copy_dtype()
    number = np.cumsum(degree > 0, dtype=index) - 1
    starts = np.zeros(len(linked) + 1, index)
    np.cumsum(degree[linked], out=starts[1:])
    in_edges = np.bincount(dst, minlength=vertices)[linked]
    work = (in_edges + 1 + len(src) // len(linked)).astype(index)
    graph = pymetis.CSRAdjacency(starts, number[adjacent % vertices])
    del adjacent
    masters = np.full(vertices, -1, np.int32)
    with _metis_stops():
        masters[linked] = pymetis.part_graph(parts, graph, vweights=work).vertex_part
    return masters


@contextmanager
def _metis_stops() -> Iterator[None]:
    """Have a SIGTERM that comes while METIS runs stop this process as at any other time.

    METIS reports its own errors by SIGTERM and catches it, so a stop looks like an error of METIS. Its handler is left
    by a jump: the signal is still blocked.
    """
    try:
        yield
    except RuntimeError:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        signal.raise_signal(signal.SIGTERM)
        raise


def _neighbours(src: np.ndarray, dst: np.ndarray, vertices: int) -> np.ndarray:
    """Every pair of neighbours, both ways, as vertex * vertices + neighbour: in order, each once, no loops; int64."""
    apart = src != dst
    src, dst = src[apart].astype(np.int64), dst[apart].astype(np.int64)
    pairs = np.concatenate([src * vertices + dst, dst * vertices + src])
    pairs.sort()
    return pairs[np.append(True, pairs[1:] != pairs[:-1])] if pairs.size else pairs
