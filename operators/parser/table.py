"""The rows of a table: taken by columns, all at once, where that can be; else judged one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from freshet.operators.parser.arrow.arrays import all_columns, is_text, known_columns
from freshet.operators.parser.arrow.fields import are_exact, op_codes, read_fields
from freshet.operators.parser.columns import NO_OP, take
from freshet.operators.parser.letter_box import DeadLetter
from freshet.operators.parser.records import records
from freshet.operators.parser.rejects import Rejects, TablePlace
from freshet.operators.parser.rules import Rules
from freshet.partitioner.event_builder import EventBuilder
from freshet.partitioner.events import Events

Table: TypeAlias = pa.Table | pa.RecordBatch
Parsed: TypeAlias = tuple[Events, list[DeadLetter]]
Arrays: TypeAlias = Mapping[str, pa.Array]

_PEEK = 256  # rows looked at together where the rules are asked for each


def parse_table(table: Table, rules: Rules, place: TablePlace) -> Parsed:
    """The events of a table's rows, and the letters of its bad ones."""
    with np.errstate(over="ignore"):
        if rules.is_mapped:
            return _by_rows(all_columns(table), rules, place)
        columns = known_columns(table, rules.fields)
        early = {} if rules.id_kind is not None else _decide_id_kind(columns, rules, place.rows)
        return _by_columns(columns, rules, place, early) or _by_rows(columns, rules, place)


def is_quick(table: Table, rules: Rules) -> bool:
    """True if no row of a table has to be checked by itself, except invalid ones."""
    return not rules.is_mapped and are_exact(known_columns(table, rules.fields))


def _by_columns(columns: Arrays, rules: Rules, place: TablePlace, early: Mapping[int, str]) -> Parsed | None:
    """All rows at once; None where one looks bad that is not. `early`: why the first rows are bad."""
    fields = read_fields(columns, place.rows, rules)
    events, bad = take(fields, rules, place)
    if not len(bad):
        return events, []
    letters = _explain(columns, bad, rules, place, early)
    return None if letters is None else (events, letters)


def _by_rows(columns: Arrays, rules: Rules, place: TablePlace) -> Parsed:
    """All rows one by one: slow, and taken only for mapped records and odd columns."""
    builder, rejects, positions = rules.builder(), Rejects(place), place.positions().tolist()
    for begin in range(0, place.rows, _PEEK):
        some, errors = np.arange(begin, min(begin + _PEEK, place.rows)), dict[int, str]()
        for row, record in enumerate(records(columns, some), begin):
            error = rules.append_row(record, builder, positions[row])
            if error is not None:
                builder.reject()
                errors[row] = error
        rejects.add(errors)
    origin = place.origin
    return builder.build(place.end, origin.source, origin.partition, place.arrival_ms), rejects.letters()


def _decide_id_kind(columns: Arrays, rules: Rules, n: int) -> dict[int, str]:
    """Let the first row that is accepted decide the kind of ids; returns why each row before it is bad."""
    errors: dict[int, str] = {}
    ops, rows = columns.get("op"), np.arange(n)
    if ops is None or is_text(ops.type):  # a row without an operation says nothing of ids
        rows = np.flatnonzero(op_codes(ops, n) != NO_OP)
    for begin in range(0, len(rows), _PEEK):
        some = rows[begin : begin + _PEEK]
        for row, record in zip(some.tolist(), records(columns, some), strict=True):
            error = rules.append_row(record, rules.builder(), 0)
            if error is None:
                return errors
            errors[row] = error
    return errors


def _explain(
    columns: Arrays, rows: np.ndarray, rules: Rules, place: TablePlace, early: Mapping[int, str]
) -> list[DeadLetter] | None:
    """The letters of rows that look bad; None if the rules take one of them after all."""
    rejects, exact = Rejects(place), are_exact(columns)
    scratch = EventBuilder(rules.features)
    for begin in range(0, len(rows), _PEEK):
        if exact and rejects.is_full:
            rejects.count(len(rows) - begin)
            break
        some, errors = rows[begin : begin + _PEEK], dict[int, str]()
        for row, record in zip(some.tolist(), records(columns, some), strict=True):
            error = early.get(row) or rules.append_row(record, scratch, 0)
            if error is None:
                return None
            errors[row] = error
        rejects.add(errors)
    return rejects.letters()
