"""The graph and the stream of `peers.py` and of the papers' tables, and the graph as events go by."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from scripts.bench.arxiv_stream import WIDTH, make_edges, make_stream

ADD, DELETE, FEATURES, ADD_VERTEX, DELETE_VERTEX = range(5)
LINKBENCH = (0.392, 0.130, 0.321, 0.112, 0.044)  # shares of these in LinkBench's FBWorkload, of those that it has
_WITH_ROWS = (FEATURES, ADD_VERTEX)
BEGIN = 0.8  # share of the edges, and of the vertices where these change, that are there at the begin


class Workload:
    """A graph and a stream: `op` and `arg` (an edge or a vertex; those with features have the row `b` of `pool`).

    weights: whether edges have some that are not 1. attributes: their width, of each edge. types: how many edges have,
    which are drawn at random. only_edges: half of the events add an edge, half delete one. mix: the share of each
    operation, where vertices come and go, too. Edges up to `m0` are there at the begin.
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
        types: int = 0,
        only_edges: bool = False,
        mix: Sequence[float] = (),
    ) -> None:
        rng = np.random.default_rng(7)
        self.n, self.m0, self.d = vertices, int(edges * BEGIN), width
        self.src, self.dst = make_edges(vertices, edges, rng)
        self.alive = np.ones(vertices, bool)  # at the begin
        if mix:
            self.op, self.arg = self._begin_with_some(events, mix, rng)
        else:
            stream = _edges_alone if only_edges else make_stream
            self.op, self.arg = stream(edges, self.m0, events, rng)
        self.x0 = rng.standard_normal((vertices, width), dtype=np.float32) * np.float32(0.5)
        self.pool = rng.standard_normal((1024, width), dtype=np.float32) * np.float32(0.5)
        self.weight = rng.uniform(0.5, 1.5, edges).astype(np.float32) if weights else None
        self.attr = rng.random((edges, attributes), dtype=np.float32) if attributes else None
        of_vertices = self.op >= FEATURES
        if not mix:
            self.arg = np.where(of_vertices, rng.integers(0, vertices, events), self.arg)
        edge = np.where(of_vertices, 0, self.arg)
        self.a = np.where(of_vertices, self.arg, self.src[edge])
        self.b = np.where(of_vertices, rng.integers(0, len(self.pool), events), self.dst[edge])
        self.types = rng.integers(0, types, edges) if types else None

    def without_weights(self) -> Workload:
        """Return the same graph and stream, whose edges have no weights."""
        found = copy(self)
        found.weight = None
        return found

    @cached_property
    def lists(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The numbers of edges in the order of their targets, then of their sources, and where each vertex begins."""
        return [_lists(ends, self.n) for ends in (self.dst, self.src)]

    def _begin_with_some(
        self, events: int, mix: Sequence[float], rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Hold vertices back, and edges beside theirs; return the operation and the edge or vertex of each event."""
        self.alive[rng.permutation(self.n)[int(self.n * BEGIN) :]] = False
        there = self.alive[self.src] & self.alive[self.dst] & (np.arange(len(self.src)) < self.m0)
        order = np.argsort(~there, kind="stable")
        self.src, self.dst, self.m0 = self.src[order], self.dst[order], int(there.sum())
        return VertexStream(self).drawn(events, mix, rng)

    def values_of(self, edges: np.ndarray) -> list[Tensor]:
        """Return the weights, attributes or types of these edges, if there are any."""
        return [torch.from_numpy(one[edges]) for one in (self.weight, self.attr, self.types) if one is not None]


class VertexStream:
    """Draws a stream in which vertices come and go: each event fits the graph at its place."""

    def __init__(self, workload: Workload) -> None:
        w = self.w = workload
        self._edges, self._vertices = _Drawn(len(w.src), np.arange(w.m0)), _Drawn(w.n, np.flatnonzero(w.alive))

    def drawn(self, events: int, mix: Sequence[float], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the operation and the edge or vertex of each event; what is not there to be added is deleted."""
        op, arg = rng.choice(len(mix), events, p=np.array(mix) / sum(mix)).astype(np.int8), np.empty(events, np.int64)
        for number, one in enumerate(op.tolist()):
            of = self._edges if one in (ADD, DELETE) else self._vertices
            if one in (ADD, ADD_VERTEX) and (found := self._absent(of, rng)) is not None:
                of.put(found)
            elif one == FEATURES:
                found = of.one(rng)
            else:
                op[number] = DELETE if of is self._edges else DELETE_VERTEX
                found = of.one(rng)
                self._delete(of, found)
            arg[number] = found
        return op, arg

    def _absent(self, of: _Drawn, rng: np.random.Generator) -> int | None:
        """Return one that is not there, an edge between two vertices that are; None if some tries find none."""
        w, vertices = self.w, self._vertices
        for _ in range(1000 if of.absent else 0):
            found = of.other(rng)
            if of is vertices or (vertices.has(w.src[found]) and vertices.has(w.dst[found])):
                return found
        return None

    def _delete(self, of: _Drawn, one: int) -> None:
        of.take(one)
        for by, first in self.w.lists if of is self._vertices else ():
            edges = by[first[one] : first[one + 1]]
            for edge in edges[self._edges.has(edges)].tolist():
                self._edges.take(edge)


class _Drawn:
    """Numbers of which some are there: one of these, or of the others, is drawn in constant time."""

    def __init__(self, count: int, there: np.ndarray) -> None:
        mask = np.zeros(count, bool)
        mask[there] = True
        self._order = np.argsort(~mask, kind="stable")
        self._place, self._there = np.empty(count, np.int64), len(there)
        self._place[self._order] = np.arange(count)

    @property
    def absent(self) -> int:
        return len(self._order) - self._there

    def has(self, one: Any) -> Any:
        return self._place[one] < self._there

    def one(self, rng: np.random.Generator) -> int:
        return int(self._order[int(rng.random() * self._there)])

    def other(self, rng: np.random.Generator) -> int:
        return int(self._order[self._there + int(rng.random() * self.absent)])

    def put(self, one: int) -> None:
        self._swap(one, self._there)
        self._there += 1

    def take(self, one: int) -> None:
        self._there -= 1
        self._swap(one, self._there)

    def _swap(self, one: int, place: int) -> None:
        other, at = self._order[place], self._place[one]
        self._order[at], self._order[place] = other, one
        self._place[other], self._place[one] = at, place


class Change(NamedTuple):
    """Changes of an epoch, without those that cancel: edges by number, vertices that are new or have new features."""

    added: np.ndarray
    deleted: np.ndarray
    vertices: np.ndarray
    rows: np.ndarray


class Graph:
    """The graph of a workload as its events go by."""

    def __init__(self, workload: Workload) -> None:
        w = self.w = workload
        self.x = w.x0.copy()
        self.present, self.alive = np.arange(len(w.src)) < w.m0, w.alive.copy()
        (self.by_dst, self.in_first), (self.by_src, self.out_first) = w.lists

    def apply(self, first: int, end: int) -> Change:
        """Apply these events; return what has changed."""
        w, op, arg = self.w, self.w.op[first:end], self.w.arg[first:end]
        cuts = [0, *np.flatnonzero(op == DELETE_VERTEX), len(op)]  # an edge may come again after its end has
        touched = np.concatenate([self._edges_of(op[a:b], arg[a:b]) for a, b in pairwise(cuts)])
        edges, places = np.unique(touched["edge"], return_index=True)
        now, changed = self.present[edges], self.present[edges] != touched["was"][places]
        of, last = _last(arg, op > FEATURES)
        self.alive[of] = op[last] == ADD_VERTEX
        vertices, newest = _last(arg, np.isin(op, _WITH_ROWS))
        newest, vertices = newest[self.alive[vertices]], vertices[self.alive[vertices]]
        rows = w.pool[w.b[first:end][newest]]
        self.x[vertices] = rows
        return Change(edges[changed & now], edges[changed & ~now], vertices, rows)

    def _edges_of(self, op: np.ndarray, arg: np.ndarray) -> np.ndarray:
        """Apply events of edges behind at most one that deletes a vertex; return the edges, and which were there."""
        gone = arg[:1][op[:1] == DELETE_VERTEX]
        edges, last = _last(arg, op <= DELETE)
        of_gone = np.concatenate([self.in_edges(gone), self.out_edges(gone)])
        found = np.empty(len(of_gone) + len(edges), [("edge", np.int64), ("was", bool)])
        found["edge"], found["was"][: len(of_gone)] = np.concatenate([of_gone, edges]), True
        self.present[of_gone] = False
        found["was"][len(of_gone) :] = self.present[edges]
        self.present[edges] = op[last] == ADD
        return found

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
            reached = reached[self.alive[reached]]
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
