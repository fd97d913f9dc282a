"""The smallest graph on which a written layer is not the module in whose place it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from torch.nn import Module

from freshet.gnn.declarations import OwnLayer
from freshet.gnn.module_answers import convs_of
from freshet.gnn.pyg.check import TOLERANCE, Made, Ours, Theirs, answered, check, off, ours_of, theirs_of
from freshet.gnn.pyg.errors import DifferingLayerError, ExportError
from freshet.gnn.pyg.graphs import Graphs
from freshet.gnn.smallest import VALUES, Row, shown, simpler_rows, smallest
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import WEIGHT, EdgeValues

SOME_VERTICES, _EDGES, _TRIES = 4, 4, 24


class TinyRelation(NamedTuple):
    """The numbers of the kinds of a relation's ends, the width of its attributes, and its name for people."""

    source: int
    target: int
    attributes: int = 0
    name: str = ""


@dataclass(frozen=True)
class Sides:
    """A module and its model, ready to run on graphs, and what such graphs have.

    kinds: names of the kinds, in one kind an empty one. widths, vertices: of features, and numbers of vertices, by
    kind. results: the names of the kinds whose rows both make.
    """

    theirs: Theirs
    ours: Ours
    kinds: Sequence[str]
    widths: Sequence[int]
    relations: Sequence[TinyRelation]
    vertices: Sequence[int]
    results: Sequence[str]

    @classmethod
    def of(cls, theirs: Theirs, ours: Ours, graphs: Graphs) -> Sides:
        """Return both with what the smallest graphs have of kinds and relations."""
        run, kinds, widths = graphs.run, graphs.run.kinds, graphs.widths
        relations = [TinyRelation(*kinds.ends(j), width, kinds.relations[j][1]) for j, width in enumerate(widths.edges)]
        learned = [run.learned.get(k) for k in range(len(kinds.names))]
        vertices = [SOME_VERTICES if one is None else one.vertices(SOME_VERTICES) for one in learned]
        heads = run.heads or {0: None}
        results = [kinds.names[k] for k in (*heads, *(k for k, head in heads.items() if head is not None))]
        return cls(theirs, ours, kinds.names, widths.features, relations, vertices, results)


@dataclass(frozen=True)
class TinyGraph:
    """Rows of a few vertices by kind, and edges to the first vertex of a kind.

    An edge has the number of its relation, its source, a weight and attributes.
    """

    rows: tuple[tuple[Row, ...], ...]
    edges: tuple[tuple[int, int, float, Row], ...]

    def graph(self, sides: Sides) -> KindsGraph:
        """Return it as arrays."""
        found = list[RelationEdges]()
        for number, relation in enumerate(sides.relations):
            edges = sorted(edge for edge in self.edges if edge[0] == number)
            count = len(edges)
            weight = np.array([weight for *_, weight, _ in edges], np.float32)
            attr = np.array([row for *_, row in edges], np.float32).reshape(count, relation.attributes)
            values = EdgeValues(count, {WEIGHT: weight}, attr if relation.attributes else None)
            src = np.array([source for _, source, *_ in edges], np.int64)
            found.append(RelationEdges(src, np.zeros(count, np.int64), values))
        x = [np.array(rows, np.float32).reshape(len(rows), -1) for rows in self.rows]
        return KindsGraph(x, found)

    def smaller(self) -> Iterator[TinyGraph]:
        """Yield graphs with an edge less, or with simpler numbers."""
        for i, (relation, source, weight, attr) in enumerate(self.edges):
            before, after = self.edges[:i], self.edges[i + 1 :]
            simpler = [(1.0, attr)] * (weight != 1) + [(weight, row) for row in simpler_rows(attr)]
            yield replace(self, edges=before + after)
            yield from (replace(self, edges=(*before, (relation, source, *values), *after)) for values in simpler)
        for kind, rows in enumerate(self.rows):
            for i, one in enumerate(rows):
                for row in simpler_rows(one):
                    changed = (*rows[:i], row, *rows[i + 1 :])
                    yield replace(self, rows=(*self.rows[:kind], changed, *self.rows[kind + 1 :]))

    def lines(self, sides: Sides) -> list[str]:
        """Return it in words."""
        found = [
            f"{_vertex(i, name)} {shown(row)}"
            for name, rows in zip(sides.kinds, self.rows, strict=True)
            for i, row in enumerate(rows)
            if any(row)
        ]
        for number, source, weight, attr in sorted(self.edges):
            of = [f"of {sides.relations[number].name}"] if sides.relations[number].name else []
            of += [f"weight {weight:g}"] * (weight != 1) + [f"attributes {shown(attr)}"] * bool(attr)
            found.append(" ".join([f"edge {source} -> 0", *of]))
        return found


