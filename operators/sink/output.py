"""Outputs of a Sink: the change log, the recent changes for servers, and a topic are equal members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from freshet.operators.outcome import Message
from freshet.operators.sink.epoch_rows import EpochRows
from freshet.operators.telemetry.latency import Latencies
from freshet.operators.telemetry.level import Level
from freshet.operators.telemetry.traffic import Traffic
from freshet.state.table import Table

# The rows of the durable table `scalars`, int64.
NUMBER, ROWS, EVENTS, REJECTED, EPOCH, VERTICES, STREAMED_MS, _, GROUP, GROUP_ROWS = range(10)


@dataclass(frozen=True, slots=True)
class SinkPart:
    """Objects that a Sink shares with its outputs: its durable scalars, its latencies and its clock.

    `on_idle` is for an output with a thread of its own, which calls it about twice a second while it has nothing to do.
    """

    scalars: Table
    latencies: Latencies
    clock_ms: Callable[[], float]
    on_idle: Callable[[], None]


class Output(Protocol):
    """Takes the rows of every epoch, in order.

    Contract:
    - what becomes visible is a function of the epochs alone: an epoch that comes again changes nothing;
    - a restore begins at a marker or the one before, so what came up to that one is durable when `pass_marker` returns.
    """

    leaves_by_epoch: bool
    """Whether rows leave the job as they come, so that keyed state keeps `flushed` (OutletStage)."""

    flushed: int
    """The epoch up to which rows have left the job so."""

    traffic: Traffic
    """Messages in which they left."""

    @property
    def levels(self) -> Mapping[str, Level]:
        """Levels of its queues."""

    def begin(self, part: SinkPart) -> None:
        """Begin, before the first epoch and before the tables are restored."""

    def check(self) -> None:
        """See whether something failed in the background.

        Raises: ChangeLogError where it did, and the job must be restored.
        """

    def take(self, epoch: int, keys: np.ndarray, rows: EpochRows, control: np.ndarray) -> list[Message]:
        """Take an epoch: `keys` (int64) of the changed vertices, then of the deleted ones; messages to send."""

    def idle(self) -> None:
        """Show what waits, for the stream pauses; on the thread that calls `on_idle`."""

    def figures(self) -> dict[str, Any]:
        """Return its figures for the status of the part."""

    def pass_marker(self) -> None:
        """The epoch that was taken last is a marker."""

    def clear(self) -> None:
        """Forget what an epoch before a restore left behind; the tables are restored."""

    def close(self, write: bool) -> None:
        """End: make buffered rows visible, since the last epoch of an input need not carry LAST.

        The same epochs may be replayed after a restore, followed by more. `write=False`: drop the buffer, after a
        failure.
        """
