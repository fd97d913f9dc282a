"""Events to Kafka messages: which partition an event goes to, and how many of them make a message."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from freshet.operators.parser.arrow.arrays import all_columns
from freshet.operators.parser.files import Chunk, ChunkReader
from freshet.operators.parser.formats import BOM
from freshet.operators.parser.keys import KeyRules
from freshet.operators.parser.records import records, to_json
from freshet.operators.parser.rules import Rules, with_integers
from freshet.operators.parser.text_tables.rows import TextRows
from freshet.operators.parser.text_tables.values import preparing
from freshet.partitioner.times.units import Timed
from freshet.schema import Features

RouteBy = Literal["dst", "src", "one"]
MessageFormat = Literal["jsonl", "arrow"]

# Below the 1 MiB that a broker takes by default; a longer line travels alone.
MESSAGE_BYTES = 900_000
_EDGE_OPS = frozenset({"add_edge", "del_edge"})
_KEY_BYTES_SHORT = 64
_MURMUR = np.uint32(0x5BD1E995)


class Line(NamedTuple):
    """One event as JSON, where it goes, and the vertex that decides so (None for a malformed one)."""

    partition: int
    key: bytes | None
    data: bytes


class ProducedMessage(NamedTuple):
    """One Kafka message, with the number of its events."""

    partition: int
    key: bytes | None
    value: bytes
    events: int


class NoArrowError(ValueError):
    """Lines that can't be written as an Arrow table."""


class Router:
    """Chooses the partition of an event.

    `dst`: by an edge's destination, or the vertex of a vertex event. So an edge and its deletion keep their order, and
    so do a vertex and its in-edges, but not a vertex and its out-edges. `src`: the same with source and out-edges.
    `one`: everything to partition 0, which keeps all order. The partition is the one that Kafka's own producers choose
    for the id as key (murmur2), so that others can write to the same topic. A line that is no event goes by its bytes.
    """

    def __init__(self, by: RouteBy, partitions: int) -> None:
        self._by, self._partitions = by, partitions

    def route(self, lines: Sequence[bytes]) -> list[Line]:
        """Return the lines with their places."""
        keys = [self._key(data) for data in lines]
        if self._by == "one" or self._partitions == 1:
            return list(map(Line, repeat(0), keys, lines))
        chosen = (murmur2([key or b"" for key in keys]) & 0x7FFFFFFF) % self._partitions
        places = chosen.tolist()
        for k, key in enumerate(keys):
            if key is None:
                places[k] = zlib.crc32(lines[k]) % self._partitions
        return list(map(Line, places, keys, lines))

    def _key(self, data: bytes) -> bytes | None:
        try:
            event = orjson.loads(data)
            name = "id" if event["op"] not in _EDGE_OPS else "src" if self._by == "src" else "dst"
            vertex = event[name]
        except (ValueError, TypeError, KeyError, IndexError):
            return None
        if type(vertex) is str:
            return vertex.encode()
        return b"%d" % vertex if type(vertex) is int else None


