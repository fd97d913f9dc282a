"""The records of files and topics, read a second time for `freshet check`, without the job's reader and Parser.

A record comes with its position, which is what follows it: line or row of a file plus 1, offset of a message plus 1.
All records of a message have the position of the message. Blank lines are no records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from freshet.job.errors import UsageError
from freshet.job.results.plain_changes import KEY
from freshet.job.results.plain_rules import Event, PlainRules
from freshet.job.results.plain_text import DELIMITERS, folder_values, opened, text_rows
from freshet.operators.parser.arrow.bounds import ARROW_STREAM, read_arrow
from freshet.operators.parser.arrow.parquet_file import open_parquet
from freshet.operators.parser.event_files import EventFile
from freshet.operators.parser.formats import JSONL
from freshet.operators.parser.registry.decoder import PROTOBUF, Decoder

FIELDS = ("op", "id", "src", "dst", "x", "weight", "type", "attr", "ts")
SNAPSHOT_TABLES = {
    "vertices": ("add_vertex", ("id", "x")),
    "edges": ("add_edge", ("src", "dst", "weight", "type", "attr")),
}
TIME = "ts"
BOM = b"\xef\xbb\xbf"
ODD_ROWS_MAX = 1 << 16  # of an Arrow message whose columns are not of the types that fields have

_ROWS_AT_ONCE = 4096


class Judged(NamedTuple):
    """A record by its position; without an event it is rejected, or a tombstone that is skipped."""

    position: int
    event: Event | None
    is_skipped: bool = False


class _Opaque:
    """A value of an Arrow type that JSON does not have: no field of an event can be one."""


_OPAQUE = _Opaque()


class _Moment(NamedTuple):
    """A timestamp of Arrow in milliseconds since 1970, which no other field than `ts` can be."""

    ms: int


def file_records(file: EventFile, rules: PlainRules, first: int = 0) -> Iterator[Judged]:
    """The records of a file from line or row `first` on.

    Raises: UsageError when it can't be read.
    """
    try:
        if file.format == JSONL:
            yield from _lines_of(file.path, rules, first)
            return
        fields, is_text = _fields_of(rules), file.format in DELIMITERS
        rows: Iterator[dict[str, Any] | None]
        if is_text:
            rows = text_rows(file, fields)
        else:
            constants = folder_values(file)
            rows = (row | constants for row in _rows(READERS[file.format](Path(file.path), fields), fields))
        for number, row in enumerate(rows):
            if number >= first:
                found = [None] if row is None else rules.events(row, is_row=True, is_text=is_text)
                yield from (Judged(number + 1, event) for event in found)
    except (OSError, pa.ArrowException) as error:
        msg = f"--events {file.name}: can't be read: {error}"
        raise UsageError(msg) from None


def message_records(
    messages: Iterable[tuple[Any, ...]], rules: PlainRules, decoder: Decoder | None = None
) -> Iterator[Judged]:
    """The records of messages, which are given as offset, value and, of some without a value, key.

    The job's own decoder reads those whose schemas are in a registry, as a library reads the other formats.
    """
    for offset, value, *key in messages:
        events: Iterable[Event | None] | None
        if value is None:
            events = _tombstone(key[0] if key else None, rules, decoder)
        else:
            events = _message(value, rules) if decoder is None else _decoded(value, rules, decoder)
        if events is None:
            yield Judged(offset + 1, None, is_skipped=True)
        else:
            yield from (Judged(offset + 1, event) for event in events)


def snapshot_events(folder: Path, rules: PlainRules, *, with_ts: bool = False) -> Iterator[Event]:
    """The graph of a snapshot as events: vertices with features, then edges, perhaps with their `ts`.

    Raises: UsageError for a row that is none, or a file that can't be read.
    """
    for name, (op, columns) in SNAPSHOT_TABLES.items():
        path = folder / f"{name}.parquet"
        columns += (TIME,) if with_ts and name == "edges" else ()
        columns += rules.more_fields
        columns += ("key",) if name == "edges" else ()
        in_ms = event_ts_of(folder) is not None  # a job exported them, whatever the unit of events is
        try:
            for number, row in enumerate(_rows(_batches_of(path, columns), columns)):
                if in_ms and type(row.get(TIME)) is int:
                    row[TIME] = _Moment(row[TIME])
                key = row.pop("key", None)
                event = rules.judge({"op": op, **row})
                if event is None:
                    msg = f"--snapshot {path}: row {number} is no {op}: {row}"
                    raise UsageError(msg)
                yield event if key is None else event._replace(key=key)
        except (OSError, pa.ArrowException) as error:
            msg = f"--snapshot {path}: can't be read: {error}"
            raise UsageError(msg) from None


def event_ts_of(snapshot: Path) -> int | None:
    """Return the largest `ts` that the job of an exported snapshot had seen; None where nothing says it."""
    path = snapshot / "snapshot.json"
    return orjson.loads(path.read_bytes()).get("event_ts") if path.exists() else None


# -- JSON ------------------------------------------------------------------------------------------------------------


def _lines_of(path: str, rules: PlainRules, first: int) -> Iterator[Judged]:
    with opened(path) as file:
        for number, line in enumerate(file):
            if number >= first and line.removeprefix(BOM).strip():
                yield from (Judged(number + 1, event) for event in _line(line, rules))


def _line(line: bytes, rules: PlainRules) -> list[Event | None]:
    try:
        record = orjson.loads(line.removeprefix(BOM))
    except orjson.JSONDecodeError:
        return [None]
    return rules.events(record)


def _tombstone(key: bytes | None, rules: PlainRules, decoder: Decoder | None) -> list[Event | None] | None:
    """The events of a message without a value; None where it is skipped."""
    if key is None or not rules.reads_keys:
        return None if rules.is_several else [None]
    if decoder is not None and key[:1] == b"\0":
        found, why = decoder.decode(key)
        return [None] if why is not None else rules.events({KEY: found}) or None
    try:
        found = orjson.loads(key)
    except orjson.JSONDecodeError:
        try:
            found = key.decode()
        except UnicodeDecodeError:
            return [None]
    return rules.events({KEY: found}) or None


def _message(value: bytes, rules: PlainRules) -> Iterator[Event | None]:
    if not value.startswith(ARROW_STREAM):
        lines = (line for line in value.split(b"\n") if line.removeprefix(BOM).strip())
        yield from (event for line in lines for event in _line(line, rules))
    elif (batches := _arrow_message(value, rules)) is None:
        yield None
    else:
        rows = _rows(batches, _fields_of(rules))
        yield from (event for row in rows for event in rules.events(row, is_row=True))


def _decoded(value: bytes, rules: PlainRules, decoder: Decoder) -> list[Event | None]:
    record, why = decoder.decode(value)
    if why is not None:
        return [None]
    return rules.events(record, is_row=decoder.is_typed, lacks_presence=decoder.format == PROTOBUF)


# -- tables ----------------------------------------------------------------------------------------------------------


def _fields_of(rules: PlainRules) -> tuple[str, ...] | None:
    """The columns that are read; None: all of them."""
    return None if rules.is_mapped else (*FIELDS, rules.key_name, *rules.more_fields)


def _batches_of(path: Path, columns: Iterable[str] | None) -> Iterator[pa.RecordBatch]:
    with open_parquet(path) as file:
        there = None if columns is None else [name for name in columns if name in file.schema_arrow.names]
        yield from file.iter_batches(_ROWS_AT_ONCE, columns=there)


def _arrow_batches(path: Path, columns: Iterable[str] | None) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        if is_file:
            reader = pa.ipc.open_file(source)
            yield from (reader.get_batch(k) for k in range(reader.num_record_batches))
        else:
            yield from pa.ipc.open_stream(source)


# Of each format of tables: batches of a file with these columns (None: all), and perhaps more.
READERS = {"parquet": _batches_of, "arrow": _arrow_batches}


def _arrow_message(value: bytes, rules: PlainRules) -> list[pa.RecordBatch] | None:
    """The batches of an Arrow IPC stream; None where it is rejected as a whole.

    How large a message may be is the one judgement that is the job's own: memory would have no bound without it.
    """
    table = read_arrow(value)
    if isinstance(table, str):
        return None
    batches = table.to_batches()
    fields = _fields_of(rules)
    is_odd = table.num_rows > ODD_ROWS_MAX and (fields is None or _has_odd_column(batches, fields))
    return None if is_odd else batches


def _has_odd_column(batches: list[pa.RecordBatch], fields: tuple[str, ...]) -> bool:
    """Return whether a field of events has a type that no field allows."""
    return any(
        name in fields
        and column.null_count < len(column)
        and not _is_usual(column.type)
        and not (name == TIME and pa.types.is_timestamp(column.type))
        for batch in batches
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    )


def _is_usual(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _is_number(kind.value_type)
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _is_number(plain) or _is_text(plain) or pa.types.is_boolean(kind) or pa.types.is_null(kind)


def _rows(batches: Iterable[pa.RecordBatch], wanted: Iterable[str] | None) -> Iterator[dict[str, Any]]:
    """The rows as dicts, without their nulls; only the wanted columns, or all."""
    for batch in batches:
        for begin in range(0, batch.num_rows, _ROWS_AT_ONCE):
            piece = batch.slice(begin, _ROWS_AT_ONCE)
            columns: dict[str, list[Any]] = {}
            for name, column in zip(piece.schema.names, piece.columns, strict=True):
                if (wanted is None or name in wanted) and name not in columns:
                    columns[name] = _values(column)
            for number in range(piece.num_rows):
                yield _without_nulls(columns, number)


def _without_nulls(columns: Mapping[str, list[Any]], number: int) -> dict[str, Any]:
    return {name: values[number] for name, values in columns.items() if values[number] is not None}


def _values(column: pa.Array) -> list[Any]:
    """A column as Python values; what JSON does not have is opaque."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        values = _values(column.dictionary)
        return [None if k is None else values[k] for k in column.indices.to_pylist()]
    if pa.types.is_timestamp(column.type):
        parts = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
        return [
            None if number is None else _Moment(number * 1000 // parts)
            for number in column.cast(pa.int64()).to_pylist()
        ]
    if column.type == pa.string_view():
        return [scalar.as_py() for scalar in column]
    if _is_text(column.type):
        texts = column.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        return [None if text is None else _text(text) for text in texts]
    if _is_as_in_json(column.type):
        try:
            return [_as_in_json(value) for value in column.to_pylist()]
        except ValueError:  # text that is not UTF-8 inside a list, a struct with two fields of one name
            pass
    return [_OPAQUE if scalar.is_valid else None for scalar in column]


def _as_in_json(value: Any) -> Any:
    """Decimals and small floats as numbers of JSON."""
    if isinstance(value, list):
        return [_as_in_json(one) for one in value]
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    return float(value) if isinstance(value, np.floating) else value


def _text(text: bytes) -> str | _Opaque:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return _OPAQUE


def _is_as_in_json(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _is_as_in_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_as_in_json(kind.field(k).type) for k in range(kind.num_fields))
    return _is_number(kind) or _is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())
