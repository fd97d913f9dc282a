"""Progress of a follower's table, beside what readers have seen: of a former table, or of the job before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from freshet.job.serving.tables.seen import note_generation
from freshet.job.serving.tables.served_job import ServedJob
from freshet.state.served.times import NOTHING_KNOWN, times_so_far
from freshet.state.served.writer import TableWriter

Place: TypeAlias = tuple[str, int]  # a partition of a source


class TableProgress:
    """A job's table, the one that readers get, and what they may have seen before."""

    def __init__(self, job: ServedJob, tables: Path) -> None:
        self.job, self.tables = job, tables
        self.table: TableWriter
        self._positions: dict[tuple[int, int], tuple[int, int]] = {}
        self._shown: TableWriter | None = None  # the table that readers get
        self._floor = -1  # the epoch that they may have seen
        self._reached: Mapping[Place, int] = {}  # the positions that they may have seen, of the job before
        self._times = NOTHING_KNOWN  # of their answers

    @property
    def _job_epoch(self) -> int:
        """The table's epoch, as the job counts it."""
        return self.table.epoch - self.job.base

    @property
    def seen(self) -> int:
        """The epoch that readers may have seen; -1 before there is one."""
        return self._floor if self._shown is None else max(self._floor, self._shown.epoch)

    @property
    def is_readable(self) -> bool:
        """True if readers have got its table."""
        return self._shown is not None

    def not_before(self, epoch: int) -> None:
        """Let readers get no table that is of an earlier epoch: they have seen this one."""
        self._floor = max(self._floor, epoch)

    def take_place_of(self, former: TableProgress) -> None:
        """Let readers get no table that is behind that of another job: of a service it has read at least as far."""
        self.not_before(former.seen)
        if self.job.generation is not None:
            self._reached, self._times = former.read_upto(), times_so_far(former.table.mem, former.table.epoch)

    def read_upto(self) -> dict[Place, int]:
        """Return the next offset by source and partition."""
        names = self.job.sources
        return {(names[a], b): upto for (a, b), (upto, _) in list(self._positions.items()) if 0 <= a < len(names)}

    def covers(self, positions: Mapping[Place, int]) -> bool:
        """Return whether it has read at least so far in every partition."""
        mine = self.read_upto()
        return all(mine.get(place, 0) >= upto for place, upto in positions.items())

    @property
    def is_behind(self) -> bool:
        """True if readers may have seen more than the table has."""
        return self.table.epoch < self._floor or (self._shown is None and not self.covers(self._reached))

    def note(self, generation: int) -> None:
        """Note that readers get a generation of a service, before they do; no time in answers goes back."""
        note_generation(self.tables, generation, self.table, self._times, is_new=self._shown is None)