def murmur2(keys: Sequence[bytes]) -> np.ndarray:
    """Return the hash of each key by which Kafka's own producers choose a partition, as uint32.

    All keys at once: one by one, in Python, they would take longer than all other work on an event.
    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    hashes: np.ndarray = np.uint32(0x9747B28C) ^ lengths.astype(np.uint32)
    short = np.flatnonzero(lengths <= _KEY_BYTES_SHORT)
    for rows in (short, *np.flatnonzero(lengths > _KEY_BYTES_SHORT)[:, None]):  # so that a long one pads no other
        if rows.size:
            _mix(hashes, rows, lengths[rows], [keys[row] for row in rows.tolist()])
    hashes = (hashes ^ hashes >> 13) * _MURMUR
    return hashes ^ hashes >> 15


def _mix(hashes: np.ndarray, rows: np.ndarray, lengths: np.ndarray, keys: list[bytes]) -> None:
    """Mix the keys' bytes into the hashes of these rows: words of four, then the rest."""
    size = 4 * (int(lengths.max()) // 4 + 1)
    words = np.frombuffer(b"".join(key.ljust(size, b"\0") for key in keys), "<u4").reshape(len(keys), -1)
    found = hashes[rows]
    for number in range(words.shape[1]):
        word = words[:, number]
        mixed = word * _MURMUR
        whole = found * _MURMUR ^ (mixed ^ mixed >> 24) * _MURMUR
        rest = np.where(lengths % 4 > 0, (found ^ word) * _MURMUR, found)
        found = np.where(number < lengths // 4, whole, np.where(number == lengths // 4, rest, found))
    hashes[rows] = found


class Packer:
    """Gathers the lines of each partition into messages of at most `batch` events."""

    def __init__(self, batch: int, kind: MessageFormat) -> None:
        self._batch, self._kind = batch, kind
        self._waiting: dict[int, list[Line]] = defaultdict(list)
        self._sizes: dict[int, int] = defaultdict(int)

    def add(self, lines: Iterable[Line]) -> Iterator[ProducedMessage]:
        """Take lines, and give the messages that are full by them."""
        if self._batch == 1 and self._kind == "jsonl":
            return (ProducedMessage(partition, key, data, 1) for partition, key, data in lines)
        return chain.from_iterable(map(self._add, lines))

    def _add(self, line: Line) -> Iterator[ProducedMessage]:
        size = len(line.data) + 1
        if self._waiting[line.partition] and self._sizes[line.partition] + size > MESSAGE_BYTES:
            yield self._pack(line.partition)
        self._waiting[line.partition].append(line)
        self._sizes[line.partition] += size
        if len(self._waiting[line.partition]) >= self._batch:
            yield self._pack(line.partition)

    def rest(self) -> Iterator[ProducedMessage]:
        """Give what still waits."""
        for partition in sorted(self._waiting):
            if self._waiting[partition]:
                yield self._pack(partition)

    def _pack(self, partition: int) -> ProducedMessage:
        lines = self._waiting.pop(partition)
        del self._sizes[partition]
        if self._kind == "arrow":
            return ProducedMessage(partition, None, to_arrow([line.data for line in lines]), len(lines))
        key = lines[0].key if len(lines) == 1 else None
        return ProducedMessage(partition, key, b"\n".join(line.data for line in lines), len(lines))


def read_lines(chunk: Chunk, reader: ChunkReader) -> list[bytes]:
    """Return the events of a chunk as lines of JSON: those of a JSON Lines file as they stand, blank ones left out."""
    data = reader.read(chunk)
    if isinstance(data, bytes):
        return [line for line in data.removeprefix(BOM).split(b"\n") if line.strip()]
    if isinstance(data, TextRows):
        return list(_lines_of(data))
    return [to_json(_as_line(record)) for record in records(all_columns(data), np.arange(data.num_rows))]


def _lines_of(rows: TextRows) -> Iterator[bytes]:
    """The rows of text as objects of JSON, with integers for ids that are written so; one that is none as its text."""
    rules = Rules(Features(0), keys=KeyRules(kind=None))
    prepare, columns = preparing(rules), rows.columns({*rows.names, *rows.constants, *rules.fields})
    for row, record in enumerate(records(columns, np.arange(len(rows)))):
        if row in rows.errors:
            yield orjson.dumps(rows.raw(row).decode(errors="replace"))
        else:
            yield to_json(_as_line(prepare(record, rules.keys.field)))


def _as_line(record: dict[str, Any]) -> dict[str, Any]:
    """A row of a table as an object of JSON; a timestamp in `ts` is an integer of milliseconds there."""
    if isinstance(at := record.get("ts"), Timed):
        record["ts"] = at.ms
    return with_integers(record)


def to_arrow(lines: Iterable[bytes]) -> bytes:
    """Return events as an Arrow IPC stream, with the columns that the interface names.

    Raises: NoArrowError for a line that no table can hold.
    """
    try:
        events = [_object(line) for line in lines]
        ids = [event[name] for event in events for name in ("id", "src", "dst") if event.get(name) is not None]
        kind = pa.string() if any(isinstance(each, str) for each in ids) else pa.int64()
        schema = pa.schema(
            [
                ("op", pa.string()),
                *((name, kind) for name in ("id", "src", "dst")),
                ("x", pa.list_(pa.float32())),
                ("weight", pa.float32()),
                ("type", pa.string()),
                ("attr", pa.list_(pa.float32())),
                ("ts", pa.int64()),
            ]
        )
        used = [field for field in schema if any(event.get(field.name) is not None for event in events)]
        batch = pa.RecordBatch.from_pylist(events, schema=pa.schema(used))
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        msg = f"a line that no Arrow table can hold ({' '.join(str(error).split())[:200]}); use --format jsonl"
        raise NoArrowError(msg) from None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _object(line: bytes) -> dict[str, Any]:
    event = orjson.loads(line)
    if not isinstance(event, dict):
        msg = f"expected an object, got {line[:80]!r}"
        raise TypeError(msg)
    return event
