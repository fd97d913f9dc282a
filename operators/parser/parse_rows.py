"""Rows of tables and of text as events: by columns, all at once, where that can be; else one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from freshet.operators.parser.arrow.arrays import all_columns, known_columns
from freshet.operators.parser.arrow.fields import are_exact, op_codes, read_fields
from freshet.operators.parser.columns import NO_OP, take
from freshet.operators.parser.letter_box import DeadLetter
from freshet.operators.parser.records import records
from freshet.operators.parser.rejects import Origin, Rejects, TablePlace
from freshet.operators.parser.rules import INT64_MAX, INT64_MIN, Field, Prepare, Rules, with_integers
from freshet.operators.parser.text_tables.rows import TextRows
from freshet.operators.parser.text_tables.typed import typed_columns
from freshet.operators.parser.text_tables.values import preparing
from freshet.partitioner.event_builder import EventBuilder
from freshet.partitioner.events import OP_ADD_EDGE, OP_ADD_VERTEX, OP_NAMES, OP_SET_FEATURES, Events

Table: TypeAlias = pa.Table | pa.RecordBatch
Parsed: TypeAlias = tuple[Events, list[DeadLetter]]
Arrays: TypeAlias = Mapping[str, pa.Array]

_ADDING = OP_NAMES[OP_ADD_VERTEX], OP_NAMES[OP_SET_FEATURES], OP_NAMES[OP_ADD_EDGE]
_PEEK = 256  # rows looked at together where the rules are asked for each


class _Rows(NamedTuple):
    """Rows of a table: one by one by `columns`, and all at once by `fields`, the columns of events' fields.

    `fields`: None where only the rules can map columns to fields. `errors`: why some rows are none.
    """

    columns: Arrays
    fields: Arrays | None
    prepare: Prepare = with_integers
    errors: Mapping[int, str] = MappingProxyType({})

    def append(
        self, row: int, record: dict[str, Any], rules: Rules, builder: EventBuilder, position: int
    ) -> str | None:
        """Append the event of a row, or say why not."""
        return self.errors.get(row) or rules.append_row(record, builder, position, self.prepare)


def parse_table(table: Table, rules: Rules, place: TablePlace) -> Parsed:
    """The events of a table's rows, and the letters of its bad ones."""
    if rules.is_mapped:
        columns = all_columns(table)
        return _parse(_Rows(columns, _mapped(columns, rules, place.rows)), rules, place)
    columns = known_columns(table, rules.fields)
    return _parse(_Rows(columns, columns), rules, place)


def parse_text(rows: TextRows, rules: Rules, origin: Origin, first: int, arrival_ms: float) -> Parsed:
    """The events of rows of text, the first of which is row `first` of its file, and the letters of bad ones."""
    place = TablePlace(origin, first, len(rows), arrival_ms, _no_table, raw=rows.raw)
    found = rows.columns(None if rules.is_mapped else rules.fields)
    columns = {name: one for name, one in found.items() if one.null_count < len(one)}
    fields = _mapped(columns, rules, place.rows) if rules.is_mapped else columns
    return _parse(_Rows(columns, fields, preparing(rules), rows.errors), rules, place)


def _mapped(columns: Arrays, rules: Rules, n: int) -> Arrays | None:
    """The columns of events' fields by a map that only names columns and constants; None for another one.

    The same for one that may delete: whether a row can is judged by all of it.
    """
    plain = rules.plain_map
    if plain is None or plain["op"] not in _ADDING:
        return None
    found = {}
    for field, source in plain.items():
        if isinstance(source, Field):
            array = columns.get(source.name)
            if array is not None and array.null_count < n:
                found[field] = array
        elif type(source) in (str, float) or (type(source) is int and INT64_MIN <= source <= INT64_MAX):
            found[field] = pa.array([source] * n)
        elif source is not None:
            return None
    return found


