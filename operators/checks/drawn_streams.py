"""Small streams for a model: how they are drawn, made smaller, and shown.

An event is a row as `events_of` takes it, with numbers that are small integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from freshet.gnn.kind_layers.plans import KindsPlan, RelationPlan
from freshet.gnn.plan import Plan
from freshet.gnn.smallest import shown, simpler_rows
from freshet.kinds import NO_MIRROR
from freshet.schema import NO_ATTR

Event = tuple[Any, ...]
_VERTICES, _FEWER = 4, 3  # of the one kind, or of each of several
_BESIDE = 0.15  # of the events where there are several relations: they are about any of these


class DrawnRelation(NamedTuple):
    """A relation whose edges events bring: kinds of its ends, name in events (None: edges have no types), attributes.

    `edge_width` is the width of the attributes that events have, 0 where they have none.
    """

    source: int
    target: int
    name: str | None
    edge_width: int


class FollowedRelation(NamedTuple):
    """A relation that messages take by its name, and the one whose edges events bring: that, or the one it mirrors."""

    relation: DrawnRelation
    name: str = ""
    is_mirror: bool = False


Path = Sequence[FollowedRelation]


@dataclass(frozen=True)
class StreamForm:
    """Vertices and edges that streams may have, by kinds and relations; without kinds there is one of each.

    `path` returns the relations that the stream of a number follows, one for each layer from one of the first to the
    last, so that what changes shows in embeddings.
    """

    names: Sequence[str | None]
    """Of the kinds in events; None: events name none."""
    widths: Sequence[int]
    relations: Sequence[DrawnRelation]
    path: Callable[[int, np.random.Generator], Path]

    @staticmethod
    def of_one_kind(plan: Plan) -> StreamForm:
        """Return the form of streams for a model without kinds."""
        name = plan.edge_types[0] if plan.edge_types else None
        relation = DrawnRelation(0, 0, name, plan.features.given_edge_width)
        return StreamForm([None], [plan.features.width], [relation], lambda number, rng: [FollowedRelation(relation)])

    @staticmethod
    def of_kinds(plan: KindsPlan, own: Callable[[RelationPlan], bool]) -> StreamForm:
        """Return the form for a model with kinds, whose streams are drawn for relations with own convs, or for all."""
        kinds = plan.features.kinds
        assert kinds is not None  # as each such model has them
        given = {
            number: DrawnRelation(one.source, one.target, name, one.edge_width and kinds.edge_width)
            for number, (one, name) in enumerate(zip(kinds.relations, kinds.relation_names, strict=True))
            if one.mirrors == NO_MIRROR
        }
        hops = [
            FollowedRelation(given[number if one.mirrors == NO_MIRROR else one.mirrors], name, one.mirrors != NO_MIRROR)
            for number, (one, name) in enumerate(zip(kinds.relations, kinds.relation_names, strict=True))
        ]
        every = [(depth, one) for depth, layer in enumerate(plan.layers) for one in layer.relations]
        chosen = [(depth, one) for depth, one in every if own(one)] or every

        def path(number: int, rng: np.random.Generator) -> Path:
            return [hops[k] for k in _walk(plan, *chosen[number % len(chosen)], rng)]

        names = [name if kinds.are_named else None for name in kinds.names]
        return StreamForm(names, kinds.widths, list(given.values()), path)

    def draw(self, path: Path, events: int, rng: np.random.Generator) -> list[Event]:
        """Return a stream: births, then events, most to one vertex of each kind, where states of parts meet."""
        kinds = dict.fromkeys(end for hop in path for end in hop.relation[:2])
        vertices = _VERTICES if len(self.names) == 1 else _FEWER
        stream = [self._vertex("add_vertex", kind, v, rng) for kind in kinds for v in range(vertices)]
        for _ in range(len(path) + events):
            stream.append(self._event(stream, path, vertices, rng))
        return stream

    def _event(self, stream: list[Event], path: Path, vertices: int, rng: np.random.Generator) -> Event:
        (relation, _, is_mirror), draw = path[int(rng.integers(len(path)))], rng.random()
        if len(self.relations) > 1 and rng.random() < _BESIDE:
            relation = self.relations[int(rng.integers(len(self.relations)))]
        one, hub = int(rng.integers(vertices)), 0 if rng.random() < 0.6 else int(rng.integers(vertices))
        src, dst = (hub, one) if is_mirror else (one, hub)
        kind = relation.source if rng.random() < 0.5 else relation.target
        if draw < 0.6:
            return ("add_edge", src, dst, *self._carried(relation, rng))
        if draw < 0.8:
            edges = [event for event in stream if event[0] == "add_edge"]
            src, dst, name = _ends(edges[int(rng.integers(len(edges)))]) if edges else (src, dst, relation.name)
            return ("del_edge", src, dst, *([] if name is None else [name]))
        op = "set_features" if self.widths[kind] else "add_vertex"
        return self._vertex(op if draw < 0.95 else "del_vertex", kind, one, rng)

    def _vertex(self, op: str, kind: int, number: int, rng: np.random.Generator) -> Event:
        vertex = number if self.names[kind] is None else (self.names[kind], number)
        x = _row(self.widths[kind], rng)
        return (op, vertex, x) if x and op != "del_vertex" else (op, vertex)

    def _carried(self, relation: DrawnRelation, rng: np.random.Generator) -> Event:
        weight = float(rng.choice([1.0, 1.0, 2.0, -1.0]))
        if not relation.edge_width:
            return (weight,) if relation.name is None else (weight, relation.name)
        return (weight, relation.name, NO_ATTR, _row(relation.edge_width, rng))


def _walk(plan: KindsPlan, depth: int, relation: RelationPlan, rng: np.random.Generator) -> list[int]:
    """Return numbers of relations, one of this plan's and others before and behind it, by layers to the last."""
    found, kind = [_number(relation, rng)], relation.source
    for layer in plan.layers[:depth][::-1]:
        into = [one for one in layer.relations if one.target == kind]
        if into:
            one = into[int(rng.integers(len(into)))]
            found.insert(0, _number(one, rng))
            kind = one.source
    kind = relation.target
    for layer in plan.layers[depth + 1 :]:
        out = [one for one in layer.relations if one.source == kind]
        own = layer.kinds[kind]
        choice = int(rng.integers(len(out) + (own is not None and own.reads_self))) if out else 0
        if choice < len(out):  # else the kind's own rows go on
            found.append(_number(out[choice], rng))
            kind = out[choice].target
    return found


