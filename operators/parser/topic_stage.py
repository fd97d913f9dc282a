"""The Parser's stage for one Kafka topic: messages in, encoded blocks of events out, rejects to the dead letters."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from freshet.operators.parser.core import Origin, Parser, RawMessage
from freshet.operators.parser.file_stage import block_size, encoded_blocks
from freshet.operators.parser.letter_box import LetterBox
from freshet.operators.telemetry.status_file import StatusFile, read_statuses

STATUS_PREFIX = "kafka-"
_MESSAGE = struct.Struct(">iqi")  # partition, offset, bytes of the value (-1: there is none), as MessageBatcher.java


class TopicMessage(NamedTuple):
    """A message as the source hands it on."""

    partition: int
    offset: int
    value: bytes | None


def messages_of(batch: bytes) -> Iterator[TopicMessage]:
    """The messages of a batch, in the order in which they were read."""
    at = 0
    while at < len(batch):
        partition, offset, size = _MESSAGE.unpack_from(batch, at)
        at += _MESSAGE.size
        value = None if size < 0 else batch[at : at + size]
        at += max(size, 0)
        yield TopicMessage(partition, offset, value)


class MessageStage:
    """Parses the messages of one topic, many at once.

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
    ) -> None:
        """`origin` has the topic's index and name; `out`: where the status is written, None: nowhere."""
        self._parser, self._origin, self.dead_letters = parser, origin, dead_letters
        self._block_events = block_size(epoch_events)
        self._next: dict[int, int] = {}
        self._status = StatusFile(out, f"{STATUS_PREFIX}{origin.source}") if out is not None else None
        self.status_behind = False

    def parse(self, batch: bytes) -> list[bytes]:
        """The blocks of a batch of messages; the rejected records are in the dead letters when this returns."""
        arrival_ms = time.time() * 1e3
        by_partition: dict[int, list[RawMessage]] = {}
        for partition, offset, value in messages_of(batch):
            by_partition.setdefault(partition, []).append(RawMessage(offset, value))
        blocks: list[bytes] = []
        for partition, found in by_partition.items():
            blocks += self._blocks(partition, found, arrival_ms)
            self._next[partition] = found[-1].offset + 1
        self._tell(arrival_ms)
        return blocks

    def _blocks(self, partition: int, messages: Sequence[RawMessage], arrival_ms: float) -> list[bytes]:
        origin = self._origin._replace(partition=partition)
        events, letters = self._parser.parse_messages(messages, origin, arrival_ms)
        if letters and self.dead_letters is not None:
            self.dead_letters.write(letters)
        if not len(events) and not letters:
            return []
        return [block.encoded for block in encoded_blocks(events, letters, self._block_events)]

    def _tell(self, now_ms: float) -> None:
        """Write down how far each partition has been read."""
        self.status_behind = self._status is not None
        if self._status is not None and self._status.is_due(now_ms):
            self._status.write({"source": self._origin.name, "next": list(self._next.items())}, now_ms)
            self.status_behind = False

    def close(self) -> None:
        """Write the last status."""
        if self._status is not None and self.status_behind:
            self._tell(float("inf"))


def read_positions(out: Path) -> dict[str, dict[int, int]]:
    """By source and partition, the offset of the next message that the job will read."""
    found = read_statuses(out, STATUS_PREFIX, needs={"source": str, "next": list[tuple[int, int]]})
    return {one["source"]: {int(partition): int(offset) for partition, offset in one["next"]} for one in found}
