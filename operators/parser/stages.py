"""The Parser's stages for files and for a Kafka topic: encoded blocks of events out, rejects to the dead letters.

Chunks of JSON Lines may be parsed ahead, on threads of their own; they are taken in the order of the plan. Most of the
work of parsing needs no interpreter lock. So what follows a chunk can be parsed while the chunk is processed. Nothing
is written before a chunk is taken, so one that is never taken leaves no trace.
"""

from __future__ import annotations

import threading
import time
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from freshet.files.json_file import DamagedFileError, parse_json
from freshet.files.whole import write_whole
from freshet.operators.parser.arrow.arrays import all_columns
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.event_files import EventFileError
from freshet.operators.parser.files import Chunk, ChunkReader
from freshet.operators.parser.formats import JSONL, TEXTS, compression_of
from freshet.operators.parser.letter_box import OTHER_REASONS, DeadLetter, LetterBox, reason_of
from freshet.operators.parser.messages import MessageValues, messages_in
from freshet.operators.parser.parse_rows import Parsed
from freshet.operators.parser.records import records, to_json
from freshet.operators.parser.text_tables.rows import TextRows
from freshet.operators.telemetry.positions import POSITIONS_PREFIX, NextOffset, positions_in
from freshet.operators.telemetry.status_file import StatusFile
from freshet.operators.telemetry.traffic import Traffic
from freshet.partitioner.events import Events


def is_parsed_ahead(chunk: Chunk) -> bool:
    """Return whether a chunk may be parsed before its turn.

    Compressed files are read in order; and the columns of tables need no parsing.
    """
    return (chunk.format == JSONL or chunk.format in TEXTS) and compression_of(chunk.path) is None


class ParsedAhead:
    """Parses the chunks that follow the one that was taken last, as many as there are threads.

    Invariant: at most one chunk for each thread is parsed or waits.
    """

    def __init__(self, chunks: Sequence[Chunk], parsers: Iterable[Parser]) -> None:
        """`parsers`: one for each thread, all of the same rules; none of them has a kind of ids to decide."""
        self._chunks, self._begun = chunks, dict[int, Future[Parsed]]()
        left = SimpleQueue[Parser]()
        for parser in parsers:
            left.put(parser)
        self._threads = left.qsize()
        self._pool = ThreadPoolExecutor(self._threads, "freshet-ahead", _begin, (left,))

    def take(self, number: int) -> Parsed | None:
        """Return a chunk's events and letters, and begin those that follow; None if it was not begun.

        Raises: EventFileError, as `ChunkReader.read`.
        """
        found = self._begun.pop(number, None)
        for other in [other for other in self._begun if not number < other <= number + self._threads]:
            self._begun.pop(other).cancel()
        for other in range(number + 1, min(number + 1 + self._threads, len(self._chunks))):
            if other not in self._begun and is_parsed_ahead(self._chunks[other]):
                self._begun[other] = self._pool.submit(_parse, self._chunks[other])
        return None if found is None else found.result()

    def close(self) -> None:
        """End the threads, after what they are doing."""
        self._pool.shutdown(wait=False, cancel_futures=True)


_own = threading.local()  # parser and reader of a thread: neither may be shared


def _begin(parsers: SimpleQueue[Parser]) -> None:
    _own.parser = parsers.get()
    _own.reader = ChunkReader(fields=_own.parser.fields)


def _parse(chunk: Chunk) -> Parsed:
    parser: Parser = _own.parser
    return parser.parse_chunk(chunk, _own.reader.read(chunk))


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


_Data: TypeAlias = "list[bytes] | pa.RecordBatch | TextRows"


