"""Kafka messages, many in one piece, and the batches in which Java hands them over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson

from freshet.operators.parser.json_lines.text import Text

KEY = "__key"  # the one field of the record that a message without a value is, for maps that name it
_NO_VALUE, _KEY_FROM = -1, -2


class RawMessage(NamedTuple):
    """A message of a partition: its offset, its value (None: a tombstone), and perhaps the key of a tombstone."""

    offset: int
    value: bytes | None
    key: bytes | None = None


class TopicMessage(NamedTuple):
    """A message of a topic."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None  # where it has no value


@dataclass(frozen=True, slots=True)
class MessageValues:
    """Messages of one partition.

    Shapes:
        offsets: (m,) int64
        begin, size: (m,) int64, the value of message k is data[begin[k]:begin[k] + size[k]]; size -1: there is
            none; size -2 - n: there is none, and n bytes of the key stand there

    Invariant: a line feed follows each value or key, and values are in the order of the messages.
    """

    data: bytes
    offsets: np.ndarray
    begin: np.ndarray
    size: np.ndarray

    @staticmethod
    def of(messages: Sequence[RawMessage]) -> MessageValues:
        """Return single messages as one piece."""
        size = np.array([_size_of(*one[1:]) for one in messages], np.int64)
        offsets = np.array([one.offset for one in messages], np.int64)
        there = [one.key if one.value is None else one.value for one in messages]
        data = b"".join([one + b"\n" for one in there if one is not None])
        return MessageValues(data, offsets, _begins(size), size)

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[RawMessage]:
        return (RawMessage(offset, self.value(k), self.key(k)) for k, offset in enumerate(self.offsets.tolist()))

    def value(self, k: int) -> bytes | None:
        """Return the value of message k."""
        begin, size = int(self.begin[k]), int(self.size[k])
        return None if size < 0 else self.data[begin : begin + size]

    def key(self, k: int) -> bytes | None:
        """Return the key of message k, if it has no value and its key came along."""
        begin, size = int(self.begin[k]), _KEY_FROM - int(self.size[k])
        return self.data[begin : begin + size] if size >= 0 else None

    def apart(self, start: bytes) -> list[int]:
        """Return the numbers of the messages without a value, and of those whose value starts so."""
        first = np.frombuffer(start, np.uint8)
        data = np.frombuffer(self.data, np.uint8)
        long = np.flatnonzero(self.size >= len(first))
        starts = (data[self.begin[long][:, None] + np.arange(len(first))] == first).all(axis=1)
        apart = self.size < 0
        apart[long[starts]] = True
        return np.flatnonzero(apart).tolist()

    def with_keys(self) -> MessageValues:
        """Return the messages with records of keys in place of values that are not there."""
        if (self.size >= _NO_VALUE).all():
            return self
        there = [(offset, value, key) for offset, value, key in self]
        return MessageValues.of([RawMessage(k, value if key is None else _as_value(key)) for k, value, key in there])

    def text(self, rows: np.ndarray) -> Text:
        """Return the lines of some messages, in ascending order, which have values."""
        begin, size = self.begin[rows], self.size[rows]
        if not len(rows):
            return Text.of_messages(b"", begin, begin)
        end = begin + size
        runs = [0, *(np.flatnonzero(begin[1:] != end[:-1] + 1) + 1).tolist(), len(rows)]
        bounds = [(int(begin[a]), int(end[b - 1]) + 1) for a, b in itertools.pairwise(runs)]
        ends = np.cumsum(size + 1) - 1
        return Text.of_messages(b"".join([self.data[a:b] for a, b in bounds]), ends, self.offsets[rows] + 1)


def messages_in(batch: bytes) -> dict[int, MessageValues]:
    """Return the messages of a batch by partition, in the order of their first ones.

    A batch is int64 m; of m messages, in the order in which they were read, int64 offsets, int32 partitions and int32
    sizes (-1: no value, -2 - n: a key of n bytes in its place), little-endian; and these, each followed by a line feed.
    MessageBatcher.java makes it.
    """
    if not batch:
        return {}
    count = int(np.frombuffer(batch, "<i8", 1)[0])
    offsets = np.frombuffer(batch, "<i8", count, 8)
    partitions = np.frombuffer(batch, "<i4", count, 8 + 8 * count)
    size = np.frombuffer(batch, "<i4", count, 8 + 12 * count).astype(np.int64)
    begin = _begins(size) + (8 + 16 * count)
    found, first = np.unique(partitions, return_index=True)
    if len(found) == 1:
        return {int(found[0]): MessageValues(batch, offsets, begin, size)}
    messages = {}
    for partition in found[np.argsort(first)].tolist():
        rows = np.flatnonzero(partitions == partition)
        messages[partition] = MessageValues(batch, offsets[rows], begin[rows], size[rows])
    return messages


def _begins(size: np.ndarray) -> np.ndarray:
    """Return where values of these sizes begin."""
    stored = np.where(size >= 0, size, np.where(size == _NO_VALUE, -1, _KEY_FROM - size)) + 1
    return np.cumsum(stored) - stored


def _size_of(value: bytes | None, key: bytes | None) -> int:
    if value is not None:
        return len(value)
    return _NO_VALUE if key is None else _KEY_FROM - len(key)


def key_record(key: bytes) -> dict[str, Any]:
    """Return the record of a key without a value: its JSON, or its text where it is none.

    Raises: UnicodeDecodeError where it is no text.
    """
    try:
        return {KEY: orjson.loads(key)}
    except orjson.JSONDecodeError:
        return {KEY: key.decode()}


def _as_value(key: bytes) -> bytes:
    """Return the record of a key as a line of JSON; what is no text stays, and so becomes a dead letter."""
    try:
        return orjson.dumps(key_record(key))
    except UnicodeDecodeError:
        return key
