"""Samples of the neighbourhoods of vertices, of one kind or several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshet.operators.sampling import kernels

NARROW_MAX = 2**31 - 1


class SortedInEdges(NamedTuple):
    """The edges of a relation by their targets: those of vertex v are ends[v] to ends[v + 1].

    Shapes: ends (targets + 1,) int64; sources, edges (edges,) int32, int64 where a number is past 2^31
    """

    ends: np.ndarray
    sources: np.ndarray
    edges: np.ndarray  # their numbers in the order that they were given in

    @classmethod
    def of(cls, src: np.ndarray, dst: np.ndarray, sources: int, targets: int) -> SortedInEdges:
        """Sort edges by their targets.

        Shapes: src (edges,) int64, below `sources`; dst (edges,) int64, below `targets`
        """
        ends = np.zeros(targets + 1, np.int64)
        kernels.count_targets(dst, ends)
        np.cumsum(ends, out=ends)
        kind = np.int32 if max(sources, len(src)) <= NARROW_MAX else np.int64
        found = cls(ends, np.empty(len(src), kind), np.empty(len(src), kind))
        kernels.sort_by_target(src, dst, ends[:-1].copy(), found.sources, found.edges)
        return found

    @property
    def degree_max(self) -> int:
        """The largest in-degree."""
        return int(np.diff(self.ends).max(initial=0))


@dataclass(frozen=True)
class SampledRelation:
    """A relation whose in-edges are sampled.

    `source`, `target`: numbers of kinds; `fanouts`: how many in-edges of a vertex, for each hop; -1: all.
    """

    source: int
    target: int
    in_edges: SortedInEdges
    fanouts: Sequence[int]


@dataclass
class Neighbourhood:
    """A part of a graph: the seeds first, then the vertices that each hop adds.

    Shapes: nodes: of each kind (n,) int64; edges: of each relation (3, edges) int64, the places of source and target
        among the nodes of their kinds, and the number of the edge; node_counts: of each kind, the seeds and what each
        hop adds; edge_counts: of each relation, what each hop adds
    """

    nodes: list[np.ndarray]
    edges: list[np.ndarray]
    node_counts: list[list[int]]
    edge_counts: list[list[int]]


def sample(
    relations: Sequence[SampledRelation],
    seeds: Sequence[np.ndarray],
    random: np.ndarray,
    places: Sequence[np.ndarray],
) -> Neighbourhood:
    """Sample the neighbourhood of vertices.

    Each hop takes min(in-degree, fanout) distinct in-edges of each vertex that the hop before added, or of each seed,
    uniformly and without replacement; every set of them is equally likely. A seed that is there twice has two rows,
    each with in-edges of its own.
    Shapes: seeds: of each kind (n,) int64; random (1,) uint64, the state of the random numbers, moved on; places: of
        each kind (vertices,), -1 before and after, of the type that `places_of` gives
    """
    reached = [_Reached(*of_kind) for of_kind in zip(seeds, places, strict=True)]
    hops = len(relations[0].fanouts) if relations else 0
    found: list[list[np.ndarray]] = [[] for _ in relations]
    begins = [0] * len(reached)
    for hop in range(hops):
        ends = [kind.count for kind in reached]
        for one, edges in zip(relations, found, strict=True):
            nodes, bounds = reached[one.target].nodes, (begins[one.target], ends[one.target])
            taken = _in_edges(one.in_edges, nodes, bounds, one.fanouts[hop], random)
            reached[one.source].number(taken[0])
            edges.append(taken)
        begins = ends
        for kind in reached:
            kind.end_hop()
    none = np.empty((3, 0), np.int64)
    return Neighbourhood(
        [kind.end() for kind in reached],
        [np.concatenate([none, *edges], axis=1) for edges in found],
        [kind.counts for kind in reached],
        [[one.shape[1] for one in edges] for edges in found],
    )


def places_of(vertices: int) -> np.ndarray:
    """Return what `sample` needs of a kind of as many vertices."""
    return np.full(vertices, -1, np.int32 if vertices <= NARROW_MAX else np.int64)


def _in_edges(
    in_edges: SortedInEdges, nodes: np.ndarray, bounds: tuple[int, int], fanout: int, random: np.ndarray
) -> np.ndarray:
    """Return the sampled in-edges of nodes from one place to another, (3, edges) int64."""
    found = np.empty((3, kernels.count_sampled(in_edges.ends, nodes, *bounds, fanout)), np.int64)
    chosen = min(max(fanout, 0), found.shape[1])  # no vertex of more in-edges than these is sampled
    taken = np.full(1 << (2 * chosen).bit_length(), -1, np.int64)
    slots = np.empty(chosen, np.int64)
    kernels.sample_in_edges(*in_edges, nodes, *bounds, fanout, random, taken, slots, found)
    return found


class _Reached:
    """The vertices of a kind in the order in which they were reached."""

    def __init__(self, seeds: np.ndarray, places: np.ndarray) -> None:
        """`places`: of each vertex of the kind its place, -1 as yet."""
        self.nodes, self.count = seeds.copy(), len(seeds)
        self.counts = [len(seeds)]
        self._places = places
        places[seeds[::-1]] = np.arange(len(seeds))[::-1]  # of one that is there twice the first

    def number(self, sources: np.ndarray) -> None:
        """Replace vertices by their places, with new ones at the end."""
        room = self.count + min(len(sources), len(self._places))
        if len(self.nodes) < room:
            nodes = np.empty(max(room, 2 * len(self.nodes)), np.int64)
            nodes[: self.count] = self.nodes[: self.count]
            self.nodes = nodes
        self.count = kernels.number_sources(sources, self.nodes, self.count, self._places)

    def end_hop(self) -> None:
        """Note what a hop has added."""
        self.counts.append(self.count - sum(self.counts))

    def end(self) -> np.ndarray:
        """Return the vertices, and put `places` back."""
        found = self.nodes[: self.count]
        self._places[found] = -1
        return found
