"""The dead letters of a block of records: one for each record, and beyond a bound one for the rest of a message.

A message of a few hundred bytes can hold a million bad rows, and one of a megabyte as many bad lines. All of them count
as rejected, but a million letters would say nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from freshet.kinds import Kinds
from freshet.operators.parser.arrow.arrays import all_columns
from freshet.operators.parser.letter_box import DeadLetter
from freshet.operators.parser.records import records, to_json
from freshet.partitioner.events import ALL_KEYS, NO_TS, OP_ADD_EDGE, OP_DEL_EDGE, OP_DEL_EDGES, OP_NAMES, Events
from freshet.schema import ATTR, Features
from freshet.type_columns import without_types

ANY_FEATURES = Features(0)
LETTERS_MAX = 1000  # of one message
_RAW_BYTES_MAX = 8 << 20  # of the letters of one message that is a table, whose rows may share what they show


class Origin(NamedTuple):
    """Origin of a block of records: the source's index and name, and the partition (0 of a file)."""

    source: int = 0
    name: str = ""
    partition: int = 0


def rest_of_message(origin: Origin, offset: int, records: int) -> DeadLetter:
    """The letter of all bad records of a message beyond those that have one."""
    error = f"the rest of a message with more than {LETTERS_MAX:,} bad records, got {records}"
    return DeadLetter(error, origin.name, origin.partition, offset, b"", records)


class TablePlace(NamedTuple):
    """Place of a table in its source: rows from `first` on, or all in the message at that offset."""

    origin: Origin
    first: int
    rows: int
    arrival_ms: float
    whole: Callable[[], pa.Table | pa.RecordBatch]  # gives the table with all of its columns
    in_message: bool = False
    raw: Callable[[int], bytes] | None = None  # gives a row as it came; None: as JSON

    @property
    def end(self) -> int:
        """The position behind the table."""
        return self.first + (1 if self.in_message else self.rows)

    def positions(self) -> np.ndarray:
        """The position behind each row: that of the next record."""
        if self.in_message:
            return np.full(self.rows, self.end, np.int64)
        return np.arange(self.first + 1, self.end + 1, dtype=np.int64)


class LinePlace(NamedTuple):
    """Place of lines in their source: the position after each, and the one after all of them."""

    origin: Origin
    end: int
    arrival_ms: float
    after: np.ndarray

    def positions(self) -> np.ndarray:
        """The position behind each line."""
        return self.after


class LineLetters:
    """The letters of bad lines, in order; past `LETTERS_MAX` of one message (one position) one letter has the rest."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._letters: list[DeadLetter] = []
        self._position, self._bad = -1, 0

    def add(self, error: str, position: int, line: bytes) -> None:
        """Make the letter of a bad line, or count it; `position` follows the line."""
        if position != self._position:
            self._add_rest()
            self._position, self._bad = position, 0
        self._bad += 1
        if self._bad <= LETTERS_MAX:
            self._letters.append(DeadLetter(error, self._origin.name, self._origin.partition, position - 1, line))

    def _add_rest(self) -> None:
        if self._bad > LETTERS_MAX:
            self._letters.append(rest_of_message(self._origin, self._position - 1, self._bad - LETTERS_MAX))
        self._bad = 0

    def letters(self) -> list[DeadLetter]:
        """All letters; no line may be added afterwards."""
        self._add_rest()
        return self._letters


class Rejects:
    """The letters of a table's bad rows, in order; each holds its row with all columns."""

    def __init__(self, place: TablePlace) -> None:
        self._place = place
        self._columns: dict[str, pa.Array] | None = None  # of the whole table, once a row is bad
        self._letters: list[DeadLetter] = []
        self._raw_bytes = self._rest = 0

    @property
    def is_full(self) -> bool:
        """True if further rows get no letter and are only counted."""
        return self._place.in_message and (len(self._letters) >= LETTERS_MAX or self._raw_bytes > _RAW_BYTES_MAX)

    def add(self, errors: Mapping[int, str]) -> None:
        """Make the letters of bad rows, or count them; `errors`: why, by row."""
        if self._place.raw is not None:
            for row, error in errors.items():
                self._add(error, row, self._place.raw(row))
            return
        if not errors:
            return
        if self._columns is None:
            self._columns = all_columns(self._place.whole())
        rows = np.array(list(errors))
        step = 1 if self._place.in_message else len(rows)  # the rows of a message may share values of any size
        for begin in range(0, len(rows), step):
            some = rows[begin : begin + step]
            if self.is_full:
                self._rest += len(some)
                continue
            for row, record in zip(some.tolist(), records(self._columns, some), strict=True):
                self._add(errors[row], row, to_json(record))

    def _add(self, error: str, row: int, raw: bytes) -> None:
        place = self._place
        offset = place.first if place.in_message else place.first + row
        self._letters.append(DeadLetter(error, place.origin.name, place.origin.partition, offset, raw))
        self._raw_bytes += len(raw)

    def count(self, rows: int) -> None:
        """Count more bad rows, which nobody has looked at."""
        self._rest += rows

    def letters(self) -> list[DeadLetter]:
        """All letters."""
        if not self._rest:
            return self._letters
        return [*self._letters, rest_of_message(self._place.origin, self._place.first, self._rest)]


