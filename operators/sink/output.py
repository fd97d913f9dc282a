"""What a Sink writes to: the change log, a topic, and whatever comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from freshet.operators.outcome import Message
from freshet.operators.sink.epoch_rows import EpochRows
from freshet.operators.telemetry.level import Level


class Output(Protocol):
    """Takes the rows of every epoch, in order.

    Contract:
    - what becomes visible is a function of the epochs alone: an epoch that comes again changes nothing;
    - a restore begins at a marker or the one before, so what came up to that one is durable when `pass_marker` returns.
    """

    @property
    def levels(self) -> Mapping[str, Level]:
        """What waits in it."""

    def take(self, epoch: int, keys: np.ndarray, rows: EpochRows, control: np.ndarray) -> list[Message]:
        """Take an epoch: `keys` (int64) of the changed vertices, then of the deleted ones; messages to send."""

    def pass_marker(self) -> None:
        """The epoch that was taken last is a marker."""

    def clear(self) -> None:
        """Forget what an epoch before a restore left behind; the tables are restored."""

    def close(self, write: bool) -> None:
        """End: what is held becomes visible, for the last epoch of an input need not carry LAST.

        It may come again after a restore, and more with it. `write=False`: after a failure, it is dropped.
        """
