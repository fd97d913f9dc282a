"""Random graphs of the last check of an export: with weights, self-loops, isolated vertices, and of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from freshet.gnn.pyg.kinds.metadata import Parts
from freshet.gnn.pyg.kinds.running import Run
from freshet.gnn.pyg.kinds.widths import Widths
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import WEIGHT, EdgeValues

SIZES = (1.0, 1e-4, 0.01, 100.0, 1e4)
HUB = 1000
"""In-edges of one vertex in a graph of the last check."""


class _Size(NamedTuple):
    """The size of a random graph, of which the last vertices of each kind have no edges.

    vertices: of the kinds in turn. edges: for each vertex of the relation's target. loops: of a relation within one
    kind. hub: the in-degree of the first vertex.
    """

    vertices: tuple[int, ...] = (48, 37, 29)
    edges: int = 4
    isolated: int = 4
    loops: int = 10
    hub: int = 0


_Sizes = tuple[tuple[str, _Size], ...]
_SMALL: _Sizes = (
    ("1 vertex", _Size((1,), 0)),
    ("no edges", _Size(edges=0)),
    ("2 vertices and an edge", _Size((2,), 0, hub=1)),
)
_LARGE: _Sizes = (
    ("self-loops alone", _Size((48,), 1, loops=48)),
    ("1 vertex and a self-loop", _Size((1,), 1)),
    ("20 vertices", _Size((20,), 2, 2)),
    ("400 vertices", _Size((400,))),
    ("2,000 vertices", _Size((2000,), 3)),
    (f"a vertex of {HUB:,} in-edges", _Size((HUB + 5,), 1, hub=HUB)),
)
_SMALL_OF_KINDS: _Sizes = (("1 vertex of each kind", _Size((1,))), ("2 vertices of each kind", _Size((2,))))
_LARGE_OF_KINDS: _Sizes = (
    ("about 20 vertices of each kind", _Size((19, 20, 21))),
    ("400 vertices of each kind", _Size((400,))),
    ("2,000 vertices of each kind", _Size((2000, 1999, 2001))),
    (f"vertices of {HUB:,} in-edges", _Size((HUB,), hub=HUB)),
)
"""Graphs of several sizes, the smallest first, with what is said of them."""


class Graphs:
    """Random graphs of the kinds, relations and widths of a module."""

    def __init__(
        self,
        run: Run,
        widths: Widths,
        there: Parts,
        *,
        mirrored: bool = False,
        types: int = 0,
        categories: Sequence[int] = (),
    ) -> None:
        """Take how the module is run, and which kinds and relations of it the model has.

        `mirrored`: whether the module takes the edges of a mirror for those of its relation. `types`: how many types
        the edges are of, which stand as columns in front of their other attributes. `categories`: how many categories
        each attribute numbers, 0 where it is any number.
        """
        self._types, self._categories = types, categories
        self.run, self.widths, self._there = run, widths, there
        # a module that is given one relation, whose edges it turns
        self._both_ways = run.call.plain and len(run.kinds.relations) > 1
        self._mirrors = run.kinds.mirrors if mirrored or self._both_ways else [None] * len(run.kinds.relations)

    def read(self, graph: KindsGraph) -> KindsGraph:
        """Return what the model reads of a graph that the module takes, learned rows behind the features."""
        learned = self.run.learned
        x = [
            np.concatenate([x, learned[kind].rows(len(x))], axis=1) if kind in learned else x
            for kind, x in enumerate(graph.x)
        ]
        return self._there.of(graph._replace(x=x))

    def some(self) -> list[KindsGraph]:
        """Return two of these graphs: with edges and without."""
        graph = self._drawn(_Size())
        return [graph, _without(graph, set(range(len(graph.edges))))]

    def trials(self) -> Iterator[tuple[str, KindsGraph]]:
        """Yield graphs with what is said of them.

        Features are of several sizes, weights also zero and negative. With kinds there are graphs in which relations,
        and all relations of a kind, have no edges, and relations between the same kinds have edges of the same ends.
        """
        graph, kinds = self._drawn(_Size()), self.run.kinds
        for size in SIZES:
            yield f"features around {size:g}", graph._replace(x=[x * np.float32(size) for x in graph.x])
        none = _weighed(graph, lambda weight: np.where(np.arange(len(weight)) % 3, weight, 0))
        yield "weights of 0 among its edges", none
        negative = _weighed(graph, lambda weight: np.where(np.arange(len(weight)) % 4, weight, -weight))
        yield "negative weights among its edges", negative
        many = len(graph.edges) if kinds.are_named and not self._both_ways else 0
        for first in range(min(2, many)):
            yield "relations without edges", self._cut(graph, {j for j in range(many) if j % 2 == first})
        for kind, name in enumerate(kinds.names) if len(kinds.names) > 1 else ():
            yield f"kind {name!r} without edges", self._cut(graph, {j for j in range(many) if kind in kinds.ends(j)})
        if many:
            yield "no edges at all", _without(graph, set(range(many)))
        if any(self.widths.edges):
            yield "attributes of 0 among its edges", _with_zeros(graph, self._types)

    def sized(self, *, large: bool) -> Iterator[tuple[str, KindsGraph]]:
        """Yield graphs of several sizes, the smallest first; `large`: whether others than small ones are among them.

        In the last one some vertices have several edges to another one.
        """
        named = self.run.kinds.are_named
        sizes = _SMALL_OF_KINDS if named else _SMALL
        for about, size in (*sizes, *((_LARGE_OF_KINDS if named else _LARGE) if large else ())):
            yield about, self._drawn(size)
        yield "several edges between two vertices", _repeated(self._drawn(_Size()))

    def _cut(self, graph: KindsGraph, relations: set[int]) -> KindsGraph:
        """Return a graph in which these relations, and their mirrors, have no edges."""
        return _without(graph, {j for j, of in enumerate(self._mirrors) if (j if of is None else of) in relations})

    def _drawn(self, size: _Size) -> KindsGraph:
        rng, kinds, learned = np.random.default_rng(7), self.run.kinds, self.run.learned
        sizes = [size.vertices[k % len(size.vertices)] for k in range(len(kinds.names))]
        sizes = [learned[k].vertices(n) if k in learned else n for k, n in enumerate(sizes)]
        widths = zip(sizes, self.widths.features, strict=True)
        x = [rng.standard_normal((n, width)).astype(np.float32) for n, width in widths]
        first, edges = dict[tuple[int, int], np.ndarray](), list[RelationEdges]()
        for j, width in enumerate(self.widths.edges):
            if self._mirrors[j] is not None:
                edges.append(RelationEdges(_NONE, _NONE, EdgeValues(0, {})))
                continue
            source, target = kinds.ends(j)
            lives = (max(1, sizes[kind] - size.isolated) for kind in (source, target))
            src, dst = (rng.integers(0, live, size.edges * sizes[target]) for live in lives)
            if source == target:
                src[: size.loops] = dst[: size.loops]
            pairs = np.unique(src * sizes[target] + dst)
            pairs = np.union1d(pairs, np.arange(sizes[source])[::-1][: size.hub] * sizes[target])
            pairs = np.union1d(pairs, first.setdefault((source, target), pairs)[::3])  # ends of several relations
            weight = rng.uniform(0.25, 1.75, len(pairs)).astype(np.float32)
            attr = rng.standard_normal((len(pairs), width)).astype(np.float32) if width else None
            if attr is not None and self._types:
                attr[:, : self._types] = np.eye(self._types)[rng.integers(0, self._types, len(pairs))]
            for place, count in enumerate(self._categories):
                if attr is not None and count:
                    attr[:, place] = rng.integers(0, count, len(pairs))
            values = EdgeValues(len(pairs), {WEIGHT: weight}, attr)
            edges.append(RelationEdges(pairs // sizes[target], pairs % sizes[target], values))
        for j, of in enumerate(self._mirrors):
            if of is not None:
                edges[j] = RelationEdges(edges[of].dst, edges[of].src, edges[of].values)
        return KindsGraph(x, edges)


_NONE = np.empty(0, np.int64)


def _weighed(graph: KindsGraph, of: Callable[[np.ndarray], np.ndarray]) -> KindsGraph:
    def weighed(values: EdgeValues) -> EdgeValues:
        return replace(values, given={WEIGHT: of(values.weight).astype(np.float32)})

    return graph._replace(edges=[one._replace(values=weighed(one.values)) for one in graph.edges])


def _repeated(graph: KindsGraph) -> KindsGraph:
    """Return a graph with some edges twice, of which the second ones have other weights and attributes."""
    edges = list[RelationEdges]()
    for one in graph.edges:
        first = np.arange(len(one.src))
        again = first[::3][one.src[::3] != one.dst[::3]]
        ends, values = np.concatenate([first, again]), np.concatenate([first, (again + 1) % max(1, len(first))])
        edges.append(RelationEdges(one.src[ends], one.dst[ends], one.values[values]))
    return graph._replace(edges=edges)


def _with_zeros(graph: KindsGraph, first: int) -> KindsGraph:
    edges = []
    for one in graph.edges:
        attr = None if one.values.attr is None else one.values.attr.copy()
        if attr is not None:
            attr[::3, first:] = 0
        edges.append(one._replace(values=replace(one.values, attr=attr)))
    return graph._replace(edges=edges)


def _without(graph: KindsGraph, relations: set[int]) -> KindsGraph:
    edges = [
        RelationEdges(_NONE, _NONE, one.values[:0]) if j in relations else one for j, one in enumerate(graph.edges)
    ]
    return graph._replace(edges=edges)