class Originals:
    """The records of a job's files as they came, read again: where the Partitioner refuses events, it has no others."""

    def __init__(self, plan: Path) -> None:
        """`plan` is the reading plan; without that file there is no record."""
        self._plan = plan
        self._chunks: dict[int, list[Chunk]] | None = None
        self._reader = ChunkReader()
        self._read: tuple[Chunk, _Data] | None = None  # a chunk has many that are refused

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
        if isinstance(data, TextRows):
            return data.raw(row)
        return to_json(records(all_columns(data), np.array([row]))[0])

    def _data_of(self, chunk: Chunk) -> _Data:
        if self._read is None or self._read[0] != chunk:
            data = self._reader.read(chunk)
            self._read = chunk, data.split(b"\n") if isinstance(data, bytes) else data
            if isinstance(data, pa.RecordBatch):
                self._read = chunk, self._reader.whole(chunk)
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
    waiting, reason, records = iter(letters), OTHER_REASONS, 0  # records of the newest letter that are in no block yet
    for start in range(0, max(len(events), 1), block_events):
        block, mine, reasons = events.slice(start, start + block_events), list[DeadLetter](), dict[str, int]()
        left = block.rejected
        while left:
            if not records:
                letter = next(waiting, None)
                mine += [] if letter is None else [letter]
                reason, records = (OTHER_REASONS, left) if letter is None else (reason_of(letter.error), letter.records)
            count = min(left, records)
            reasons[reason] = reasons.get(reason, 0) + count
            left, records = left - count, records - count
        tombstones = 0 if start else events.tombstones
        block = replace(block, reasons=tuple(reasons.items()), tombstones=tombstones)
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


class MessageStage:
    """Parses the messages of some partitions of a topic, many at once.

    Invariant: the events of a partition follow one another as its messages do, whatever is handed over at once. A
    message that is larger than a block goes on in the next one, and the block says so (its end is the message's own
    offset).
    """

    def __init__(
        self,
        parser: Parser,
        origin: Origin,
        dead_letters: LetterBox | None,
        epoch_events: int,
        out: Path | None = None,
        task: int = 0,
    ) -> None:
        """`origin` has the topic's index and name; `out`: where the task's status is written, None: nowhere."""
        self._parser, self._origin, self.dead_letters = parser, origin, dead_letters
        self._block_events = block_size(epoch_events)
        name = f"{POSITIONS_PREFIX}{origin.source}" + (f"-{task}" if task else "")
        self._status = StatusFile(out, name) if out is not None else None
        # A partition may be another task's now, and have no message since: this task's file alone tells of it then.
        self._next = {} if self._status is None else positions_in(self._status.read())
        self._status_behind = False
        self.traffic = Traffic()

    def parse(self, batch: bytes) -> list[bytes]:
        """The blocks of a batch of messages; the rejected records are in the dead letters when this returns."""
        arrival_ms = time.time() * 1e3
        blocks: list[bytes] = []
        for partition, found in messages_in(batch).items():
            blocks += self._blocks(partition, found, arrival_ms)
            self.traffic.add(len(found), int(found.size.clip(0).sum()))
            self._next[partition] = NextOffset(int(found.offsets[-1]) + 1, int(arrival_ms))
            self._status_behind = self._status is not None
        self._tell(arrival_ms)
        return blocks

    def write_status(self) -> None:
        """Write down how far each partition has been read, if that is due and not in the file: in a pause, too."""
        self._tell(time.time() * 1e3)

    def _blocks(self, partition: int, messages: MessageValues, arrival_ms: float) -> list[bytes]:
        origin = self._origin._replace(partition=partition)
        events, letters = self._parser.parse_batch(messages, origin, arrival_ms)
        if letters and self.dead_letters is not None:
            self.dead_letters.write(letters)
        if not len(events) and not letters and not events.tombstones:
            return []
        return [block.encoded for block in encoded_blocks(events, letters, self._block_events)]

    def _tell(self, now_ms: float) -> None:
        if self._status is not None and self._status_behind and self._status.is_due(now_ms):
            offsets = [(partition, *found) for partition, found in self._next.items()]
            self._status.write({"source": self._origin.name, "next": offsets}, now_ms)
            self._status_behind = False

    def close(self) -> None:
        """Write the last status."""
        self._tell(float("inf"))