def _parse(rows: _Rows, rules: Rules, place: TablePlace) -> Parsed:
    with np.errstate(over="ignore"):
        if rows.fields is None:
            return _by_rows(rows, rules, place)
        early = _decide(rows, rows.fields, rules, place.rows) if rules.is_open else {}
        fields = rows.fields
        if rows.prepare is not with_integers:  # of text; by the kind of ids
            fields = typed_columns(fields, rules)
        return _by_columns(rows, fields, rules, place, early) or _by_rows(rows, rules, place)


def is_quick(table: Table, rules: Rules) -> bool:
    """True if no row of a table has to be checked by itself, except invalid ones."""
    return not rules.is_mapped and are_exact(known_columns(table, rules.fields))


def _by_columns(
    rows: _Rows, fields: Arrays, rules: Rules, place: TablePlace, early: Mapping[int, str]
) -> Parsed | None:
    """All rows at once; None where one looks bad that is not. `early`: why the first rows are bad."""
    events, bad = take(read_fields(fields, place.rows, rules), rules, place)
    if not len(bad):
        return events, []
    letters = _explain(rows, bad, rules, place, early)
    return None if letters is None else (events, letters)


def _by_rows(rows: _Rows, rules: Rules, place: TablePlace) -> Parsed:
    """All rows one by one: slow, and taken only for mapped records and odd columns."""
    builder, rejects, positions = rules.builder(), Rejects(place), place.positions().tolist()
    for begin in range(0, place.rows, _PEEK):
        some, errors = np.arange(begin, min(begin + _PEEK, place.rows)), dict[int, str]()
        for row, record in enumerate(records(rows.columns, some), begin):
            error = rows.append(row, record, rules, builder, positions[row])
            if error is not None:
                builder.reject()
                errors[row] = error
        rejects.add(errors)
    origin = place.origin
    return builder.build(place.end, origin.source, origin.partition, place.arrival_ms), rejects.letters()


def _decide(rows: _Rows, fields: Arrays, rules: Rules, n: int) -> dict[int, str]:
    """Let the first row that is accepted decide the kind of ids, and the first edge that is added the kind of keys.

    Returns why rows before them are bad.
    """
    errors: dict[int, str] = {}
    codes = op_codes(fields.get("op"), n)  # a row without an operation says nothing of ids
    _judge_until(lambda: rules.id_kind is not None, np.flatnonzero(codes != NO_OP), rows, rules, errors)
    if rules.keys.field in fields or not rules.keys.is_given:
        adds = np.flatnonzero(codes == OP_ADD_EDGE)
        _judge_until(lambda: rules.keys.kind is not None, adds, rows, rules, errors)
    return errors


def _judge_until(
    is_done: Callable[[], bool], some_rows: np.ndarray, rows: _Rows, rules: Rules, errors: dict[int, str]
) -> None:
    """Judge rows one by one until something is decided, and note why they are bad."""
    for begin in range(0, len(some_rows), _PEEK):
        some = some_rows[begin : begin + _PEEK]
        for row, record in zip(some.tolist(), records(rows.columns, some), strict=True):
            if is_done():
                return
            error = rows.append(row, record, rules, rules.builder(), 0)
            if error is not None:
                errors.setdefault(row, error)


def _explain(
    rows: _Rows, bad: np.ndarray, rules: Rules, place: TablePlace, early: Mapping[int, str]
) -> list[DeadLetter] | None:
    """The letters of rows that look bad; None if the rules take one of them after all."""
    rejects, exact = Rejects(place), are_exact(rows.columns)
    scratch = EventBuilder(rules.features)
    for begin in range(0, len(bad), _PEEK):
        if exact and rejects.is_full:
            rejects.count(len(bad) - begin)
            break
        some, errors = bad[begin : begin + _PEEK], dict[int, str]()
        for row, record in zip(some.tolist(), records(rows.columns, some), strict=True):
            error = early.get(row) or rows.append(row, record, rules, scratch, 0)
            if error is None:
                return None
            errors[row] = error
        rejects.add(errors)
    return rejects.letters()


def _no_table() -> Table:
    msg = "rows of text have no table"
    raise AssertionError(msg)
