"""Epochs by time: the last one whose time is not later than the asked one.

The time of an epoch is the greatest up to it, so that it never goes back: of events that come late, all count that had
come by then. An epoch holds what came up to its time, so a row of it is never from the future.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from freshet.job.folder.run_file import began_ms
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.epoch_files import EpochTimes, times_in
from freshet.state.served.times import NO_TIME

UNKNOWN = -1


class By(StrEnum):
    """Times of events (`ts`), or of their arrival at the Parser."""

    EVENT = "event"
    ARRIVAL = "arrival"


_COLUMN = {By.ARRIVAL: 0, By.EVENT: 1}  # of EpochTimes


class EpochsAt:
    """The epochs at asked times, by one file of `epochs/` after the other.

    `first` and `largest` are the times of its first and its last epoch that has one, NO_TIME before any.

    Shapes: epochs (n,) int64, UNKNOWN where the log does not say
    """

    def __init__(self, times: np.ndarray, by: By, upto: int, began: int | None) -> None:
        """`times` (n,) int64 ms since 1970; `upto`: the last epoch that counts; `began`: when epoch 0 was there.

        By events, epoch 0 comes before all of them.
        """
        self._times, self._by, self._column, self._upto = times, by, _COLUMN[by], upto
        self.first = self.largest = NO_TIME  # so far
        at_begin = began is None or by is By.EVENT
        self.epochs = np.where(at_begin | (times >= (began or 0)), 0, UNKNOWN)

    def take(self, found: EpochTimes) -> None:
        """Take in the next epochs."""
        within = found.epochs <= self._upto
        epochs, own = found.epochs[within], found.times[within, self._column]
        if not len(epochs):
            return
        if epochs[0] == 0 and self._by is By.ARRIVAL:  # of a snapshot: that of its input, before the job began
            own = np.where(epochs == 0, NO_TIME, own)
        so_far = np.maximum.accumulate(np.maximum(own, self.largest))
        blind = (so_far == NO_TIME) & (found.events[within] > 0)
        if blind.any():  # nobody knows when their events were: nothing is known before the first time
            self.epochs[:] = UNKNOWN
        at = np.searchsorted(so_far, self._times, "right") - 1
        known = (at >= 0) & (so_far[np.maximum(at, 0)] != NO_TIME)
        self.epochs[known] = epochs[at[known]]
        if self.first == NO_TIME:
            self.first = int(so_far[np.argmax(so_far != NO_TIME)])
        self.largest = int(so_far[-1])


def epochs_at(log: LogFolders, times: np.ndarray, by: By, upto: int) -> EpochsAt:
    """Find the last epochs up to `upto` whose time is not later than each of `times`, (n,) int64.

    Raises: DamagedFileError.
    """
    walk = EpochsAt(times, by, upto, began_ms(log.out))
    for path in sorted(log.epochs.glob("[!._]*.parquet")):
        walk.take(times_in(path))
    return walk
