"""The events of many lines of JSON: by columns where that can be, odd lines one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import orjson
import pyarrow as pa

from freshet.operators.parser.arrow.fields import read_fields
from freshet.operators.parser.columns import take
from freshet.operators.parser.formats import BOM
from freshet.operators.parser.json_lines.reader import OddLinesError, Shape, read_columns, shape_of
from freshet.operators.parser.json_lines.text import Text
from freshet.operators.parser.letter_box import DeadLetter
from freshet.operators.parser.rejects import LineLetters, LinePlace, Origin
from freshet.operators.parser.rules import Rules
from freshet.partitioner.event_builder import EventBuilder
from freshet.partitioner.events import Events


def append_lines(
    lines: Sequence[bytes],
    positions: Iterable[int],
    rules: Rules,
    builder: EventBuilder,
    reject: Callable[[str, int, bytes], None],
) -> None:
    """Append the events of lines, and call `reject` with the reason, the position and the line where it is bad.

    `positions` are the positions that follow each line.
    """
    append, loads = rules.append, orjson.loads
    for line, position in zip(lines, positions, strict=False):
        try:
            record = loads(line)
            error = append(record, builder, position)
        except orjson.JSONDecodeError as cause:
            text = line.removeprefix(BOM)
            if not text.strip():
                continue
            error = _not_json(line, cause) if len(text) == len(line) else _append_text(text, rules, builder, position)
        if error is not None:
            builder.reject()
            reject(error, position, line)


def _append_text(text: bytes, rules: Rules, builder: EventBuilder, position: int) -> str | None:
    """Append the event of a line that had a byte order mark."""
    try:
        record = orjson.loads(text)
    except orjson.JSONDecodeError as cause:
        return _not_json(text, cause)
    return rules.append(record, builder, position)


def _not_json(line: bytes, cause: Exception) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    return f"not JSON: {cause}"


LINES_MIN = 64  # fewer cost more by columns than one by one
_TRIES_MAX = 8  # odd places of a text that are looked for; with more, one by one costs less


class LineParser:
    """Parses texts by the rules of one job.

    A text that can't be read by columns as a whole is cut at its odd lines, or halved where nobody knows which they
    are. Where many are odd, the rest is judged one by one, and of the texts that follow fewer places are looked for.
    The events and letters are the same, however a text is read.
    """

    def __init__(self, rules: Rules, lines_min: int = LINES_MIN) -> None:
        """Texts of fewer than `lines_min` lines are judged one by one."""
        self._rules, self._lines_min = rules, lines_min
        self._tries = _TRIES_MAX
        self._shape: Shape | None = None
        self._is_shaped = False

    def parse(self, text: Text, origin: Origin, end: int, arrival_ms: float) -> tuple[Events, list[DeadLetter]]:
        """Return the events of a text, and the letters of its bad lines; `end` is the position after the text."""
        found = _Found(origin, end, arrival_ms)
        first = self._decide(text, found)
        if first < len(text) or not found.blocks:
            self._by_columns(text.part(first, len(text)), found)
        return Events.concatenate(found.blocks), found.letters.letters()

    def _decide(self, text: Text, found: _Found) -> int:
        """Judge lines until they have decided the kinds of ids and of keys of edges; returns how many."""
        first, lines = 0, 1
        while self._rules.is_open and first < len(text):
            last = min(first + lines, len(text))
            self._one_by_one(text.part(first, last), found)
            first, lines = last, 2 * lines
        return first

    def _by_columns(self, text: Text, found: _Found) -> None:
        if not self._is_shaped:
            self._shape, self._is_shaped = shape_of(self._rules), True
        left = [text]  # the parts that are to be read, the next one last
        tries = self._tries
        while left:
            some = left.pop()
            if self._shape is None or not tries or len(some) < self._lines_min:
                self._one_by_one(some, found)
                continue
            try:
                self._take(some, read_columns(some, self._shape), found)
            except OddLinesError as odd:
                tries -= 1
                many = odd.rows is not None and len(odd.rows) > tries
                if many:
                    self._one_by_one(some, found)
                else:
                    left += reversed(_cut(some, odd.rows))
        self._tries = min(2 * tries, _TRIES_MAX) if tries else 1

    def _take(self, text: Text, columns: dict[str, pa.Array], found: _Found) -> None:
        """Judge lines by their columns; if the rules take one that looks bad, one by one."""
        rules, rejected = self._rules, list[tuple[str, int, bytes]]()
        fields = read_fields(columns, len(text), rules)
        events, bad = take(fields, rules, LinePlace(found.origin, found.end, found.arrival_ms, text.positions))
        if len(bad):
            scratch = rules.builder()
            append_lines(*text.lines(bad), rules, scratch, lambda *one: rejected.append(one))
            if len(scratch):
                self._one_by_one(text, found)
                return
        for one in rejected:
            found.letters.add(*one)
        found.blocks.append(events)

    def _one_by_one(self, text: Text, found: _Found) -> None:
        builder, origin = self._rules.builder(), found.origin
        append_lines(*text.lines(slice(None)), self._rules, builder, found.letters.add)
        found.blocks.append(builder.build(found.end, origin.source, origin.partition, found.arrival_ms))


class _Found:
    """Results found in a text so far."""

    def __init__(self, origin: Origin, end: int, arrival_ms: float) -> None:
        self.origin, self.end, self.arrival_ms = origin, end, arrival_ms
        self.blocks: list[Events] = []
        self.letters = LineLetters(origin)


def _cut(text: Text, odd: np.ndarray | None) -> list[Text]:
    """A text in parts between which its odd lines stand alone; in halves where they are not known."""
    if odd is None:
        half = len(text) // 2
        return [text.part(0, half), text.part(half, len(text))]
    bounds = np.unique(np.concatenate([[0], odd, odd + 1, [len(text)]])).tolist()
    return [text.part(first, last) for first, last in itertools.pairwise(bounds)]
