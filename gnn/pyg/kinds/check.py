"""The last check of an export with kinds: the module and the exported model must agree on random graphs with kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.oracles import kinds as oracle
from freshet.gnn.oracles import whole_kinds
from freshet.gnn.oracles.scaled import Scaled
from freshet.gnn.pyg.check import HUB, SIZES, Ours, Rows, Theirs, compare, runs_code
from freshet.gnn.pyg.kinds.layered.widths import Widths
from freshet.gnn.pyg.kinds.looking_up import shortened
from freshet.gnn.pyg.kinds.running import Run
from freshet.gnn.pyg.own.differing import SOME_VERTICES, Sides, TinyRelation
from freshet.gnn.pyg.running import clone_of
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import WEIGHT, EdgeValues

if TYPE_CHECKING:
    from torch.nn import Module

_VERTICES = (48, 37, 29)
_ISOLATED = 4
_EDGES_A_VERTEX = 4
_SMALL = (("1 vertex of each kind", [1]), ("2 vertices of each kind", [2]))
_LARGE = (
    ("20 vertices of each kind", [20]),
    ("400 vertices of each kind", [400]),
    ("2,000 vertices of each kind", [2000, 1999, 2001]),
    (f"vertices of {HUB:,} in-edges", [HUB], HUB),
)
"""Graphs of several sizes: what is said of them, numbers of vertices, the in-degree of the first vertex."""


class Parts(NamedTuple):
    """Numbers of a module's kinds and relations that its model has."""

    kinds: list[int]
    relations: list[int]

    def of(self, graph: KindsGraph) -> KindsGraph:
        """Return what the model reads of a graph that the module takes."""
        return KindsGraph([graph.x[k] for k in self.kinds], [graph.edges[j] for j in self.relations])


def check(theirs: Theirs, ours: Ours, run: Run, widths: Widths) -> float:
    """Return the largest difference of module and model on graphs with weights, self-loops and isolated vertices.

    Among them are graphs in which relations, and all relations of a kind, have no edges, and in which relations between
    the same kinds have edges of the same ends. Raises: ExportError past the tolerance.
    """
    large = _LARGE if runs_code(theirs.in_float32) else ()
    sized = [(about, _graph(run, widths, *size)) for about, *size in (*_SMALL, *large)]
    return compare(theirs, ours, list(_trials(run, widths)), sized)


def both_sides(module: Module, run: Run, model: KindsModel, there: Parts) -> tuple[Theirs, Ours]:
    """Return a module and its model ready to run on graphs of what the module takes."""
    plan, out = compile_kinds(model), [list(model.kinds).index(kind) for kind in model.out]

    def made(graph: KindsGraph) -> Rows:
        rows = whole_kinds.forward(plan, read_of(graph, run, there))[-1]
        heads = [(plan.heads[kind], rows[k]) for kind, k in zip(model.out, out, strict=True) if kind in plan.heads]
        return [rows[kind] for kind in out] + [head.logits(embedding) for head, embedding in heads]

    def exact(graph: KindsGraph, tolerance: float) -> list[Scaled]:
        rows = oracle.forward(model, read_of(graph, run, there), tolerance=tolerance)
        return [*rows.values(), *oracle.logits(model, rows, tolerance=tolerance)]

    def copies() -> Theirs:
        short = shortened(clone_of(module), run.learned)
        theirs = Theirs(short, clone_of(short).double(), run, copies)
        if run.frozen is not None:
            run.frozen.put_into(theirs.in_float32)
            run.frozen.put_into(theirs.in_float64)
        return theirs

    return copies(), Ours(made, exact)


def tiny_graphs(theirs: Theirs, ours: Ours, run: Run, widths: Widths, model: KindsModel) -> Sides:
    """Return both with what the smallest graphs have of kinds and relations."""
    kinds, names = run.kinds, run.kinds.names
    relations = [TinyRelation(*kinds.ends(j), width, kinds.relations[j][1]) for j, width in enumerate(widths.edges)]
    shown = dict(zip(kinds.stored, names, strict=True))
    results = [shown[kind] for kind in [*model.out, *(kind for kind in model.out if kind in model.heads)]]
    vertices = [
        run.learned[k].vertices(SOME_VERTICES) if k in run.learned else SOME_VERTICES for k in range(len(names))
    ]
    return Sides(theirs, ours, names, widths.features, relations, vertices, results)


