"""The columns of every kind of block: what each means, its dtype, and who sends and reads it.

A sender omits empty columns. Slots are numbered by part; a task has one or more parts. This module and state/codec.py
define the layout of blocks. A job's journal contains blocks of events, so a changed name or column needs a new format
version.

Where vertices have kinds, slots are numbered by part and kind, and TOPOLOGY has the columns of vertices once a kind,
those of edges once a relation: their names begin with `kind_prefix` or `relation_prefix`. Sources of edges have slots
of the kind that the relation leads from, destinations of the one that it leads to. With a relation's prefix, contexts
are those of its destinations in the relation alone; they are there where layers read them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from freshet.schema import ATTR_VALUES, EDGE_COLUMNS, kept_columns

TOPOLOGY, SYNC, PARTIAL, ROWS, EVENTS = 1, 2, 3, 4, 5

Columns = dict[str, np.ndarray]


class Column(NamedTuple):
    """A column: (n,) values of the dtype, or where it has a width rows (n, width) of them."""

    name: str
    dtype: str
    meaning: str
    width: str = ""  # what it is called in the layer's plan


class BlockKind(NamedTuple):
    """A kind of block: its sender, its readers, and its columns."""

    sender: str
    reader: str
    columns: tuple[Column, ...]


def kind_prefix(kind: int | None) -> str:
    """Return what the names of columns of vertices of a kind begin with; nothing where there are no kinds."""
    return "" if kind is None else f"k{kind}."


def relation_prefix(relation: int | None) -> str:
    """Return what the names of columns of edges of a relation begin with; nothing where there are no kinds."""
    return "" if relation is None else f"r{relation}."


@lru_cache(maxsize=1 << 14)
def split_name(name: str) -> tuple[str, str]:
    """Return the prefix of a column's name, empty where it has none, and the rest."""
    at = name.find(".") + 1
    return name[:at], name[at:]


def _to(records: str) -> Column:
    return Column(
        f"{records}_to", "i2", "of the records that follow: their part; left out where the task has one alone"
    )


def _spans(records: str) -> tuple[Column, Column]:
    """Return the columns with the range of each part, for tasks with several; ranges may have gaps between them."""
    where = "of the records that follow: for each part of the task, where those of it"
    return (
        Column(f"{records}_begin", "i8", f"{where} begin; left out where the task has one part alone"),
        Column(f"{records}_end", "i8", f"{where} end; left out likewise"),
    )


class EdgeGroup(NamedTuple):
    """Records of edges in a TOPOLOGY block: columns of their sources, of their destinations, and of what they carry."""

    name: str
    meaning: str
    values: tuple[
        tuple[str, str], ...
    ]  # of each value that a record has: what its column's name ends with, its meaning
    has_attr: bool = True  # of edges that are gone nobody needs them

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns: source, destination, then the values."""
        return tuple(f"{self.name}_{end}" for end in ("src", "dst", *(end for end, _ in self.values)))

    @property
    def part(self) -> str:
        """The name of the column of their parts."""
        return f"{self.name}_to"

    @property
    def type(self) -> str:
        """The name of the column of their types, which is there where the model reads attributes."""
        return f"{self.name}_type"

    @property
    def attr(self) -> str:
        """The name of the column of their attributes, likewise."""
        return f"{self.name}_attr"

    @property
    def row(self) -> str:
        """The name of the column of their numbers, which edges with keys have."""
        return f"{self.name}_row"

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of the group."""
        src, dst, *values = self.names
        ends = _to(self.name), Column(src, "i4", f"{self.meaning}: source"), Column(dst, "i4", "destination")
        carried = (Column(name, "f4", what) for name, (_, what) in zip(values, self.values, strict=True))
        where = "where the model reads attributes"
        type_, attr = (
            Column(self.type, "i4", f"code of their type, {where}"),
            Column(self.attr, "f4", f"the attributes that they have now, {where}", "edge_features"),
        )
        row = Column(self.row, "i4", "their numbers in the graph, where edges have keys; there are no types then")
        return *ends, *carried, type_, row, *((attr,) if self.has_attr else ())


