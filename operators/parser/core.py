"""The Parser's core: bytes or table rows in, validated columnar events and dead letters out.

Rows of a table are taken by columns, all at once, where that can be; else they are judged one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from freshet.operators.limits import ID_BYTES_MAX
from freshet.operators.parser.arrow.bounds import ARROW_STREAM, read_arrow
from freshet.operators.parser.files import Chunk
from freshet.operators.parser.json_lines.parse import LINES_MIN, LineParser
from freshet.operators.parser.json_lines.text import Text
from freshet.operators.parser.keys import KEY_FIELD, KeyRules
from freshet.operators.parser.letter_box import DeadLetter
from freshet.operators.parser.mapping import Expressions, MappedRules
from freshet.operators.parser.messages import KEY, MessageValues, RawMessage, key_record
from freshet.operators.parser.parse_rows import Parsed, Table, is_quick, parse_table, parse_text
from freshet.operators.parser.place_keys import SAME_MAX, with_place_keys
from freshet.operators.parser.registry.decoder import Decoder
from freshet.operators.parser.rejects import Origin, TablePlace
from freshet.operators.parser.rules import Rules
from freshet.operators.parser.text_tables.rows import TextRows
from freshet.partitioner.events import Events
from freshet.partitioner.times.units import MS, TsUnit
from freshet.schema import Features

__all__ = ["Origin", "Parser"]

_NO_VALUE = "no value: a tombstone is no event"
_TOO_MANY = (
    f"{KEY_FIELD}: --edge-key offset takes {SAME_MAX} edges from one vertex to another in a message, of one type"
)
# Rows of a message whose columns only the rules can judge, at some 12 us a row: they may take no bytes at all.
_SLOW_ROWS_MAX = 1 << 16


class Parser:
    """Turns records into events by the rules of the interface; invalid ones become dead letters.

    Args:
        features: the model's raw features.
        id_kind: "int" or "string"; None until the first accepted event decides it (see `id_kind`).
        edge_types: the edge types of a typed model; None takes any.
        events_map: JMESPath expressions by event field, or several maps with conditions; only the fields that it names
            are then read.
        id_bytes_max: the longest that a string id, or the name of an edge type, may be in UTF-8.
        ts_unit: the unit of integers in `ts`.
        keys: the rules of edges' keys; None: edges have none.
        lines_min: fewer lines of JSON than these are judged one by one; nothing else changes.
        decoder: what makes records of a topic's messages; None: they are JSON or Arrow.
        cast_ids: take integers for the strings that write them, where ids are strings.

    Raises:
        ValueError: an unknown id kind, an unknown field in the map, or an expression that is no JMESPath.
    """

    def __init__(
        self,
        features: Features,
        id_kind: str | None = None,
        edge_types: Sequence[str] | None = None,
        events_map: Expressions | None = None,
        id_bytes_max: int = ID_BYTES_MAX,
        lines_min: int = LINES_MIN,
        decoder: Decoder | None = None,
        cast_ids: bool = False,
        ts_unit: TsUnit = MS,
        keys: KeyRules | None = None,
    ) -> None:
        given = features, id_kind, edge_types, id_bytes_max, cast_ids, ts_unit, keys
        self._rules = MappedRules(events_map, *given) if events_map else Rules(*given)
        self._lines, self._decoder = LineParser(self._rules, lines_min), decoder

    @property
    def id_kind(self) -> str | None:
        """The kind of the job's ids, None while it is open."""
        return self._rules.id_kind

    @property
    def is_open(self) -> bool:
        """True while the first events are to decide the kind of ids, or that of keys of edges."""
        return self._rules.is_open

    @property
    def keys(self) -> KeyRules:
        """The rules of edges' keys."""
        return self._rules.keys

    @property
    def fields(self) -> Collection[str]:
        """The fields of events that are read."""
        return self._rules.fields

    @property
    def is_mapped(self) -> bool:
        """True if records are mapped, and so may need any of their columns."""
        return self._rules.is_mapped

    def parse_chunk(
        self,
        chunk: Chunk,
        data: bytes | pa.RecordBatch | TextRows,
        arrival_ms: float = 0.0,
        whole: Callable[[], Table] | None = None,
    ) -> Parsed:
        """The events of a chunk of a file, from what a `ChunkReader` made of it; `whole` as in `parse_table`."""
        origin = Origin(chunk.source, chunk.name)
        if isinstance(data, bytes):
            return self.parse_jsonl(data, origin, chunk.first, arrival_ms)
        if isinstance(data, TextRows):
            return self._keyed(parse_text(data, self._rules, origin, chunk.first, arrival_ms), origin)
        return self.parse_table(data, origin, chunk.first, arrival_ms, whole)

    def parse_jsonl(self, data: bytes, origin: Origin, first_line: int = 0, arrival_ms: float = 0.0) -> Parsed:
        """The events of whole lines, the first of which is line `first_line` of its file."""
        text, end = Text.of_lines(data, first_line)
        with np.errstate(over="ignore"):
            return self._keyed(self._lines.parse(text, origin, end, arrival_ms), origin)

    def _keyed(self, parsed: Parsed, origin: Origin) -> Parsed:
        """Return what was parsed with keys that follow from places, if edges have these."""
        if not self.keys.by_offset:
            return parsed
        events, past = with_place_keys(parsed[0], self.keys.sources)
        if not past.any():
            return events, parsed[1]
        found = (one.tolist() for one in np.unique(events.position[past], return_counts=True))
        letters = [
            DeadLetter(_TOO_MANY, origin.name, origin.partition, position - 1, b"", records)
            for position, records in zip(*found, strict=True)
        ]
        return events.only(~past), sorted([*parsed[1], *letters], key=lambda letter: letter.offset)

    def parse_messages(self, messages: Sequence[RawMessage], origin: Origin, arrival_ms: float = 0.0) -> Parsed:
        """Like `parse_batch`, for single messages."""
        return self.parse_batch(MessageValues.of(messages), origin, arrival_ms)

    def parse_batch(self, messages: MessageValues, origin: Origin, arrival_ms: float = 0.0) -> Parsed:
        """Parse Kafka messages of one partition, in the order of their offsets.

        A message has one or several events as JSON, one a line, or an Arrow IPC stream, recognised by its first bytes.
        All of its events and dead letters have its offset; after `LETTERS_MAX` bad records one letter stands for the
        rest. With a decoder, a message is one record.
        """
        if self._decoder is not None:
            return self._keyed(self._parse_records(messages, origin, arrival_ms, self._decoder), origin)
        messages = messages.with_keys() if self._rules.reads_keys else messages
        found: list[Parsed] = []
        first, refused, skipped = 0, dict[int, DeadLetter | None](), 0
        with np.errstate(over="ignore"):
            for k in messages.apart(ARROW_STREAM):
                offset, value = int(messages.offsets[k]), messages.value(k)
                if value is None and self._rules.skips_tombstones:
                    refused[k], skipped = None, skipped + 1
                    continue
                table = _NO_VALUE if value is None else self._read_arrow(value)
                if isinstance(table, str):
                    refused[k] = DeadLetter(table, origin.name, origin.partition, offset, value or b"")
                    continue
                if first < k:
                    found.append(self._parse_text(messages, range(first, k), refused, origin, arrival_ms))
                place = TablePlace(origin, offset, table.num_rows, arrival_ms, partial(_same, table), in_message=True)
                found.append(parse_table(table, self._rules, place))
                first, refused = k + 1, {}
            if first < len(messages) or not found:
                found.append(self._parse_text(messages, range(first, len(messages)), refused, origin, arrival_ms))
        events = Events.concatenate([events for events, _ in found])
        letters = [one for _, letters in found for one in letters]
        events = replace(events, tombstones=events.tombstones + skipped) if skipped else events
        return self._keyed((events, letters), origin)

    def _parse_records(self, messages: MessageValues, origin: Origin, arrival_ms: float, decoder: Decoder) -> Parsed:
        """The events of messages that are decoded, one by one."""
        rules, letters, builder = self._rules, list[DeadLetter](), self._rules.builder()
        prepare = decoder.preparing(is_mapped=rules.is_mapped)
        with np.errstate(over="ignore"):
            for offset, value, key in messages:
                record, why = decoder.decode(value) if value is not None else self._of_key(key, decoder)
                if value is None and why == _NO_VALUE and rules.skips_tombstones:
                    builder.tombstones += 1
                    continue
                if why is None:
                    is_row = decoder.is_typed and isinstance(record, dict)
                    append = partial(rules.append_row, prepare=prepare) if is_row else rules.append
                    why = append(record, builder, offset + 1)
                if why is not None:
                    builder.reject()
                    letters.append(DeadLetter(why, origin.name, origin.partition, offset, value or key or b""))
        end = int(messages.offsets[-1]) + 1 if len(messages) else 0
        return builder.build(end, origin.source, origin.partition, arrival_ms), letters

    def _of_key(self, key: bytes | None, decoder: Decoder) -> tuple[Any, str | None]:
        """The record of a message without a value, and why it is none."""
        if key is None or not self._rules.reads_keys:
            return None, _NO_VALUE
        if key[:1] == b"\0":  # as the registry writes keys, too
            found = decoder.decode(key)
            return {KEY: found.record}, found.why
        try:
            return key_record(key), None
        except UnicodeDecodeError as error:
            return None, f"key: not UTF-8: {error.reason} at byte {error.start}"

    def _parse_text(
        self,
        messages: MessageValues,
        some: range,
        refused: Mapping[int, DeadLetter | None],
        origin: Origin,
        arrival_ms: float,
    ) -> Parsed:
        """The events of some messages, which are JSON except the refused ones.

        `refused`: letters by message, None for one that is skipped.
        """
        rows = np.array([k for k in some if k not in refused] if refused else some, np.int64)
        text = messages.text(rows)
        end = int(messages.offsets[some[-1]]) + 1 if some else 0
        events, letters = self._lines.parse(text, origin, end, arrival_ms)
        refusals = [letter for letter in refused.values() if letter is not None]
        if not refusals:
            return events, letters
        # all at once: a block for each of thousands of tombstones would take a hundred times as long
        offsets = [letter.offset for letter in refusals]
        rejects = np.append(events.reject_rows, np.searchsorted(events.position, offsets, "right"))
        events = replace(events, reject_rows=np.sort(rejects).astype(np.int32))
        return events, sorted([*letters, *refusals], key=lambda letter: letter.offset)

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
        place = TablePlace(origin, first_row, table.num_rows, arrival_ms, whole or partial(_same, table))
        return self._keyed(parse_table(table, self._rules, place), origin)


def _same(table: Table) -> Table:
    return table
