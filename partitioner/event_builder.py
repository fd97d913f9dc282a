"""Blocks of events made one event at a time: by the parser from JSON and odd tables, and from plain rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from freshet.partitioner.events import (
    ALL_KEYS,
    DEFAULT_TYPE,
    NO_TS,
    OP_ADD_EDGE,
    OP_ADD_VERTEX,
    OP_DEL_EDGE,
    OP_DEL_EDGES,
    OP_DEL_VERTEX,
    OP_NAMES,
    OP_SET_FEATURES,
    Events,
)
from freshet.partitioner.ids import INT, NO_KEY, STRING, Ids
from freshet.schema import PLAIN_EDGE, EdgeRow, EdgeValues, FeatureRow, FeatureRows, Features
from freshet.type_columns import with_types

Id = int | str


class EventBuilder:
    """Collects accepted events and counts rejected records, and makes a block of them.

    The caller has validated what it appends.
    """

    def __init__(self, features: Features, id_kind: str | None = None, edge_types: Sequence[str] | None = None) -> None:
        self.features = features
        self.id_kind = id_kind
        names = features.kinds.relation_names if features.kinds else edge_types or (DEFAULT_TYPE,)
        self.types: dict[str, int] = {name: k for k, name in enumerate(names)}
        self.op: list[int] = []
        self.a: list[Id] = []
        self.b: list[Id] = []
        self.values: list[EdgeRow] = []
        self.etype: list[int] = []
        self.x_row: list[int] = []
        self.x: list[FeatureRow] = []
        self.position: list[int] = []
        self.reject_rows: list[int] = []
        self.ts: dict[int, int] = {}  # by event, of those that have one
        self.tombstones = 0  # messages without a value that were skipped
        self.kinds: dict[int, int] = {}  # by event about a vertex, of those of other kinds than the first
        self.keys: dict[int, Id] = {}  # by event, of edges that have one

    def __len__(self) -> int:
        return len(self.op)

    def vertex(self, op: int, vertex: Id, x: FeatureRow | None, position: int, kind: int = 0) -> None:
        """Append add_vertex, del_vertex or set_features."""
        if kind:
            self.kinds[len(self.op)] = kind
        self.op.append(op)
        self.a.append(vertex)
        self.b.append(0)
        self.values.append(PLAIN_EDGE)
        self.etype.append(0)
        self.position.append(position)
        if x is None:
            self.x_row.append(-1)
        else:
            self.x_row.append(len(self.x))
            self.x.append(x)

    def edge(self, op: int, src: Id, dst: Id, values: EdgeRow, etype: int, position: int) -> None:
        """Append add_edge or del_edge."""
        self.op.append(op)
        self.a.append(src)
        self.b.append(dst)
        self.values.append(values)
        self.etype.append(etype)
        self.position.append(position)
        self.x_row.append(-1)

    def stamp(self, ts: int) -> None:
        """Set the `ts` of the last event."""
        self.ts[len(self.op) - 1] = ts

    def key(self, key: Id) -> None:
        """Set the key of the last event, which is about an edge; all keys make a deletion that of all these edges."""
        event = len(self.op) - 1
        if key == ALL_KEYS and self.op[event] == OP_DEL_EDGE:
            self.op[event] = OP_DEL_EDGES
        else:
            self.keys[event] = key

    def type_code(self, name: str) -> int:
        """The number of an edge type in this block's table, a new one for a new type."""
        return self.types.setdefault(name, len(self.types))

    def reject(self) -> None:
        """Count a rejected record."""
        self.reject_rows.append(len(self.op))

    def build(self, end_position: int, source: int = 0, partition: int = 0, arrival_ms: float = 0.0) -> Events:
        """The block of all that was appended."""
        n = len(self.op)
        kind = self.id_kind or INT
        # vertex events have 0 in b whatever the kind
        b: list[Id] = [other or "" for other in self.b] if kind == STRING else self.b
        op, etype = np.array(self.op, np.uint8), np.array(self.etype, np.int32)
        return Events(
            op=op,
            a=Ids.of(kind, self.a),  # type: ignore[arg-type]
            b=Ids.of(kind, b),  # type: ignore[arg-type]
            values=with_types(EdgeValues.of_rows(self.values), self.features, etype, op == OP_ADD_EDGE),
            etype=etype,
            x_row=np.array(self.x_row, np.int32),
            x=FeatureRows.of(self.x, self.features),
            position=np.array(self.position, np.int64),
            source=np.full(n, source, np.int16),
            partition=np.full(n, partition, np.int16),
            types=tuple(self.types),
            reject_rows=np.array(self.reject_rows, np.int32),
            end_position=end_position,
            end_source=source,
            end_partition=partition,
            arrival_ms=arrival_ms,
            ts=self._column(self.ts, NO_TS, np.int64),
            kind=self._column(self.kinds, 0, np.uint8),
            tombstones=self.tombstones,
            keys=self._keys(),
        )

    def _keys(self) -> Ids | None:
        if not self.keys:
            return None
        kind = STRING if isinstance(next(iter(self.keys.values())), str) else INT
        none: Id = NO_KEY if kind == INT else ""
        return Ids.of(kind, [self.keys.get(event, none) for event in range(len(self.op))])  # type: ignore[arg-type]

    def _column(self, given: Mapping[int, int], default: int, dtype: type) -> np.ndarray | None:
        if not given:
            return None
        column: np.ndarray = np.full(len(self.op), default, dtype)
        column[list(given)] = list(given.values())
        return column