def _with_rows(graph: KindsGraph, run: Run) -> KindsGraph:
    """Return the graph with learned rows behind the features."""
    x = [
        np.concatenate([x, run.learned[kind].rows(len(x))], axis=1) if kind in run.learned else x
        for kind, x in enumerate(graph.x)
    ]
    return graph._replace(x=x)


def _trials(run: Run, widths: Widths) -> Iterator[tuple[str, KindsGraph]]:
    """Yield random graphs, and what is said of them."""
    graph, kinds = _graph(run, widths), run.kinds
    for size in SIZES:
        yield f"features around {size:g}", graph._replace(x=[x * np.float32(size) for x in graph.x])
    yield (
        "weights of 0 among its edges",
        _weighed(graph, lambda weight: np.where(np.arange(len(weight)) % 3, weight, 0)),
    )
    yield (
        "negative weights among its edges",
        _weighed(graph, lambda weight: np.where(np.arange(len(weight)) % 4, weight, -weight)),
    )
    many = len(graph.edges)
    for first in range(min(2, many)):
        yield "relations without edges", _without(graph, {j for j in range(many) if j % 2 == first})
    for kind, name in enumerate(kinds.names) if len(kinds.names) > 1 else ():
        yield f"kind {name!r} without edges", _without(graph, {j for j in range(many) if kind in kinds.ends(j)})
    yield "no edges at all", _without(graph, set(range(many)))
    if any(widths.edges):
        yield "attributes of 0 among its edges", _with_zeros(graph)


def some_graphs(run: Run, widths: Widths) -> list[KindsGraph]:
    """Return two of these graphs: with edges and without."""
    graph = _graph(run, widths)
    return [graph, _without(graph, set(range(len(graph.edges))))]


def read_of(graph: KindsGraph, run: Run, there: Parts) -> KindsGraph:
    """Return what the model reads of a graph that the module takes, learned rows behind the features."""
    return there.of(_with_rows(graph, run))


def _weighed(graph: KindsGraph, of: Any) -> KindsGraph:
    edges = [
        one._replace(values=replace(one.values, given={WEIGHT: of(one.values.weight).astype(np.float32)}))
        for one in graph.edges
    ]
    return graph._replace(edges=edges)


def _with_zeros(graph: KindsGraph) -> KindsGraph:
    edges = []
    for one in graph.edges:
        attr = None if one.values.attr is None else one.values.attr.copy()
        if attr is not None:
            attr[::3] = 0
        edges.append(one._replace(values=replace(one.values, attr=attr)))
    return graph._replace(edges=edges)


def _without(graph: KindsGraph, relations: set[int]) -> KindsGraph:
    none = np.empty(0, np.int64)
    edges = [RelationEdges(none, none, one.values[:0]) if j in relations else one for j, one in enumerate(graph.edges)]
    return graph._replace(edges=edges)


def _graph(run: Run, widths: Widths, vertices: Sequence[int] = _VERTICES, hub: int = 0) -> KindsGraph:
    rng, kinds = np.random.default_rng(7), run.kinds
    sizes = [vertices[k % len(vertices)] for k in range(len(kinds.names))]
    sizes = [run.learned[k].vertices(n) if k in run.learned else n for k, n in enumerate(sizes)]
    x = [rng.standard_normal((n, width)).astype(np.float32) for n, width in zip(sizes, widths.features, strict=True)]
    first, edges = dict[tuple[int, int], np.ndarray](), list[RelationEdges]()
    for j, width in enumerate(widths.edges):
        source, target = kinds.ends(j)
        count = _EDGES_A_VERTEX * sizes[target]
        src, dst = (rng.integers(0, max(1, sizes[kind] - _ISOLATED), count) for kind in (source, target))
        if source == target:
            src[:10] = dst[:10]
        pairs = np.unique(src * sizes[target] + dst)
        pairs = np.union1d(pairs, np.arange(min(hub, sizes[source])) * sizes[target])
        pairs = np.union1d(pairs, first.setdefault((source, target), pairs)[::3])  # ends of several relations
        weight = rng.uniform(0.25, 1.75, len(pairs)).astype(np.float32)
        attr = rng.standard_normal((len(pairs), width)).astype(np.float32) if width else None
        values = EdgeValues(len(pairs), {WEIGHT: weight}, attr)
        edges.append(RelationEdges(pairs // sizes[target], pairs % sizes[target], values))
    return KindsGraph(x, edges)