def _number(relation: RelationPlan, rng: np.random.Generator) -> int:
    return relation.numbers[int(rng.integers(len(relation.numbers)))]


def _row(width: int, rng: np.random.Generator) -> tuple[float, ...]:
    return tuple(rng.integers(-2, 3, width).astype(float).tolist())


def _ends(event: Event) -> tuple[int, int, str | None]:
    """Return source, target and type of an added edge."""
    _, src, dst, _, *more = event
    return src, dst, more[0] if more else None


def smaller_streams(stream: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield streams with an event less, or with simpler numbers in one."""
    for i in range(len(stream)):
        yield [*stream[:i], *stream[i + 1 :]]
    for i, event in enumerate(stream):
        for k, value in list(enumerate(event))[2:]:
            if isinstance(value, tuple) and any(value):
                for simpler in simpler_rows(value):
                    yield [*stream[:i], (*event[:k], simpler, *event[k + 1 :]), *stream[i + 1 :]]
            elif k == 3 and event[0] == "add_edge" and value != 1.0:
                yield [*stream[:i], (*event[:k], 1.0, *event[k + 1 :]), *stream[i + 1 :]]


def event_line(event: Event) -> str:
    """Return an event for people."""
    op, *rest = event
    if op == "add_edge":
        _, src, dst, weight, *more = event
        words = [op, f"{src} -> {dst}"]
        words += [str(more[0])] if more and more[0] is not None else []
        words += [f"weight {weight:g}"] if weight != 1 else []
        words += [f"attr {shown(more[2])}"] if len(more) > 2 else []
    elif op == "del_edge":
        words = [op, f"{rest[0]} -> {rest[1]}", *rest[2:]]
    else:
        words = [op, vertex_name(rest[0]), *map(shown, rest[1:])]
    return " ".join(words)


def vertex_name(vertex: int | tuple[str, int]) -> str:
    """Return a vertex for people."""
    return " ".join(map(str, vertex)) if isinstance(vertex, tuple) else str(vertex)