def _values(end: str, when: str) -> tuple[tuple[str, str], ...]:
    """Columns of the values of an edge that the graph keeps; all but the first go by their names."""
    return tuple(
        (f"{end}_{column.name}" if k else end, f"{column.meaning} {when}".rstrip())
        for k, column in enumerate(kept_columns())
    )


DELETED_EDGES = EdgeGroup("del", "edges deleted", _values("w", "that they had"), has_attr=False)
CHANGED_EDGES = EdgeGroup(
    "rew", "edges that carry something else", _values("old", "that they had") + _values("new", "that they have now")
)
ADDED_EDGES = EdgeGroup("add", "edges added", _values("w", ""))

_CONTROL = Column("ctl", "i8", "control values of the epoch (operators/control.py)")
_NAMES = (
    Column("m_key", "i8", "of new vertices: their keys"),
    Column("m_off", "i8", "of new vertices with string ids: where each id begins in m_name, and the last one ends"),
    Column("m_name", "u1", "those ids, as UTF-8"),
)
_POSITIONS = (
    Column("pos_source", "i2", "input that the epoch ends with: index of the source"),
    Column("pos_partition", "i4", "its partition"),
    Column("pos_next", "i8", "offset of the first record that is not covered whole"),
    Column("pos_events", "i8", "events of the epoch that came from there"),
)
# Set by the Splitter; each operator passes them on to the tasks of the next one that have the parts ("own" below).
_TRAVELLING = (
    _CONTROL,
    _to("m"),
    Column("m_slot", "i4", "new masters"),
    *_NAMES,
    _to("d"),
    Column("d_slot", "i4", "masters that go at the end of the epoch"),
    Column("d_key", "i8", "their keys"),
    _to("r"),
    Column("r_slot", "i4", "new replicas"),
    Column("r_part", "i2", "part of their master"),
    Column("r_home", "i4", "its slot there"),
    _to("f"),
    Column("f_slot", "i4", "replicas that go at the end of the epoch"),
    *DELETED_EDGES.columns,
    *CHANGED_EDGES.columns,
    *ADDED_EDGES.columns,
    _to("c"),
    Column("c_slot", "i4", "masters with a new context"),
    Column("c_count", "i4", "in-edges, in all parts"),
    Column("c_degree", "f8", "weighted in-degree, without self-loops"),
    Column("c_loop", "f4", "the same of self-loops alone, NaN for none"),
    Column("c_out_count", "i4", "out-edges without self-loops, where layers read them"),
    Column("c_out_degree", "f8", "weighted out-degree without self-loops, likewise"),
    _to("ra"),
    Column("ra_slot", "i4", "masters with a replica more"),
    Column("ra_part", "i2", "part of the replica"),
    Column("ra_rslot", "i4", "its slot there"),
    _to("rd"),
    Column("rd_slot", "i4", "masters with a replica less"),
    Column("rd_part", "i2", "part of the replica that goes"),
    _to("s"),
    Column("s_slot", "i4", "masters that become split: they have in-edges in other parts"),
    _to("u"),
    Column("u_slot", "i4", "masters that become whole (dead ones stand in d_slot alone)"),
    *_POSITIONS,
)

