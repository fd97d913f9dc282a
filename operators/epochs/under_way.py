"""Epochs under way: sealed by the Partitioner, and not yet applied by the Sink.

The Partitioner has one task, and Flink puts it into a slot with one task of every other operator of its group (all,
unless processes share the layers): so one task of the group's last operator, usually the Sink, is always in its
process, and reports the progress of the job. Others may be a little slower, and backpressure from later operators stops
them when these lag by more than the network's buffers. Numbers only decide when an epoch is cut, which the cut log
records: a wrong one would cost time, and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from weakref import WeakValueDictionary

from freshet.operators.telemetry.level import Level

_attempts: WeakValueDictionary[tuple[str, int], UnderWay] = WeakValueDictionary()
_lock = threading.Lock()


class UnderWay:
    """The newest epochs that were sealed and applied, in one attempt of one job.

    The Partitioner writes the one number, each task of the last operator its own, and any thread may read. Where two
    threads note something at once, `level` may show the older of the two until the next epoch.
    """

    def __init__(self) -> None:
        self.level = Level()
        self._begin = self._sealed = 0
        self._applied: dict[int, int] = {}

    def expect(self, parts: Iterable[int]) -> None:
        """These tasks of the last operator are in this process."""
        self._applied.update(dict.fromkeys(parts, 0))

    def begin(self, epoch: int) -> None:
        """The attempt begins at this epoch, which every task has in its state."""
        self._begin = self._sealed = epoch

    def note_sealed(self, epoch: int) -> None:
        """An epoch was sealed."""
        self._sealed = epoch
        self.level.set(self.epochs or 0)

    def note_applied(self, part: int, epoch: int) -> None:
        """A task of the last operator is done with an epoch."""
        self._applied[part] = epoch
        self.level.set(self.epochs or 0)

    @property
    def epochs(self) -> int | None:
        """Number of sealed epochs that some task in this process has not finished; None without tasks."""
        applied = list(self._applied.values())
        return max(0, self._sealed - max(self._begin, min(applied))) if applied else None


def of_attempt(job: str, attempt: int) -> UnderWay:
    """Return the state that the operators of one attempt share, which lives as long as one of them.

    A new attempt has its own: Flink drops the functions of a failed one when it likes, and those keep theirs.
    """
    with _lock:
        return _attempts.setdefault((job, attempt), UnderWay())
