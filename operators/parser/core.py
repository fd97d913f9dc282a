"""The Parser's core: bytes or table rows in, validated columnar events and dead letters out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from freshet.operators.limits import ID_BYTES_MAX
from freshet.operators.parser.arrow.message import ARROW_STREAM, read_arrow
from freshet.operators.parser.dead_letters import DeadLetter
from freshet.operators.parser.files import Chunk
from freshet.operators.parser.lines import append_lines
from freshet.operators.parser.mapping import MappedRules
from freshet.operators.parser.rejects import LETTERS_MAX, Origin, Place
from freshet.operators.parser.rules import Rules
from freshet.operators.parser.table import Parsed, Table, is_quick, parse_table
from freshet.partitioner.events import Events
from freshet.schema import Features

__all__ = ["Origin", "Parser", "RawMessage"]

_NO_VALUE = "no value: a tombstone is no event"
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
        told = features, id_kind, edge_types, id_bytes_max
        self._rules = MappedRules(events_map, *told) if events_map else Rules(*told)

    @property
    def id_kind(self) -> str | None:
        """The kind of the job's ids, None while it is open."""
        return self._rules.id_kind

    @property
    def is_mapped(self) -> bool:
        """Whether records are mapped, and so may need any of their columns."""
        return self._rules.is_mapped

    def parse_chunk(
        self,
        chunk: Chunk,
        data: bytes | pa.RecordBatch,
        arrival_ms: float = 0.0,
        whole: Callable[[], Table] | None = None,
    ) -> Parsed:
        """The events of a chunk of a file, from what a `ChunkReader` made of it; `whole` as in `parse_table`."""
        origin = Origin(chunk.source, chunk.name)
        if isinstance(data, bytes):
            return self.parse_jsonl(data, origin, chunk.first, arrival_ms)
        return self.parse_table(data, origin, chunk.first, arrival_ms, whole)

    def parse_jsonl(self, data: bytes, origin: Origin, first_line: int = 0, arrival_ms: float = 0.0) -> Parsed:
        """The events of whole lines, the first of which is line `first_line` of its file."""
        builder = self._rules.builder()
        letters: list[DeadLetter] = []
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        end = first_line + len(lines)
        with np.errstate(over="ignore"):
            append_lines(lines, range(first_line + 1, end + 1), self._rules, builder, origin, letters, sys.maxsize)
        return builder.build(end, origin.source, origin.partition, arrival_ms), letters

    def parse_messages(self, messages: Sequence[RawMessage], origin: Origin, arrival_ms: float = 0.0) -> Parsed:
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
                    append_lines(value.split(b"\n"), repeat(end), self._rules, builder, origin, letters, LETTERS_MAX)
                elif isinstance(table := self._read_arrow(value), str):
                    builder.reject()
                    letters.append(DeadLetter(table, origin.name, origin.partition, offset, value))
                else:
                    blocks.append(builder.build(offset, origin.source, origin.partition, arrival_ms))
                    place = Place(origin, offset, table.num_rows, arrival_ms, partial(_same, table), in_message=True)
                    events, more = parse_table(table, self._rules, place)
                    blocks.append(events)
                    letters += more
                    builder = self._rules.builder()  # by the kind of ids that the table may have decided
        blocks.append(builder.build(end, origin.source, origin.partition, arrival_ms))
        return Events.concatenate(blocks), letters

    def _read_arrow(self, value: bytes) -> pa.Table | str:
        """The table in a message, or why it can't be taken."""
        table = read_arrow(value)
        if isinstance(table, str) or table.num_rows <= _SLOW_ROWS_MAX or is_quick(table, self._rules):
            return table
        return f"too many rows in an Arrow IPC stream that is read row by row: expected at most {_SLOW_ROWS_MAX:,}"

    def parse_table(
        self,
        table: Table,
        origin: Origin,
        first_row: int = 0,
        arrival_ms: float = 0.0,
        whole: Callable[[], Table] | None = None,
    ) -> Parsed:
        """The events of a table's rows, the first of which is row `first_row` of its file.

        `whole` gives the same rows with all columns, for dead letters, where the table has some of them alone.
        """
        place = Place(origin, first_row, table.num_rows, arrival_ms, whole or partial(_same, table))
        return parse_table(table, self._rules, place)


def _same(table: Table) -> Table:
    return table
