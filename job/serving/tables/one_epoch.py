"""Rows of two kinds of vertices at one epoch, of tables that the same job fills one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.tables.served import Served
from freshet.state.served.mapped import NEWEST, HistoryTooShortError

PATIENCE_S = 2.0
_POLL_S = 0.001
T = TypeVar("T")


class _ApartError(NotReadyError):
    """The tables are not at one epoch at this moment."""


class _HasTable(Protocol):
    """Interface of a source of answers: a Lookup."""

    @property
    def served(self) -> Served:
        """The source of answers as it is now."""

    @property
    def whole(self) -> Served:
        """The same with all that can be read of the table."""


class OneEpoch:
    """The tables of the left and the right end of a pair, which may be one.

    Invariant: what is read of both is of an epoch that was the newest of each at one moment. Epochs of a service have
    its generation, so the tables are of one job.
    """

    def __init__(self, left: _HasTable, right: _HasTable) -> None:
        self._left, self._right = left, right

    def now(self, whole: bool = False) -> tuple[Served, Served, int]:
        """Return both sources, and the epoch up to which they are to be read; NEWEST of one table, for any.

        Raises: NotReadyError, also while they are at two epochs, or of two jobs.
        """
        left = self._left.whole if whole else self._left.served
        if self._right is self._left:
            return left, left, NEWEST
        right = self._right.whole if whole else self._right.served
        epochs = left.table.epoch, right.table.epoch
        if len(set(epochs)) > 1 or left.job.id_of_job != right.job.id_of_job:
            kinds, at = (left.job.kind_name, right.job.kind_name), " and ".join(map(str, epochs))
            msg = f"the tables of {' and '.join(kinds)} are at two epochs, {at}; ask again in a moment"
            raise _ApartError(msg)
        return left, right, epochs[0]

    def read(self, act: Callable[[], T]) -> T:
        """Return the result of a function that calls `now` and reads up to that epoch; repeat it for a moment.

        Raises: NotReadyError where the tables do not come to one epoch, HistoryTooShortError.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return act()
            except (_ApartError, HistoryTooShortError):
                if self._right is self._left or time.monotonic() >= deadline:
                    raise
            time.sleep(_POLL_S)