class Refusals:
    """The letters of events that the Partitioner refuses, epoch by epoch; a message may go on in the next one."""

    def __init__(
        self, sources: Sequence[str], original: Callable[[int, int], bytes | None], features: Features = ANY_FEATURES
    ) -> None:
        """`sources` are the names of the sources, by index; `original` gives a record by source and number."""
        self._sources, self._original, self._features = sources, original, features
        self._last: dict[tuple[int, int], tuple[int, int]] = {}  # by source and partition: position, letters there

    def letters(self, events: Events, rejected: Sequence[tuple[int, str]]) -> Iterator[DeadLetter]:
        """The letters of an epoch, from the numbers of its events and why each was refused."""
        rest: dict[tuple[Origin, int], int] = {}
        for row, reason in rejected:
            source, partition, position = int(events.source[row]), int(events.partition[row]), int(events.position[row])
            name = self._sources[source] if source < len(self._sources) else str(source)
            origin = Origin(source, name, partition)
            last, count = self._last.get((source, partition), (position, 0))
            count = count + 1 if last == position else 1
            self._last[source, partition] = position, count
            if count <= LETTERS_MAX:
                raw = self._original(source, position - 1) or _as_json(events, row, self._features)
                yield DeadLetter(reason, name, partition, position - 1, raw)
            else:
                rest[origin, position] = rest.get((origin, position), 0) + 1
        for (origin, position), count in rest.items():
            yield rest_of_message(origin, position - 1, count)


def _as_json(events: Events, row: int, features: Features) -> bytes:
    """An event of a topic, as the Partitioner knows it: without what no graph keeps or says nothing."""
    op, ends = int(events.op[row]), [ids.slice(row, row + 1).to_list()[0] for ids in (events.a, events.b)]
    kinds, record = features.kinds, dict[str, Any](op=OP_NAMES[min(op, OP_DEL_EDGE)])
    if op >= OP_ADD_EDGE:
        record |= {"src": ends[0], "dst": ends[1]} | without_types(events.values[row : row + 1], features).record(0)
    else:
        record["id"] = ends[0]
    if events.x_row[row] >= 0:
        record["x"] = events.x.row(events.x_row[row]).tolist()
    name = events.types[int(events.etype[row])]
    if kinds is not None:
        record |= _kinds_of(events, row, kinds, kinds.relation_names.index(name) if op >= OP_ADD_EDGE else None)
    elif events.etype[row]:
        record["type"] = name
    key = ALL_KEYS if op == OP_DEL_EDGES else events.key_of(row)
    if key is not None:
        record["key"] = key
    if events.ts is not None and events.ts[row] != NO_TS:
        record["ts"] = int(events.ts[row])
    return orjson.dumps(record)


def _kinds_of(events: Events, row: int, kinds: Kinds, relation: int | None) -> dict[str, Any]:
    """The fields of an event by which it says its relation, or the kind of its vertex."""
    if relation is None:
        kind = 0 if events.kind is None else int(events.kind[row])
        return {"kind": kinds.names[kind]} if kinds.are_named else {}
    attr, width = events.values.record(row).get(ATTR), kinds.relations[relation].edge_width
    return kinds.fields_of(relation) | ({} if attr is None else {ATTR: attr[:width]})
