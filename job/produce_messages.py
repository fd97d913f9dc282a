"""Events to Kafka messages: which partition an event goes to, and how many of them make a message."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from operators.event_files import Chunk, ChunkReader
from operators.event_records import records, to_json

RouteBy = Literal["dst", "src", "one"]
MessageFormat = Literal["jsonl", "arrow"]

# Below the 1 MiB that a broker takes by default; a longer line travels alone.
MESSAGE_BYTES = 900_000
_EDGE_OPS = frozenset({"add_edge", "del_edge"})
_KEYS_KEPT = 1 << 18


class Line(NamedTuple):
    """One event as JSON, where it goes, and the vertex that decides so (None for a malformed one)."""

    partition: int
    key: bytes | None
    data: bytes


class Message(NamedTuple):
    """What becomes one Kafka message."""

    partition: int
    key: bytes | None
    value: bytes
    events: int


class NoArrowError(ValueError):
    """Lines that can't be written as an Arrow table."""


class Router:
    """Chooses the partition of an event.

    `dst`: that of an edge's destination, and of the vertex of a vertex event. So an edge and its deletion keep their
    order, and a vertex and its in-edges, but not a vertex and its out-edges. `src`: the same with source and
    out-edges. `one`: everything to partition 0, and all order is kept. The partition is the one that Kafka's own
    producers choose for the id as key (murmur2), so that others can write to the same topic. A line that is no event
    goes by its bytes.
    """

    def __init__(self, by: RouteBy, partitions: int) -> None:
        self._by, self._partitions = by, partitions
        self._of_key = lru_cache(_KEYS_KEPT)(self._hash)

    def route(self, data: bytes) -> Line:
        """Return the line with its place."""
        key = self._key(data)
        if self._by == "one" or self._partitions == 1:
            return Line(0, key, data)
        return Line(zlib.crc32(data) % self._partitions if key is None else self._of_key(key), key, data)

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

    def _hash(self, key: bytes) -> int:
        from kafka.partitioner.default import murmur2

        return (murmur2(key) & 0x7FFFFFFF) % self._partitions


class Packer:
    """Gathers the lines of each partition into messages of at most `batch` events."""

    def __init__(self, batch: int, kind: MessageFormat) -> None:
        self._batch, self._kind = batch, kind
        self._waiting: dict[int, list[Line]] = defaultdict(list)
        self._sizes: dict[int, int] = defaultdict(int)

    def add(self, line: Line) -> Iterator[Message]:
        """Take a line, and give the messages that are full by it."""
        size = len(line.data) + 1
        if self._waiting[line.partition] and self._sizes[line.partition] + size > MESSAGE_BYTES:
            yield self._pack(line.partition)
        self._waiting[line.partition].append(line)
        self._sizes[line.partition] += size
        if len(self._waiting[line.partition]) >= self._batch:
            yield self._pack(line.partition)

    def rest(self) -> Iterator[Message]:
        """Give what still waits."""
        for partition in sorted(self._waiting):
            if self._waiting[partition]:
                yield self._pack(partition)

    def _pack(self, partition: int) -> Message:
        lines = self._waiting.pop(partition)
        del self._sizes[partition]
        if self._kind == "arrow":
            return Message(partition, None, to_arrow([line.data for line in lines]), len(lines))
        key = lines[0].key if len(lines) == 1 else None
        return Message(partition, key, b"\n".join(line.data for line in lines), len(lines))


def read_lines(chunk: Chunk, reader: ChunkReader) -> list[bytes]:
    """Return the events of a chunk as lines of JSON: those of a JSON Lines file as they stand, blank ones left out."""
    data = reader.read(chunk)
    if isinstance(data, bytes):
        return [line for line in data.split(b"\n") if line.strip()]
    columns = dict(zip(data.schema.names, data.columns, strict=True))
    return [to_json(record) for record in records(columns, np.arange(data.num_rows))]


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
        message = f"a line that no Arrow table can hold ({' '.join(str(error).split())[:200]}); use --format jsonl"
        raise NoArrowError(message) from None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _object(line: bytes) -> dict[str, Any]:
    event = orjson.loads(line)
    if not isinstance(event, dict):
        message = f"expected an object, got {line[:80]!r}"
        raise TypeError(message)
    return event
