"""Validated graph events as columns: what the Parser hands to the Partitioner, and the bytes they travel as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from freshet.partitioner.ids import INT, NO_KEY, STRING, Ids, no_keys
from freshet.partitioner.type_tables import merge_types, own_types
from freshet.schema import EdgeValues, FeatureRows, Features, kept_columns
from freshet.state.block_columns import EVENTS
from freshet.state.codec import Block, Header, decode, encode

OP_ADD_VERTEX, OP_DEL_VERTEX, OP_SET_FEATURES, OP_ADD_EDGE, OP_DEL_EDGE = range(5)
OP_DEL_EDGES = 5  # a del_edge of all keys, which has no name of its own: only jobs whose edges have keys have it
OP_NAMES = ("add_vertex", "del_vertex", "set_features", "add_edge", "del_edge")
ALL_KEYS = "*"  # as the key of a del_edge
NO_TS = -(2**63)  # in columns of `ts`: the event has none
DEFAULT_TYPE = ""  # the edge type of models without types where an event names none

_CTL = 8  # int64s of the ctl column
_PLAIN = "op", "position", "source", "partition"  # columns that every block has as they are


@dataclass(frozen=True, slots=True)
class Events:
    """A block of n accepted events in arrival order.

    Shapes:
        op: (n,) uint8; a, b: n ids (the vertex or the edge's source; the edge's destination, 0 or "" for a vertex)
        values: n values of edges, the default where the event is no add_edge
        etype: (n,) int32, index into `types`, 0 where none is given
        x_row: (n,) int32, row in x, -1 without features; x: k rows of features
        position: (n,) int64, the offset that follows the event's record in its source partition: the line or row of a
            file, or the message, all events of which have the same
        source, partition: (n,) int16
        reject_rows: (r,) int32, for each rejected record the number of accepted events before it in this block
        ts: (n,) int64 milliseconds that events say, NO_TS without; None: no event has any
        kind: (n,) uint8, the kind of the vertex of each event about one; None: 0 throughout, as without kinds
        keys: n keys of edges, integers or strings whatever the ids are; None: no event has one
        reasons: why its records were rejected, and how many for that; where blocks are joined or cut, there are none
        tombstones: messages without a value that were skipped; where a block is cut, there are none

    Invariant: the rows of x stand in arrival order (x_row without -1 counts up from 0), which `slice` relies on.
    `types` is a table of this block, of any length; what joins the blocks of a job is the Partitioner's table. Slices
    may share it, so that it may name types that none of their events has. types[0] is the default: DEFAULT_TYPE, or the
    first of a typed model's list, which is the table wherever that is no longer than the block.
    """

    op: np.ndarray
    a: Ids
    b: Ids
    values: EdgeValues
    etype: np.ndarray
    x_row: np.ndarray
    x: FeatureRows
    position: np.ndarray
    source: np.ndarray
    partition: np.ndarray
    types: tuple[str, ...] = (DEFAULT_TYPE,)
    reject_rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    end_position: int = 0  # the offset of the first record after the block, or of the message that goes on after it,
    end_source: int = 0  # in this source
    end_partition: int = 0  # and this partition
    arrival_ms: float = 0.0  # when the block's first event came to the Parser
    reasons: tuple[tuple[str, int], ...] = ()
    ts: np.ndarray | None = None
    kind: np.ndarray | None = None
    tombstones: int = 0
    keys: Ids | None = None

    @staticmethod
    def empty(features: Features, id_kind: str | None = None) -> Events:
        """A block without events."""
        ids = Ids(STRING if id_kind == STRING else INT)
        shorts, ints = np.empty(0, np.int16), np.empty(0, np.int64)
        return Events(
            op=np.empty(0, np.uint8),
            a=ids,
            b=ids,
            values=EdgeValues.default(0),
            etype=np.empty(0, np.int32),
            x_row=np.empty(0, np.int32),
            x=FeatureRows.none(features),
            position=ints,
            source=shorts,
            partition=shorts,
        )

    def __len__(self) -> int:
        return len(self.op)

    @property
    def rejected(self) -> int:
        """Rejected records that stand in this block."""
        return len(self.reject_rows)

    def key_of(self, event: int) -> int | str | None:
        """Return the key of an event, None without."""
        if self.keys is None:
            return None
        key = self.keys.slice(event, event + 1).to_one()
        return None if key in (NO_KEY, "") else key

    @property
    def has_keys(self) -> bool:
        """Return whether an event has a key; that it deletes all edges of a pair is no key, but its operation."""
        if self.keys is None:
            return False
        given = self.keys.ints != NO_KEY if self.keys.kind == INT else np.diff(self.keys.offsets) > 0
        return bool(given.any())

    @property
    def features(self) -> Features:
        """The raw features that its vertices have, of one kind."""
        return self.x.features

    def slice(self, start: int, stop: int) -> Events:
        """Events start to stop as views; a rejected record goes with the event after it, or the block's last slice."""
        if start <= 0 and stop >= len(self):
            return self
        stop = min(stop, len(self))
        last = stop == len(self)
        x_row, x = self.x_row[start:stop], self.x[:0]
        given = x_row[x_row >= 0]
        if len(given):
            x = self.x[given[0] : given[-1] + 1]
            x_row = np.where(x_row >= 0, x_row - given[0], np.int32(-1)).astype(np.int32, copy=False)
        rejects = self.reject_rows
        if len(rejects):
            rejects = rejects[(rejects >= start) & ((rejects < stop) | last)] - np.int32(start)
        position, source, partition = self.end_position, self.end_source, self.end_partition
        if not last and stop > start:
            source, partition = int(self.source[stop - 1]), int(self.partition[stop - 1])
            inside = self.position[stop] == self.position[stop - 1]  # of a message
            position = int(self.position[stop - 1] - inside)
        etype, types = own_types(self.etype[start:stop], self.types)
        return replace(
            self._columns_at(slice(start, stop)),
            a=self.a.slice(start, stop),
            b=self.b.slice(start, stop),
            keys=None if self.keys is None else self.keys.slice(start, stop),
            etype=etype,
            x_row=x_row,
            x=x,
            types=types,
            reject_rows=rejects,
            end_position=position,
            end_source=source,
            end_partition=partition,
        )

    def with_keys(self, keys: Ids) -> Events:
        """Return the events with these keys."""
        return replace(self, keys=keys)

    def take(self, rows: np.ndarray) -> Events:
        """The events of these rows, ascending, as a block that ends where this one does; x stays as it is."""
        at = self._columns_at(rows)
        etype, x_row, none = self.etype[rows], self.x_row[rows], self.reject_rows[:0]
        keys = None if self.keys is None else self.keys.take(rows)
        at = replace(at, a=self.a.take(rows), b=self.b.take(rows), keys=keys)
        return replace(at, etype=etype, x_row=x_row, reject_rows=none)

    def only(self, good: np.ndarray) -> Events:
        """The events where `good` is True, the others counted as rejected; x stays as it is."""
        before = np.cumsum(np.append(0, good))
        rejects = np.sort(np.append(before[self.reject_rows], before[:-1][~good])).astype(np.int32)
        return replace(self.take(np.flatnonzero(good)), reject_rows=rejects, tombstones=self.tombstones)

    def _columns_at(self, rows: Any) -> Events:
        """The block with the plainest of its columns at these rows (a slice, or an index array)."""
        plain: dict[str, Any] = {name: getattr(self, name)[rows] for name in _PLAIN}
        ts, kind = (None if one is None else one[rows] for one in (self.ts, self.kind))
        return replace(self, values=self.values[rows], ts=ts, kind=kind, reasons=(), tombstones=0, **plain)

    @staticmethod
    def concatenate(blocks: Sequence[Events]) -> Events:
        """One block of all events, in order; it ends where the last one ends and arrived when the first did."""
        if len(blocks) == 1:
            return blocks[0]
        types, etypes = merge_types([block.types for block in blocks], [block.etype for block in blocks])
        lengths = [len(block) for block in blocks]
        bases = np.cumsum([0, *lengths])
        x_bases = np.cumsum([0] + [len(block.x) for block in blocks])
        x_rows = [
            np.where(block.x_row >= 0, block.x_row + base, -1) for block, base in zip(blocks, x_bases, strict=False)
        ]
        rejects = [block.reject_rows + base for block, base in zip(blocks, bases, strict=False)]
        plain: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in blocks]) for name in _PLAIN}
        return replace(
            blocks[-1],
            a=Ids.concatenate([block.a for block in blocks]),
            b=Ids.concatenate([block.b for block in blocks]),
            values=EdgeValues.concatenate([block.values for block in blocks]),
            etype=np.concatenate(etypes),
            x_row=np.concatenate(x_rows).astype(np.int32),
            x=FeatureRows.concatenate([block.x for block in blocks]),
            types=types,
            reject_rows=np.concatenate(rejects).astype(np.int32),
            arrival_ms=min(block.arrival_ms for block in blocks),
            reasons=(),
            tombstones=sum(block.tombstones for block in blocks),
            ts=_merged([block.ts for block in blocks], lengths, NO_TS, np.int64),
            kind=_merged([block.kind for block in blocks], lengths, 0, np.uint8),
            keys=_merged_keys(blocks),
            **plain,
        )

    def encode(self) -> bytes:
        """The bytes of the block; columns that hold their default throughout are left out."""
        ctl = np.zeros(_CTL, np.int64)
        ctl[:6] = self.end_position, self.end_source, self.end_partition, self.x.widths[0], -1, self.tombstones
        columns = {"ctl": ctl, "arrival": np.array([self.arrival_ms]), "op": self.op}
        columns |= self.a.columns("a") | self.b.columns("b")
        columns["x_row"] = self.x_row if len(self.x) else self.x_row[:0]
        columns |= self.x.columns("x")
        columns["rejects"] = self.reject_rows
        values, kept = self.values.columns(), {column.name for column in kept_columns()}
        columns |= {name: values[name] for name in values if name in kept}
        if self.etype.any():
            columns["etype"] = self.etype
        columns |= values  # the others come behind etype, as in journals since the first version
        if self.ts is not None and (self.ts != NO_TS).any():
            columns["ts"] = self.ts
        if self.kind is not None and self.kind.any():
            columns["kind"] = self.kind
        if self.keys is not None and self.has_keys:
            columns |= self.keys.columns("edge_key")
        if len(self) and (np.diff(self.position) == 1).all():
            ctl[4] = self.position[0]
        else:
            columns["position"] = self.position
        if (self.source != self.end_source).any() or (self.partition != self.end_partition).any():
            columns |= {"source": self.source, "partition": self.partition}
        if self.types != (DEFAULT_TYPE,):
            columns |= Ids.of_strings(self.types).columns("types")
        if self.reasons:
            columns |= Ids.of_strings([reason for reason, _ in self.reasons]).columns("reasons")
            columns["reason_records"] = np.array([records for _, records in self.reasons], np.int64)
        return encode(Header(EVENTS), columns)

    @staticmethod
    def decode(data: bytes) -> Events:
        """The block, as read-only views of `data`.

        Raises:
            ValueError: a block of another kind.
        """
        block = decode(data)
        if block.header.kind != EVENTS:
            msg = f"expected a block of events (kind {EVENTS}), got kind {block.header.kind}"
            raise ValueError(msg)
        columns = block.columns
        ctl = columns["ctl"].tolist()
        op = block.get("op")
        n = len(op)

        def column(name: str, default: int, dtype: str) -> np.ndarray:
            found = columns.get(name)
            return np.full(n, default, dtype) if found is None else found

        position = column("position", 0, "<i8") if ctl[4] < 0 else np.arange(ctl[4], ctl[4] + n, dtype=np.int64)
        named = "types_off" in columns
        return Events(
            op=op,
            a=Ids.from_columns(block, "a"),
            b=Ids.from_columns(block, "b"),
            values=EdgeValues.from_columns(columns, n),
            etype=column("etype", 0, "<i4"),
            x_row=column("x_row", -1, "<i4"),
            x=FeatureRows.from_columns(columns, "x", Features(ctl[3])),
            position=position,
            source=column("source", ctl[1], "<i2"),
            partition=column("partition", ctl[2], "<i2"),
            types=tuple(Ids.from_columns(block, "types").to_list()) if named else (DEFAULT_TYPE,),  # type: ignore[arg-type]
            reject_rows=block.get("rejects"),
            end_position=ctl[0],
            end_source=ctl[1],
            end_partition=ctl[2],
            arrival_ms=float(columns["arrival"][0]),
            reasons=_reasons_in(block),
            ts=columns.get("ts"),
            kind=columns.get("kind"),
            tombstones=ctl[5],
            keys=Ids.from_columns(block, "edge_key") if {"edge_key", "edge_key_off"} & columns.keys() else None,
        )


