"""The Parser's stage for files: chunk numbers in, encoded blocks of events out, rejects to the dead letters."""

from __future__ import annotations

import time
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from freshet.files.json_file import DamagedFileError, parse_json
from freshet.files.whole import write_whole
from freshet.operators.parser.ahead import ParsedAhead
from freshet.operators.parser.arrow.arrays import all_columns
from freshet.operators.parser.core import Parser
from freshet.operators.parser.dead_letters import DeadLetter
from freshet.operators.parser.event_files import EventFileError
from freshet.operators.parser.files import Chunk, ChunkReader
from freshet.operators.parser.letter_box import OTHER_REASONS, LetterBox, reason_of
from freshet.operators.parser.records import records, to_json
from freshet.partitioner.events import Events

_LINES = "lines_crc32"
_PUT_BACK = "put it back from a copy, or start the job again in a new --out"
BLOCK_EVENTS_MIN, BLOCK_EVENTS_MAX = 1000, 8000


def write_plan(chunks: Sequence[Chunk], path: Path) -> None:
    """Keep the reading plan of a job's input: a line for each chunk, and one that says how many there are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = b"".join(chunk.encode() + b"\n" for chunk in chunks)
    write_whole(path, lines + orjson.dumps({"chunks": len(chunks), _LINES: zlib.crc32(lines)}) + b"\n")


def read_plan(path: Path, *, has_end: bool = False) -> list[Chunk]:
    """The inverse of `write_plan`; `has_end`: no version wrote it that left the last line out.

    Raises: DamagedFileError when it is not what was written.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        msg = f"{path}: can't be read: {error.strerror}; {_PUT_BACK}"
        raise DamagedFileError(msg) from None
    try:
        return _chunks_in(data, has_end)
    except ValueError as error:
        msg = f"{path}: damaged: {error}; {_PUT_BACK}"
        raise DamagedFileError(msg) from None


def _chunks_in(data: bytes, has_end: bool) -> list[Chunk]:
    begin = data[:-1].rfind(b"\n") + 1
    lines, end = data[:begin], data[begin:]
    if end.startswith(b'{"chunks":'):
        if parse_json(end, dict[str, int]).get(_LINES) != zlib.crc32(lines):
            msg = "its lines do not match their checksum"
            raise ValueError(msg)
    elif has_end:
        msg = "its last line is missing"
        raise ValueError(msg)
    else:
        lines = data
    return parse_json(b"[" + lines.strip().replace(b"\n", b",") + b"]", list[Chunk])


class Originals:
    """The records of a job's files as they came, read again: where the Partitioner refuses events, it has no others."""

    def __init__(self, plan: Path) -> None:
        """`plan` is the reading plan; without that file there is no record."""
        self._plan = plan
        self._chunks: dict[int, list[Chunk]] | None = None
        self._reader = ChunkReader()
        self._read: tuple[Chunk, list[bytes] | pa.RecordBatch] | None = None  # a chunk has many that are refused

    def __call__(self, source: int, number: int) -> bytes | None:
        """Line or row `number` of a source, a row as JSON; None where there is none to be read."""
        if self._chunks is None:
            self._chunks = {}
            for one in read_plan(self._plan) if self._plan.is_file() else ():
                self._chunks.setdefault(one.source, []).append(one)
        chunks = self._chunks.get(source, [])
        at = bisect_right(chunks, number, key=lambda one: one.first) - 1
        if at < 0 or number >= chunks[at].first + chunks[at].count:
            return None
        try:
            data = self._data_of(chunks[at])
        except EventFileError:  # it has gone since
            return None
        row = number - chunks[at].first
        if isinstance(data, list):
            return data[row]
        return to_json(records(all_columns(data), np.array([row]))[0])

    def _data_of(self, chunk: Chunk) -> list[bytes] | pa.RecordBatch:
        if self._read is None or self._read[0] != chunk:
            data = self._reader.read(chunk)
            self._read = chunk, data.split(b"\n") if isinstance(data, bytes) else self._reader.whole(chunk)
        return self._read[1]


def block_size(epoch_events: int) -> int:
    """Return the most events of a block, for epochs of this size."""
    return max(BLOCK_EVENTS_MIN, min(epoch_events, BLOCK_EVENTS_MAX))


class ParsedBlock(NamedTuple):
    """An encoded block of events, and the letters of the rejected records that stand in it."""

    encoded: bytes
    letters: list[DeadLetter]


def encoded_blocks(events: Events, letters: Sequence[DeadLetter], block_events: int) -> Iterator[ParsedBlock]:
    """Encode the events in blocks of at most `size`; an empty block if there are none, for its rejected records.

    `letters` are in the order of the records; the count of a letter for many may be split among several blocks.
    """
    waiting, reason, records = iter(letters), OTHER_REASONS, 0  # so many of the newest letter are not told of
    for start in range(0, max(len(events), 1), block_events):
        block, mine, told = events.slice(start, start + block_events), list[DeadLetter](), dict[str, int]()
        left = block.rejected
        while left:
            if not records:
                letter = next(waiting, None)
                mine += [] if letter is None else [letter]
                reason, records = (OTHER_REASONS, left) if letter is None else (reason_of(letter.error), letter.records)
            count = min(left, records)
            told[reason] = told.get(reason, 0) + count
            left, records = left - count, records - count
        tombstones = 0 if start else events.tombstones
        block = replace(block, reasons=tuple(told.items()), tombstones=tombstones)
        yield ParsedBlock(block.encode(), mine)


class ParserStage:
    """Reads and parses chunk after chunk of the plan.

    Invariant: the blocks of a chunk are a function of the chunk alone, so that it can be read again after a failure.
    """

    def __init__(
        self,
        plan: Path,
        parser: Parser,
        dead_letters: LetterBox | None,
        epoch_events: int,
        ahead: Sequence[Parser] = (),
    ) -> None:
        """`ahead`: more parsers of the same rules, for threads that parse what follows."""
        self._chunks = read_plan(plan)
        self._parser = parser
        # While the first accepted event decides the kind of ids, none may be parsed before it.
        self._ahead = ParsedAhead(self._chunks, ahead) if ahead and parser.id_kind is not None else None
        self.dead_letters = dead_letters
        self._reader = ChunkReader(every_column=parser.is_mapped, fields=parser.fields)
        self._block_events = block_size(epoch_events)

    def parse(self, number: int) -> list[bytes]:
        """The blocks of one chunk; its rejected records are in the dead letters when this returns."""
        return [self.taken(block) for block in self.parsed(number)]

    def parsed(self, number: int) -> Iterator[ParsedBlock]:
        """The blocks of one chunk, of which no rejected record is in the dead letters before they are `taken`."""
        arrival_ms = time.time() * 1e3
        found = None if self._ahead is None else self._ahead.take(number)
        if found is None:
            chunk = self._chunks[number]
            data, whole = self._reader.read(chunk), partial(self._reader.whole, chunk)
            events, letters = self._parser.parse_chunk(chunk, data, arrival_ms, whole)
        else:
            events, letters = replace(found[0], arrival_ms=arrival_ms), found[1]
        return encoded_blocks(events, letters, self._block_events)

    def taken(self, block: ParsedBlock) -> bytes:
        """A block that is to be processed; its rejected records are in the dead letters when this returns."""
        if block.letters and self.dead_letters is not None:
            self.dead_letters.write(block.letters)
        return block.encoded

    def close(self) -> None:
        """End the threads."""
        if self._ahead is not None:
            self._ahead.close()
