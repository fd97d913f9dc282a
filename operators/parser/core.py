"""The Parser's core: bytes or table rows in, validated columnar events and dead letters out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from freshet.operators.limits import ID_BYTES_MAX
from freshet.operators.parser.arrow.message import ARROW_STREAM, read_arrow
from freshet.operators.parser.columns import (
    NO_OP,
    TypeColumn,
    all_columns,
    are_exact,
    features,
    finite_lists,
    float32,
    is_text,
    known_columns,
    number_lists,
    op_codes,
    pick_int_ids,
    pick_string_ids,
)
from freshet.operators.parser.dead_letters import DeadLetter
from freshet.operators.parser.files import Chunk
from freshet.operators.parser.formats import BOM
from freshet.operators.parser.mapping import EventMap, MapFailedError
from freshet.operators.parser.records import records, with_whole_ids
from freshet.operators.parser.rejects import LETTERS_MAX, Origin, Place, Rejects, rest_of_message
from freshet.operators.parser.rules import Rules, is_add_vertex_or_set
from freshet.partitioner.event_builder import EventBuilder
from freshet.partitioner.events import OP_ADD_EDGE, OP_SET_FEATURES, STRING, Events
from freshet.schema import EdgeValues, Features

__all__ = ["Origin", "Parser", "RawMessage"]

Table: TypeAlias = pa.Table | pa.RecordBatch

_NO_VALUE = "no value: a tombstone is no event"
_PEEK = 256  # rows looked at together where the rules are asked for each
# Rows of a message whose columns only the rules can judge, at some 12 us a row: they may take no bytes at all.
_SLOW_ROWS_MAX = 1 << 16


class RawMessage(NamedTuple):
    """A Kafka message: its offset in its partition, and its value (None: a tombstone)."""

    offset: int
    value: bytes | None


class Parser:
    """Turns records into events by the rules of the interface; what breaks one becomes a dead letter.

    Args:
        features: the model's raw features.
        id_kind: "int" or "string"; None while the first accepted event is to decide it (`id_kind` tells).
        edge_types: the edge types of a typed model; None takes any.
        events_map: JMESPath expressions by event field; only the fields that it names are then read.
        id_bytes_max: the longest that a string id, or the name of an edge type, may be in UTF-8.

    Raises:
        ValueError: an unknown id kind, an unknown field in the map, or an expression that is no JMESPath.
    """

    def __init__(
        self,
        features: Features,
        id_kind: str | None = None,
        edge_types: Sequence[str] | None = None,
        events_map: Mapping[str, str] | None = None,
        id_bytes_max: int = ID_BYTES_MAX,
    ) -> None:
        self._rules = Rules(features, id_kind, edge_types, id_bytes_max)
        self._map = EventMap(events_map) if events_map else None
        self._append = self._rules.append if self._map is None else self._append_mapped

    @property
    def id_kind(self) -> str | None:
        """The kind of the job's ids, None while it is open."""
        return self._rules.id_kind

    @property
    def is_mapped(self) -> bool:
        """Whether records are mapped, and so may need any of their columns."""
        return self._map is not None

    def parse_chunk(
        self,
        chunk: Chunk,
        data: bytes | pa.RecordBatch,
        arrival_ms: float = 0.0,
        whole: Callable[[], Table] | None = None,
    ) -> tuple[Events, list[DeadLetter]]:
        """The events of a chunk of a file, from what a `ChunkReader` made of it; `whole` as in `parse_table`."""
        origin = Origin(chunk.source, chunk.name)
        if isinstance(data, bytes):
            return self.parse_jsonl(data, origin, chunk.first, arrival_ms)
        return self.parse_table(data, origin, chunk.first, arrival_ms, whole)

    def parse_jsonl(
        self, data: bytes, origin: Origin, first_line: int = 0, arrival_ms: float = 0.0
    ) -> tuple[Events, list[DeadLetter]]:
        """The events of whole lines, the first of which is line `first_line` of its file."""
        builder = self._rules.builder()
        letters: list[DeadLetter] = []
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        end = first_line + len(lines)
        with np.errstate(over="ignore"):
            self._append_lines(lines, range(first_line + 1, end + 1), builder, origin, letters, sys.maxsize)
        return builder.build(end, origin.source, origin.partition, arrival_ms), letters

    def parse_messages(
        self, messages: Sequence[RawMessage], origin: Origin, arrival_ms: float = 0.0
    ) -> tuple[Events, list[DeadLetter]]:
        """The events of Kafka messages of one partition, in the order of their offsets.

        A message holds one event or several as JSON, one a line, or an Arrow IPC stream, which the first bytes tell.
        All of its events and dead letters stand at its offset; past `LETTERS_MAX` bad records one letter has the rest.
        """
        builder = self._rules.builder()
        blocks: list[Events] = []
        letters: list[DeadLetter] = []
        end = 0
        with np.errstate(over="ignore"):
            for offset, value in messages:
                end = offset + 1
                if value is None:
                    builder.reject()
                    letters.append(DeadLetter(_NO_VALUE, origin.name, origin.partition, offset, b""))
                elif not value.startswith(ARROW_STREAM):
                    self._append_lines(value.split(b"\n"), repeat(end), builder, origin, letters, LETTERS_MAX)
                elif isinstance(table := self._read_arrow(value), str):
                    builder.reject()
                    letters.append(DeadLetter(table, origin.name, origin.partition, offset, value))
                else:
                    blocks.append(builder.build(offset, origin.source, origin.partition, arrival_ms))
                    place = Place(origin, offset, table.num_rows, arrival_ms, partial(_same, table), in_message=True)
                    events, more = self._parse_table(table, place)
                    blocks.append(events)
                    letters += more
                    builder = self._rules.builder()  # by the kind of ids that the table may have decided
        blocks.append(builder.build(end, origin.source, origin.partition, arrival_ms))
        return Events.concatenate(blocks), letters

    def _append_lines(
        self,
        lines: Sequence[bytes],
        positions: Iterable[int],
        builder: EventBuilder,
        origin: Origin,
        letters: list[DeadLetter],
        letters_max: int,
    ) -> None:
        """Append the events of lines; `positions` are the offsets that follow each."""
        append, loads = self._append, orjson.loads
        bad = position = 0
        for line, position in zip(lines, positions, strict=False):
            try:
                record = loads(line)
                error = append(record, builder, position)
            except orjson.JSONDecodeError as cause:
                text = line.removeprefix(BOM)
                if not text.strip():
                    continue
                error = _not_json(line, cause) if len(text) == len(line) else self._append_text(text, builder, position)
            if error is not None:
                builder.reject()
                bad += 1
                if bad <= letters_max:
                    letters.append(DeadLetter(error, origin.name, origin.partition, position - 1, line))
        if bad > letters_max:
            letters.append(rest_of_message(origin, position - 1, bad - letters_max))

    def _append_text(self, text: bytes, builder: EventBuilder, position: int) -> str | None:
        """Append the event of a line that had a byte order mark."""
        try:
            record = orjson.loads(text)
        except orjson.JSONDecodeError as cause:
            return _not_json(text, cause)
        return self._append(record, builder, position)

    def _read_arrow(self, value: bytes) -> pa.Table | str:
        """The table in a message, or why it can't be taken."""
        table = read_arrow(value)
        if isinstance(table, str) or table.num_rows <= _SLOW_ROWS_MAX:
            return table
        if self._map is None and are_exact(known_columns(table)):
            return table
        return f"too many rows in an Arrow IPC stream that is read row by row: expected at most {_SLOW_ROWS_MAX:,}"

    def parse_table(
        self,
        table: Table,
        origin: Origin,
        first_row: int = 0,
        arrival_ms: float = 0.0,
        whole: Callable[[], Table] | None = None,
    ) -> tuple[Events, list[DeadLetter]]:
        """The events of a table's rows, the first of which is row `first_row` of its file.

        `whole` gives the same rows with all columns, for dead letters, where the table has some of them alone.
        """
        return self._parse_table(
            table, Place(origin, first_row, table.num_rows, arrival_ms, whole or partial(_same, table))
        )

    def _parse_table(self, table: Table, place: Place) -> tuple[Events, list[DeadLetter]]:
        if self._map is not None:
            return self._parse_rows(all_columns(table), place)
        columns = known_columns(table)
        early = self._decide_id_kind(columns, table.num_rows) if self.id_kind is None else {}
        # None: a row that only the slow rules take
        return self._parse_columns(columns, place, early) or self._parse_rows(columns, place)

    def _append_row(self, record: dict[str, Any], builder: EventBuilder, position: int) -> str | None:
        """Append the event of a row of a table."""
        if self._map is not None:
            return self._append_mapped(record, builder, position, is_row=True)
        return self._rules.append(with_whole_ids(record), builder, position)

    def _append_mapped(self, record: Any, builder: EventBuilder, position: int, is_row: bool = False) -> str | None:
        assert self._map is not None
        try:
            event = self._map(record)
        except MapFailedError as error:
            return str(error)
        why = self._rules.append(with_whole_ids(event) if is_row else event, builder, position)
        return None if why is None else self._map.explain(why)

    def _decide_id_kind(self, columns: Mapping[str, pa.Array], n: int) -> dict[int, str]:
        """Let the first row that is accepted decide the kind of ids; returns why each row before it is bad."""
        errors: dict[int, str] = {}
        ops, rows = columns.get("op"), np.arange(n)
        if ops is None or is_text(ops.type):  # a row without an operation says nothing of ids
            rows = np.flatnonzero(op_codes(ops, n) != NO_OP)
        with np.errstate(over="ignore"):
            for begin in range(0, len(rows), _PEEK):
                some = rows[begin : begin + _PEEK]
                for row, record in zip(some.tolist(), records(columns, some), strict=True):
                    error = self._append_row(record, self._rules.builder(), 0)
                    if error is None:
                        return errors
                    errors[row] = error
        return errors

    def _parse_rows(self, columns: Mapping[str, pa.Array], place: Place) -> tuple[Events, list[DeadLetter]]:
        """All rows one by one: slow, and taken only for mapped records and odd columns."""
        builder, rejects, positions = self._rules.builder(), Rejects(place), place.positions().tolist()
        with np.errstate(over="ignore"):
            for begin in range(0, place.rows, _PEEK):
                some, errors = np.arange(begin, min(begin + _PEEK, place.rows)), {}
                for row, record in enumerate(records(columns, some), begin):
                    error = self._append_row(record, builder, positions[row])
                    if error is not None:
                        builder.reject()
                        errors[row] = error
                rejects.add(errors)
        origin = place.origin
        return builder.build(place.end, origin.source, origin.partition, place.arrival_ms), rejects.letters()

    def _parse_columns(
        self, columns: Mapping[str, pa.Array], place: Place, early: Mapping[int, str]
    ) -> tuple[Events, list[DeadLetter]] | None:
        """All rows at once; None where one looks bad that is not. `early`: why the first rows are bad."""
        n = place.rows
        rules = self._rules
        op = op_codes(columns.get("op"), n)
        edge = (op >= OP_ADD_EDGE) & (op != NO_OP)
        adds = op == OP_ADD_EDGE
        pick = pick_string_ids if self.id_kind == STRING else pick_int_ids
        a, b, good = pick(edge, columns, rules.id_bytes_max)
        weight = float32(columns.get("weight"), n, 1.0)
        types = TypeColumn(columns.get("type"), n)
        good &= op != NO_OP
        attr_good, attr = finite_lists(columns.get("attr"), n)
        good &= ~adds | (weight.good & attr_good)
        good &= ~edge | types.good(rules.edge_types, rules.id_bytes_max)
        x, x_rows, x_good = self._features(columns.get("x"), op)
        good &= x_good
        letters = self._explain(columns, np.flatnonzero(~good), place, early)
        if letters is None:
            return None
        rows = np.flatnonzero(good)
        etype, table = types.resolve(rows[edge[rows]], rules.edge_types)
        x_row = np.full(n, -1, np.int32)
        kept = good[x_rows]
        x_row[x_rows[kept]] = np.arange(kept.sum(), dtype=np.int32)
        if not kept.all():
            x = x[kept]
        events = Events(
            op=op,
            a=a,
            b=b,
            values=EdgeValues(
                np.where(adds, weight.values, np.float32(1)),
                None if attr is None else np.where(adds, attr, np.int32(-1)),
            ),
            etype=etype.astype(np.int32),
            x_row=x_row,
            x=x,
            position=place.positions(),
            source=np.full(n, place.origin.source, np.int16),
            partition=np.full(n, place.origin.partition, np.int16),
            types=table,
            end_position=place.end,
            end_source=place.origin.source,
            end_partition=place.origin.partition,
            arrival_ms=place.arrival_ms,
        )
        return (events if len(rows) == n else _only(events, good, rows)), letters

    def _features(self, array: pa.Array | None, op: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Features of the rows that may carry them.

        Returns:
            (x, rows, good): x (k, features), the k rows that it belongs to, and a mask over all rows that is False
            where features are missing or bad.
        """
        width = self._rules.features.width
        good = np.ones(len(op), bool)
        none = np.empty((0, width), np.float32), np.empty(0, np.int64)
        if array is None:
            return *none, op != OP_SET_FEATURES
        wanted = is_add_vertex_or_set(op)
        lists = number_lists(array)
        if lists is None:
            return *none, ~wanted | (array.is_null().to_numpy(zero_copy_only=False) & (op != OP_SET_FEATURES))
        good[(op == OP_SET_FEATURES) & ~lists.given] = False
        rows = np.flatnonzero(wanted & lists.given)
        x, x_good = features(lists, rows, width)
        good[rows[~x_good]] = False
        return x, rows[x_good], good

    def _explain(
        self, columns: Mapping[str, pa.Array], rows: np.ndarray, place: Place, early: Mapping[int, str]
    ) -> list[DeadLetter] | None:
        """The dead letters of rows that look bad; None if the rules take one of them after all."""
        rejects, exact = Rejects(place), are_exact(columns)
        scratch = EventBuilder(self._rules.features)
        with np.errstate(over="ignore"):
            for begin in range(0, len(rows), _PEEK):
                if exact and rejects.is_full:
                    rejects.count(len(rows) - begin)
                    break
                some, errors = rows[begin : begin + _PEEK], {}
                for row, record in zip(some.tolist(), records(columns, some), strict=True):
                    error = early.get(row) or self._append_row(record, scratch, 0)
                    if error is None:
                        return None
                    errors[row] = error
                rejects.add(errors)
        return rejects.letters()


def _same(table: Table) -> Table:
    return table


def _only(events: Events, good: np.ndarray, rows: np.ndarray) -> Events:
    """The good rows of a block, the others counted as rejected; its x has those of the good rows alone."""
    before = np.cumsum(good) - good
    return Events(
        op=events.op[rows],
        a=events.a.take(rows),
        b=events.b.take(rows),
        values=events.values[rows],
        etype=events.etype[rows],
        x_row=events.x_row[rows],
        x=events.x,
        position=events.position[rows],
        source=events.source[rows],
        partition=events.partition[rows],
        types=events.types,
        reject_rows=before[~good].astype(np.int32),
        end_position=events.end_position,
        end_source=events.end_source,
        end_partition=events.end_partition,
        arrival_ms=events.arrival_ms,
    )


def _not_json(line: bytes, cause: Exception) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    return f"not JSON: {cause}"