_ONE = Features(1)


def events_of(
    rows: Iterable[tuple[object, ...]],
    features: Features = _ONE,
    id_kind: str = INT,
    edge_types: Sequence[str] | None = None,
    first: int = 0,
    arrival_ms: float = 0.0,
    ts: Sequence[int | None] = (),
    keys: Sequence[Id | None] = (),
) -> Events:
    """A block from rows such as ("add_edge", 1, 2); positions count from `first` + 1.

    `ts` and `keys`: of each event, None without; empty where none has any.

    Rows: ("add_vertex", id[, x]), ("del_vertex", id), ("set_features", id, x),
    ("add_edge", src, dst[, value[, type[, further values]]]), ("del_edge", src, dst[, type]), with x any sequence of
    numbers, and values in the order of EDGE_COLUMNS. Of graphs with named kinds, the id of a vertex is (kind, id).
    """
    builder, kinds = EventBuilder(features, id_kind, edge_types), features.kinds
    position = first
    for name, *fields in rows:
        position += 1
        op = OP_NAMES.index(str(name))
        if op in (OP_ADD_VERTEX, OP_DEL_VERTEX, OP_SET_FEATURES):
            vertex: Any = fields[0]
            name, vertex = vertex if kinds and kinds.are_named else (None, vertex)
            kind = kinds.kind_codes[name] if kinds and name is not None else 0
            x = features.row(fields[1], kind) if len(fields) > 1 and fields[1] is not None else None
            builder.vertex(op, vertex, x, position, kind)
            continue
        rest = fields[2:]
        values: list[Any] = [rest.pop(0)] if op == OP_ADD_EDGE and rest else []
        named = rest[0] if rest and op in (OP_ADD_EDGE, OP_DEL_EDGE) else None
        etype = 0 if named is None else builder.type_code(str(named))
        values += rest[1:]
        row = *values, *PLAIN_EDGE[len(values) :]
        builder.edge(op, fields[0], fields[1], row, etype, position)  # type: ignore[arg-type]
        if keys and (key := keys[len(builder) - 1]) is not None:
            builder.key(key)
    builder.ts = {event: one for event, one in enumerate(ts) if one is not None}
    return builder.build(position, arrival_ms=arrival_ms)