TABLE = {
    TOPOLOGY: BlockKind(
        "Partitioner",
        "Storage 0",
        (
            *_TRAVELLING,
            _to("x0"),
            Column("x0_slot", "i4", "masters whose features are set"),
            Column("x0", "f4", "those features, of one kind", "features"),
        ),
    ),
    SYNC: BlockKind(
        "Storage or Tail",
        "Storage of the next layer",
        (
            *_TRAVELLING,  # to the own task, from a Storage
            _to("o"),
            Column("o_slot", "i4", "to the own task: vertices with new rows, those of the first rows of zo"),
            Column("zo", "f4", "what they send as sources, and beside it their own row", "message_width + self_width"),
            _to("z"),
            Column("z_slot", "i4", "replicas of vertices with new rows"),
            Column("z_row", "i4", "which row of zo (own task) or z is theirs; left out where that is the same one"),
            Column("z", "f4", "to other tasks: what vertices send as sources", "message_width"),
        ),
    ),
    PARTIAL: BlockKind(
        "Storage",
        "Tail of the layer",
        (
            *_TRAVELLING,  # to the own task
            _to("p"),
            Column("p_from", "i2", "part that holds the synopsis; left out where each part is a task"),
            Column("p_slot", "i4", "split vertices that are mastered there"),
            Column("p_type", "i4", "of many relations that share a store: which of these, counted from 0"),
            Column("p", "f4", "the sender's synopsis of each", "synopsis_width"),
            Column("p_count", "i4", "in-edges that it holds messages of; 0: the sender has none any more"),
            _to("t"),
            Column("t_slot", "i4", "to the own task: split vertices with new own rows"),
            Column("t", "f4", "those rows", "message_width or self_width"),
        ),
    ),
    ROWS: BlockKind(
        "Storage or Tail of the last layer",
        "Sink",
        (
            _CONTROL,  # from a Storage
            *_spans("key"),
            Column("key", "i8", "vertices whose embeddings changed"),
            Column("row", "f4", "the embeddings", "out_width"),
            *_spans("del_key"),
            Column("del_key", "i8", "vertices that were deleted"),
            *_NAMES,
            *_POSITIONS,  # to the task of part 0
        ),
    ),
    EVENTS: BlockKind(
        "Parser",
        "Partitioner, and its journal",
        (
            Column(
                "ctl", "i8", "position, source and partition of the end; width of the features; first position or -1"
            ),
            Column("arrival", "f8", "when the block's first record came, in milliseconds"),
            Column("op", "u1", "what each event does"),
            Column("a", "i8", "vertex, or source of the edge"),
            Column("a_off", "i8", "the same where ids are strings: where each begins in a_utf8, and the last one ends"),
            Column("a_utf8", "u1", "those ids"),
            Column("b", "i8", "destination of the edge"),
            Column("b_off", "i8", "the same where ids are strings: where each begins in b_utf8, and the last one ends"),
            Column("b_utf8", "u1", "those ids"),
            *(
                Column(one.name, one.dtype, f"of edges: {one.meaning}, unless it is {one.default}")
                for one in EDGE_COLUMNS
            ),
            Column(ATTR_VALUES, "f4", "of edges: attributes, where the model reads any", "edge_features"),
            Column("etype", "i4", "type of the edge, as an index of the block's types"),
            Column("types_off", "i8", "the block's types: where each name begins in types_utf8, and the last one ends"),
            Column("types_utf8", "u1", "those names"),
            Column("x_row", "i4", "row of x with the event's features, -1 for none"),
            Column("x", "f4", "features; of several kinds one row after the other", "features"),
            Column("x_kind", "u1", "of features of several kinds: the kind of each row"),
            Column("x_widths", "i4", "of features of several kinds: the width of each kind"),
            Column("kind", "u1", "kind of the vertex of events about one; left out where it is the first throughout"),
            Column("ts", "i8", "milliseconds that events say, -2**63 without; left out where none has any"),
            Column("edge_key", "i8", "keys of edges, -2**63 without; left out where none has any"),
            Column("edge_key_off", "i8", "the same where keys are strings: where each begins in edge_key_utf8"),
            Column("edge_key_utf8", "u1", "those keys"),
            Column("position", "i8", "input position after the event, unless they count up from the first"),
            Column("source", "i2", "source, unless it is that of the block's end throughout"),
            Column("partition", "i2", "partition, unless it is that of the block's end throughout"),
            Column("rejects", "i4", "for each rejected record, how many events stand before it"),
            Column("reasons_off", "i8", "why: where each reason begins in reasons_utf8, and the last one ends"),
            Column("reasons_utf8", "u1", "those reasons"),
            Column("reason_records", "i8", "records that were rejected for each"),
        ),
    ),
}

TRAVELLING = tuple(column.name for column in _TRAVELLING)
POSITIONS = tuple(column.name for column in _POSITIONS)


class _Dtypes(dict[str, np.dtype[Any]]):
    """Dtypes by name, that of a prefixed name among them."""

    def __missing__(self, name: str) -> np.dtype[Any]:
        prefix, plain = split_name(name)
        if not prefix:
            raise KeyError(name)
        return self[plain]


# A name has one dtype, in whatever kind of block it stands.
DTYPES = _Dtypes({column.name: np.dtype(column.dtype) for kind in TABLE.values() for column in kind.columns})