def compared(module: Module, model: Made, graphs: Graphs, checks: Callable[[Any], object] | None) -> Made:
    """Return a model that makes what its module makes of random graphs, with answers of the module where it has such.

    Where a written layer is another than its module, the error has the smallest graph.

    Raises: ExportError, or what `checks` raises of a claim that is refuted, which says more.
    """
    theirs, ours = theirs_of(module, graphs.run), ours_of(model, graphs)
    try:
        check(theirs, ours, graphs)
    except ExportError as error:
        written = [conv.code for conv in convs_of(model) if isinstance(conv, OwnLayer)]
        if not written:
            raise
        if checks is not None:
            checks(model)
        case = smallest_difference(Sides.of(theirs, ours, graphs))
        if not case:
            raise
        name, *others = dict.fromkeys(written)
        which = f"one of {', '.join([name, *others])}" if others else name
        msg = f"{which} is not the module in whose place it stands:\n{case}\nNothing was written"
        raise DifferingLayerError(msg) from error
    return answered(model, theirs, ours, graphs)


def smallest_difference(sides: Sides) -> str:
    """Return the smallest graph that was found on which they differ, with both rows; empty where none was."""
    rng = np.random.default_rng(0)
    for edges in range(_EDGES):
        for _ in range(_TRIES):
            case = _drawn(edges, sides, rng)
            if _apart(sides, case):
                return _of_smallest(sides, case)
    return ""


def _of_smallest(sides: Sides, case: TinyGraph) -> str:
    case = smallest(case, TinyGraph.smaller, lambda steps: (_apart(sides, one) for one in steps))
    graph = case.graph(sides)
    both = zip(sides.results, sides.theirs.rows(graph), sides.ours.exact(graph, TOLERANCE), strict=True)
    for name, module, layer in both:
        for vertex, (want, got, scale) in enumerate(zip(module, *layer, strict=True)):
            if np.isnan(want).any() or (np.abs(want - got) > TOLERANCE * scale).any():
                rows = f"{_vertex(vertex, name)} has {shown(got)}, but the module makes {shown(want)}"
                return "\n".join([*case.lines(sides), rows])
    return ""


def _apart(sides: Sides, case: TinyGraph) -> bool:
    graph = case.graph(sides)
    return off(sides.theirs.rows(graph), sides.ours.exact(graph, TOLERANCE)) > TOLERANCE


def _drawn(edges: int, sides: Sides, rng: np.random.Generator) -> TinyGraph:
    def row(width: int) -> Row:
        return tuple(rng.choice(VALUES, width).tolist())

    ends = [
        (number, source)
        for number, relation in enumerate(sides.relations)
        for source in range(min(SOME_VERTICES, sides.vertices[relation.source]))
    ]
    taken = [ends[k] for k in rng.choice(len(ends), min(edges, len(ends)), replace=False).tolist()]
    carried = [(*one, float(rng.choice([1.0, 1.0, 2.0])), row(sides.relations[one[0]].attributes)) for one in taken]
    rows = [tuple(row(width) for _ in range(n)) for n, width in zip(sides.vertices, sides.widths, strict=True)]
    return TinyGraph(tuple(rows), tuple(carried))


def _vertex(number: int, kind: str) -> str:
    return f"vertex {number} of {kind}" if kind else f"vertex {number}"
