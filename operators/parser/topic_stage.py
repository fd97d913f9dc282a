"""The Parser's stage for one Kafka topic: messages in, encoded blocks of events out, rejects to the dead letters."""

from __future__ import annotations

import time
from pathlib import Path

from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.file_stage import block_size, encoded_blocks
from freshet.operators.parser.letter_box import LetterBox
from freshet.operators.parser.messages import MessageValues, messages_in
from freshet.operators.telemetry.positions import POSITIONS_PREFIX, NextOffset, positions_in
from freshet.operators.telemetry.status_file import StatusFile
from freshet.operators.telemetry.traffic import Traffic


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
            told = [(partition, *found) for partition, found in self._next.items()]
            self._status.write({"source": self._origin.name, "next": told}, now_ms)
            self._status_behind = False

    def close(self) -> None:
        """Write the last status."""
        self._tell(float("inf"))
