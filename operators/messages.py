"""What an operator hands on: blocks addressed to a part of the next operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from state.codec import Block, encode
from state.sweep import Mutations

STORAGE, TAIL, SINK = "storage", "tail", "sink"
OUTLET = "outlet"  # the topic of changed embeddings

# Places in the column `ctl`, int64[8]; FLAGS holds REPLAY, LAST, FLUSH and PUBLISH.
CONTROLS = 8
MARKER, EVENTS_IN_EPOCH, ARRIVAL_MS, FLAGS, REJECTED, ACCEPTED, VERTICES, STREAMED_MS = range(CONTROLS)
REPLAY, LAST, FLUSH, PUBLISH = 1, 2, 4, 8


def control_values(
    marker: int = -1,
    events: int = 0,
    arrival_ms: float = 0,
    flags: int = 0,
    rejected: int = 0,
    accepted: int = 0,
    vertices: int = 0,
    streamed_ms: float = 0,
) -> np.ndarray:
    """The column `ctl` of an epoch's blocks.

    `marker` is its number, -1 for none; `events` and `arrival_ms` (of the first one at the Parser) are the epoch's; the
    last four count from the beginning of the job.
    """
    values = np.empty(CONTROLS, np.int64)
    values[[MARKER, EVENTS_IN_EPOCH, ARRIVAL_MS, FLAGS]] = marker, events, int(arrival_ms), flags
    values[[REJECTED, ACCEPTED, VERTICES, STREAMED_MS]] = rejected, accepted, vertices, int(streamed_ms)
    return values


class Message(NamedTuple):
    """A block for one part of one operator: as it is within a process, encoded between processes."""

    to: str
    part: int
    epoch: int
    source: int
    block: Block | bytes

    def encoded(self) -> Message:
        """The message with the bytes of its block."""
        block = self.block
        return self._replace(block=encode(block.header, block.columns)) if isinstance(block, Block) else self


@dataclass(slots=True)
class Outcome:
    """What acting on an epoch leads to: messages to send and entries of keyed state to change."""

    messages: list[Message] = field(default_factory=list)
    mutations: Mutations = field(default_factory=Mutations)

    @property
    def puts(self) -> list[tuple[str, bytes]]:
        """Entries to set."""
        return self.mutations.puts

    @property
    def deletes(self) -> list[str]:
        """Entries to remove, after the puts."""
        return self.mutations.deletes


Columns = dict[str, np.ndarray]