def largest_ts(ts: np.ndarray, rejected: Sequence[tuple[int, str]]) -> int | None:
    """Return the largest `ts` of all but the `rejected` events, None where none has any."""
    times = np.delete(ts, [event for event, _ in rejected]) if rejected else ts
    largest = int(times.max(initial=NO_TS))
    return None if largest == NO_TS else largest


class EventRange(NamedTuple):
    """Events `start` to `stop` of a block, without a copy: an epoch has one of each block that it takes events of."""

    events: Events
    start: int
    stop: int

    @staticmethod
    def whole(events: Events) -> EventRange:
        """Return a block as one piece."""
        return EventRange(events, 0, len(events))

    @property
    def size(self) -> int:
        """Number of events."""
        return self.stop - self.start

    @property
    def cut(self) -> Events:
        """The events as a block of their own; see `Events.slice`."""
        return self.events.slice(self.start, self.stop)

    @property
    def end(self) -> tuple[int, int, bool]:
        """Source and partition that it ends in, and whether further events of its last message follow there."""
        events, stop = self.events, self.stop
        if stop == len(events):
            return events.end_source, events.end_partition, events.end_position < int(events.position[-1])
        inside = events.position[stop] == events.position[stop - 1]
        return int(events.source[stop - 1]), int(events.partition[stop - 1]), bool(inside)


def _merged_keys(blocks: Sequence[Events]) -> Ids | None:
    """The keys of all blocks, some of which may have none; None where all have none."""
    kinds = [block.keys.kind for block in blocks if block.keys is not None]
    if not kinds:
        return None
    return Ids.concatenate([no_keys(kinds[0], len(one)) if one.keys is None else one.keys for one in blocks])


def _reasons_in(block: Block) -> tuple[tuple[str, int], ...]:
    if "reason_records" not in block.columns:
        return ()
    names, records = Ids.from_columns(block, "reasons").to_list(), block.columns["reason_records"].tolist()
    return tuple(zip(map(str, names), records, strict=True))


def _merged(
    columns: Sequence[np.ndarray | None], lengths: Sequence[int], default: int, dtype: Any
) -> np.ndarray | None:
    """One column of all blocks, some of which may hold the default throughout; None where all do."""
    if all(column is None for column in columns):
        return None
    pairs = zip(columns, lengths, strict=True)
    return np.concatenate([np.full(n, default, dtype) if column is None else column for column, n in pairs])
