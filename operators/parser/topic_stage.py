"""The Parser's stage for one Kafka topic: messages in, encoded blocks of events out, rejects to the dead letters."""

from __future__ import annotations

import time
from pathlib import Path

from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.file_stage import block_size, encoded_blocks
from freshet.operators.parser.letter_box import LetterBox
from freshet.operators.parser.messages import MessageValues, messages_in
from freshet.operators.telemetry.status_file import StatusFile, read_statuses
from freshet.operators.telemetry.traffic import Traffic

STATUS_PREFIX = "kafka-"


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
        self.traffic = Traffic()

    def parse(self, batch: bytes) -> list[bytes]:
        """The blocks of a batch of messages; the rejected records are in the dead letters when this returns."""
        arrival_ms = time.time() * 1e3
        blocks: list[bytes] = []
        for partition, found in messages_in(batch).items():
            blocks += self._blocks(partition, found, arrival_ms)
            self.traffic.add(len(found), int(found.size.clip(0).sum()))
            self._next[partition] = int(found.offsets[-1]) + 1
        self._tell(arrival_ms)
        return blocks

    def _blocks(self, partition: int, messages: MessageValues, arrival_ms: float) -> list[bytes]:
        origin = self._origin._replace(partition=partition)
        events, letters = self._parser.parse_batch(messages, origin, arrival_ms)
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
    """Return, by source and partition, the offset of the next message that the job will read."""
    found = read_statuses(out, STATUS_PREFIX, needs={"source": str, "next": list[tuple[int, int]]})
    return {one["source"]: {int(partition): int(offset) for partition, offset in one["next"]} for one in found}
