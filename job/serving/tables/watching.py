"""Changes of a running job as they come, from its tails: all of them, or those of the predicted class alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from freshet.job.serving.tables.change_log_rows import rows_between
from freshet.job.serving.tables.part_tails import PartTails
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.tail.reader import TailEpoch
from freshet.state.served.ids import Texts, plain_ids

_POLL_S = 0.005
_ANSWER_S = 10.0  # of Flink, on whether a job without a client goes on
_LOST_S = 1.0  # without the next epoch, while the job is further, what is missing is gone


class Watch:
    """Follows a job from now on; every epoch once, in order, but for those that the tails have no more."""

    def __init__(
        self, job: ServedJob, lost: Callable[[int, int], None] = lambda first, last: None, after: int | None = None
    ) -> None:
        """`lost` is called with the first and last epoch of those that are missing; `after`: the epoch to begin with.

        Without `after` it begins with the newest one that is complete.
        """
        self.job, self._lost = job, lost
        self._parts = [PartTails(job.tails, part, job.word) for part in range(job.parts)]
        self.epoch = job.complete_epoch() if after is None else after

    def epochs(self, until: Callable[[], bool]) -> Iterator[tuple[int, list[TailEpoch]]]:
        """Yield each new epoch, until `until` returns True, or until the job has ended and all epochs were seen."""
        moved = time.monotonic()
        while not until():
            found = [part.get(self.epoch + 1) for part in self._parts]
            if all(one is not None for one in found):
                self.epoch += 1
                moved = time.monotonic()
                yield self.epoch, [one for one in found if one is not None]
            elif time.monotonic() - moved > _LOST_S:
                moved = time.monotonic()
                # Nothing comes once it is over.
                is_over, newest = self.job.is_over(_ANSWER_S), self.job.complete_epoch()
                if all(part.get(self.epoch + 1) is not None for part in self._parts):
                    continue  # it has come just now
                if newest > self.epoch:
                    self._lost(self.epoch + 1, newest)
                    self.epoch = newest
                elif is_over:
                    return
            else:
                time.sleep(_POLL_S)

    def pass_over(self, may: Callable[[list[TailEpoch]], bool]) -> None:
        """Leave out the next epochs, as long as they are there and `may` returns True."""
        while True:
            found = [one for part in self._parts if (one := part.get(self.epoch + 1)) is not None]
            if len(found) < len(self._parts) or not may(found):
                return
            self.epoch += 1

    def close(self) -> None:
        """Let the tails go."""
        for part in self._parts:
            part.close()


def changes(epoch: int, parts: list[TailEpoch], strings: bool) -> Iterator[tuple[dict[str, Any], np.ndarray | None]]:
    """The changes of an epoch as JSON objects, each with its row (None: deleted); a vertex that moved comes once."""
    put = [(one, _ids_of(one, strings)) for one in parts]
    alive = {id_ for one, ids in put for id_ in ids[: one.changed]}
    for one, ids in put:
        for id_ in ids[one.changed :]:
            if id_ not in alive:
                yield {"id": id_, "epoch": epoch, "deleted": True}, None
        for id_, row in zip(ids, one.rows, strict=False):
            yield {"id": id_, "epoch": epoch}, row


class Classes:
    """The predicted class of every vertex, by the model's head, or by the embedding itself where it has none."""

    def __init__(self, job: ServedJob, epoch: int) -> None:
        """Classes as of an epoch that the change log shows."""
        self._readout = job.readouts.of(job.kind)
        found = rows_between(job.log, -1, epoch, job.strings, job.width)
        self._of: dict[Any, int] = dict(zip(plain_ids(found.ids), self.of(found.rows).tolist(), strict=True))

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The classes of rows."""
        if self._readout is not None:
            return self._readout.columns(rows)["class"]
        return rows.argmax(1) if rows.size else np.empty(0, np.int64)

    def changed(self, change: dict[str, Any], row: np.ndarray | None) -> dict[str, Any] | None:
        """The change with `class` and `before`; None where the class is as it was."""
        before = self._of.get(change["id"])
        if row is None:
            self._of.pop(change["id"], None)
            return change | {"class": None, "before": before}
        now = int(self.of(row[None])[0])
        self._of[change["id"]] = now
        return None if now == before else change | {"class": now, "before": before}


def _ids_of(one: TailEpoch, strings: bool) -> list[Any]:
    if not strings:
        return one.ids.tolist()
    return [] if one.text is None else Texts.of(one.ids, one.text).decode()
