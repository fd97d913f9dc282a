"""The events that take a few others back, made before those are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from freshet.partitioner.event_builder import EventBuilder, Id
from freshet.partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, OP_DEL_EDGES, OP_DEL_VERTEX, Events
from freshet.partitioner.graph_tables import NEVER
from freshet.partitioner.ids import NO_KEY
from freshet.partitioner.inspection import IN, Inspection
from freshet.schema import PLAIN_EDGE, EdgeValues, Features


class EventEnds(NamedTuple):
    """Vertices and types of events, as the graph knows them before these events.

    Shapes: kinds (2, n) uint8, of the vertex or source and of the destination; rows (2, n) int64, -1 for an id that is
    not there; codes (n,) int32 of types, -1 for one that no edge has
    """

    kinds: np.ndarray
    rows: np.ndarray
    codes: np.ndarray


def ends_of(events: Events, graph: Inspection, features: Features) -> EventEnds:
    """Look up the ids and types of events."""
    kinds, codes = np.zeros((2, len(events)), np.uint8), graph.types.codes_of(
        events.types, np.zeros(len(events), np.uint8), events.etype
    )  # fmt: skip
    edges = events.op >= OP_ADD_EDGE
    if features.kinds is not None:
        kinds[:, edges] = features.kinds.ends[:, codes[edges]]
        kinds[0, ~edges] = 0 if events.kind is None else events.kind[~edges]
    has_kinds = features.kinds is not None
    rows = np.stack(
        [graph.find(ids, of, has_kinds=has_kinds) for ids, of in zip((events.a, events.b), kinds, strict=True)]
    )
    rows[1, ~edges] = -1
    return EventEnds(kinds, rows, codes)


ValuesOf = Callable[[np.ndarray], EdgeValues]


def undoing(events: Events, ends: EventEnds, graph: Inspection, features: Features, values_of: ValuesOf) -> Events:
    """Return events after which the graph is as it is now; features are not restored, as the Partitioner has none.

    `values_of` returns what edges carry, by their rows.
    """
    builder, ids = EventBuilder(features, events.a.kind, events.types), (events.a.to_list(), events.b.to_list())
    for event, op in enumerate(events.op.tolist()):
        if op >= OP_ADD_EDGE:
            _restore(builder, events, event, ends, graph, values_of)
    born = dict[tuple[int, Id], None]()
    for event, op in enumerate(events.op.tolist()):
        for end in range(2 if op == OP_ADD_EDGE else op < OP_DEL_EDGE):
            if ends.rows[end, event] < 0:
                born[int(ends.kinds[end, event]), ids[end][event]] = None
    for kind, vertex in born:
        builder.vertex(OP_DEL_VERTEX, vertex, None, 0, kind)
    return builder.build(0)


def _restore(
    builder: EventBuilder, events: Events, event: int, ends: EventEnds, graph: Inspection, values_of: ValuesOf
) -> None:
    """Append what makes the edge of an event, or all of its pair, as they are now."""
    a, b = events.a.slice(event, event + 1).to_one(), events.b.slice(event, event + 1).to_one()
    etype = builder.type_code(events.types[int(events.etype[event])])
    key = events.key_of(event)
    there = list(_edges_there(event, ends, graph))
    wanted = there if events.op[event] == OP_DEL_EDGES else [one for one in there if one[1] == key]
    for row, its_key in wanted:
        edge = np.array([row])
        builder.edge(OP_ADD_EDGE, a, b, values_of(edge).rows()[0], etype, 0)
        if its_key is not None:
            builder.key(its_key)
        if (ts := int(graph.times_of(edge)[0])) != NEVER:
            builder.stamp(ts)
    if not wanted:
        builder.edge(OP_DEL_EDGE, a, b, PLAIN_EDGE, etype, 0)
        if key is not None:
            builder.key(key)


def _edges_there(event: int, ends: EventEnds, graph: Inspection) -> Iterator[tuple[int, Id | None]]:
    """Yield the edges of an event's pair and type, with their keys."""
    src, dst = ends.rows[:, event]
    if min(src, dst) < 0:
        return
    rows = graph.edges_of(np.array([dst]), IN).rows
    sources, _, codes = graph.ends_of(rows)
    rows = rows[(sources == src) & (codes == ends.codes[event])]
    for row, key in zip(rows.tolist(), graph.keys_of(rows), strict=True):
        yield row, None if key in (NO_KEY, "") else key
