"""The Parser's stage for files: chunk numbers in, encoded blocks of events out, rejects to the dead letters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from operators.parser.core import Parser
from operators.parser.files import Chunk, ChunkReader
from operators.parser.letter_box import LetterBox
from partitioner.events import Events

BLOCK_EVENTS_MIN, BLOCK_EVENTS_MAX = 1000, 8000


def write_plan(chunks: Sequence[Chunk], path: Path) -> None:
    """Keep the reading plan of a job's input."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(chunk.encode() for chunk in chunks))


def read_plan(path: Path) -> list[Chunk]:
    """The inverse of `write_plan`."""
    data = path.read_bytes()
    return [Chunk.decode(line) for line in data.split(b"\n")] if data else []


def block_size(epoch_events: int) -> int:
    """How many events a block has at most, for epochs of so many."""
    return max(BLOCK_EVENTS_MIN, min(epoch_events, BLOCK_EVENTS_MAX))


def encoded_blocks(events: Events, block_events: int) -> list[bytes]:
    """The events in blocks of so many; one without events where there are none, for it tells of rejected records."""
    starts = range(0, max(len(events), 1), block_events)
    return [events.slice(start, start + block_events).encode() for start in starts]


class ParserStage:
    """Reads and parses chunk after chunk of the plan.

    Invariant: the blocks of a chunk are a function of the chunk alone, so that it can be read again after a failure.
    """

    def __init__(self, plan: Path, parser: Parser, dead_letters: LetterBox | None, epoch_events: int) -> None:
        self._chunks = read_plan(plan)
        self._parser = parser
        self.dead_letters = dead_letters
        self._reader = ChunkReader(every_column=parser.is_mapped)
        self._block_events = block_size(epoch_events)

    def parse(self, number: int) -> list[bytes]:
        """The blocks of one chunk; its rejected records are in the dead letters when this returns."""
        arrival_ms = time.time() * 1e3
        chunk = self._chunks[number]
        events, letters = self._parser.parse_chunk(chunk, self._reader.read(chunk), arrival_ms)
        if letters and self.dead_letters is not None:
            self.dead_letters.write(letters)
        return encoded_blocks(events, self._block_events)

    def close(self) -> None:
        """Write the last counts of rejected records."""
        if self.dead_letters is not None:
            self.dead_letters.close()
