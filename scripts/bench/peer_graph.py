"""The graph and the stream of `peers.py` and of the papers' tables, and the graph as events go by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from scripts.bench.arxiv_stream import WIDTH, make_edges, make_stream

ADD, DELETE, FEATURES = range(3)


class Workload:
    """A graph and a stream: `op` and `arg` (an edge, or a vertex with new features, the row `b` of `pool`).

    weights: whether edges have some that are not 1. attributes: their width, of each edge. only_edges: half of the
    events add an edge, half delete one.
    """

    def __init__(
        self,
        vertices: int,
        edges: int,
        events: int,
        width: int = WIDTH,
        *,
        weights: bool = False,
        attributes: int = 0,
        only_edges: bool = False,
    ) -> None:
        rng = np.random.default_rng(7)
        self.n, self.m0, self.d = vertices, int(edges * 0.8), width
        self.src, self.dst = make_edges(vertices, edges, rng)
        stream = _edges_alone if only_edges else make_stream
        self.op, self.arg = stream(edges, self.m0, events, rng)
        self.x0 = rng.standard_normal((vertices, width), dtype=np.float32) * np.float32(0.5)
        self.pool = rng.standard_normal((1024, width), dtype=np.float32) * np.float32(0.5)
        self.weight = rng.uniform(0.5, 1.5, edges).astype(np.float32) if weights else None
        self.attr = rng.random((edges, attributes), dtype=np.float32) if attributes else None
        rows = self.op == FEATURES
        self.arg = np.where(rows, rng.integers(0, vertices, events), self.arg)
        edge = np.where(rows, 0, self.arg)
        self.a = np.where(rows, self.arg, self.src[edge])
        self.b = np.where(rows, rng.integers(0, len(self.pool), events), self.dst[edge])

    def values_of(self, edges: np.ndarray) -> list[Tensor]:
        """Return the weights or attributes of these edges, if there are any."""
        return [torch.from_numpy(one[edges]) for one in (self.weight, self.attr) if one is not None]


class Change(NamedTuple):
    """Changes of an epoch, without those that cancel: edges by number, vertices with new features."""

    added: np.ndarray
    deleted: np.ndarray
    vertices: np.ndarray
    rows: np.ndarray


class Graph:
    """The graph of a workload as its events go by."""

    def __init__(self, workload: Workload) -> None:
        w = self.w = workload
        self.x = w.x0.copy()
        self.present = np.arange(len(w.src)) < w.m0
        self.by_dst, self.in_first = _lists(w.dst, w.n)
        self.by_src, self.out_first = _lists(w.src, w.n)

    def apply(self, first: int, end: int) -> Change:
        """Apply these events; return what has changed."""
        w, op, arg = self.w, self.w.op[first:end], self.w.arg[first:end]
        edges, last = _last(arg, op != FEATURES)
        now = op[last] == ADD
        changed = self.present[edges] != now
        vertices, newest = _last(arg, op == FEATURES)
        rows = w.pool[w.b[first:end][newest]]
        self.present[edges] = now
        self.x[vertices] = rows
        return Change(edges[changed & now], edges[changed & ~now], vertices, rows)

    def in_edges(self, vertices: np.ndarray) -> np.ndarray:
        """Return the numbers of edges into these vertices, in their order."""
        found = self.by_dst[_ranges(self.in_first, vertices)]
        return found[self.present[found]]

    def out_edges(self, vertices: np.ndarray) -> np.ndarray:
        """Return the numbers of edges out of these vertices, in their order."""
        found = self.by_src[_ranges(self.out_first, vertices)]
        return found[self.present[found]]

    def affected(self, change: Change, layers: int) -> list[np.ndarray]:
        """Return the vertices whose rows of each layer a change may reach."""
        ends = self.w.dst[np.concatenate([change.added, change.deleted])]
        found, reached = list[np.ndarray](), change.vertices
        for _ in range(layers):
            reached = np.unique(np.concatenate([ends, reached, self.w.dst[self.out_edges(reached)]]))
            found.append(reached)
        return found


def _edges_alone(edges: int, present: int, events: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the operation and the edge of each event: half are new edges, half are deleted, and none comes twice.

    Raises: ValueError if there are too few edges for that.
    """
    half = events // 2
    if half > min(present, edges - present):
        msg = f"{edges:,} edges are too few for {events:,} events of which each has another one"
        raise ValueError(msg)
    added, deleted = present + rng.permutation(edges - present)[:half], rng.permutation(present)[:half]
    order = rng.permutation(2 * half)
    return np.repeat(np.array([ADD, DELETE], np.int8), half)[order], np.concatenate([added, deleted])[order]


def _lists(ends: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of edges in the order of their ends, and where those of each vertex begin."""
    return np.argsort(ends, kind="stable"), np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=n))])


def _ranges(first: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the places from `first[v]` to `first[v + 1]` of each vertex, one after the other."""
    counts = first[of + 1] - first[of]
    begin = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(of) else np.empty(0, np.int64)
    return np.arange(counts.sum()) + np.repeat(first[of] - begin, counts)


def _last(arg: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different values among those chosen, and where each stands last."""
    places = np.flatnonzero(chosen)[::-1]
    values, newest = np.unique(arg[places], return_index=True)
    return values, places[newest]
