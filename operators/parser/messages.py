"""Kafka messages, many in one piece, and the batches in which Java hands them over."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshet.operators.parser.json_lines.text import Text

_NO_VALUE = -1


class RawMessage(NamedTuple):
    """A message of a partition: its offset, and its value (None: a tombstone)."""

    offset: int
    value: bytes | None


class TopicMessage(NamedTuple):
    """A message of a topic."""

    partition: int
    offset: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class MessageValues:
    """Messages of one partition.

    Shapes:
        offsets: (m,) int64
        begin, size: (m,) int64, the value of message k is data[begin[k]:begin[k] + size[k]]; size -1: there is none

    Invariant: a line feed follows each value, and values are in the order of the messages.
    """

    data: bytes
    offsets: np.ndarray
    begin: np.ndarray
    size: np.ndarray

    @staticmethod
    def of(messages: Sequence[RawMessage]) -> MessageValues:
        """Return single messages as one piece."""
        size = np.array([_NO_VALUE if value is None else len(value) for _, value in messages], np.int64)
        offsets = np.array([offset for offset, _ in messages], np.int64)
        data = b"".join([value + b"\n" for _, value in messages if value is not None])
        return MessageValues(data, offsets, _begins(size), size)

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[RawMessage]:
        return (RawMessage(offset, self.value(k)) for k, offset in enumerate(self.offsets.tolist()))

    def value(self, k: int) -> bytes | None:
        """Return the value of message k."""
        begin, size = int(self.begin[k]), int(self.size[k])
        return None if size < 0 else self.data[begin : begin + size]

    def apart(self, start: bytes) -> list[int]:
        """Return the numbers of the messages without a value, and of those whose value starts so."""
        first = np.frombuffer(start, np.uint8)
        data = np.frombuffer(self.data, np.uint8)
        long = np.flatnonzero(self.size >= len(first))
        starts = (data[self.begin[long][:, None] + np.arange(len(first))] == first).all(axis=1)
        apart = self.size < 0
        apart[long[starts]] = True
        return np.flatnonzero(apart).tolist()

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
    sizes (-1: no value), little-endian; and the values, each followed by a line feed. MessageBatcher.java makes it.
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
    stored = np.where(size < 0, 0, size + 1)
    return np.cumsum(stored) - stored
