"""Changes of a service as they come: those of its current job, and then those of the job that takes its place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.errors import FreshetError
from freshet.job.console import say
from freshet.job.service.generations import Generation, Service
from freshet.job.serving.feeds.service_feed import job_of
from freshet.job.serving.tables.change_log_rows import again, positions_at
from freshet.job.serving.tables.served_job import ServedJob
from freshet.job.serving.tables.watching import Watch
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.log_proof import reading
from freshet.operators.sink.tail.reader import TailEpoch

Places: TypeAlias = dict[tuple[str, int], int]  # the next offset by source and partition
_LOOK_S = 0.2  # between two looks at which generation is the current one
_AGAIN_S = 2.0  # before a job that can't be followed is tried again
_WAIT_S = 0.05


class ServiceWatch:
    """Follows the current job of a service from now on, and each one that takes its place.

    The next job is followed from its last epoch on that has no input past what was seen of the job before: no event is
    left out, and some may be seen of both.
    """

    def __init__(
        self,
        service: Service,
        kind: str | None,
        lost: Callable[[ServedJob, int, int], None],
        began: Callable[[Generation], None],
    ) -> None:
        """`lost` as for Watch, with the job; `began` is called with each generation after the first one.

        Raises: UsageError where the current job's folder is gone.
        """
        self._service, self._kind, self._lost, self._began = service, kind, lost, began
        self._generation = service.numbered(None)
        self._seen: Places = {}
        self._looked_at, self._lacking, self._next = 0.0, "", self._generation
        self._watch = self._watch_of(job_of(self._generation, kind), None)

    @property
    def job(self) -> ServedJob:
        """The job that is followed now."""
        return self._watch.job

    @property
    def epoch(self) -> int:
        """The last epoch of it that was seen."""
        return self._watch.epoch

    def epochs(self, until: Callable[[], bool]) -> Iterator[tuple[int, list[TailEpoch]]]:
        """Yield each new epoch of `job`, as that counts them, until `until` returns True."""
        while not until():
            for epoch, parts in self._watch.epochs(lambda: until() or self._has_next()):
                self._seen |= _positions(parts, self.job)
                yield epoch, parts
            number = self._generation.generation
            if not until() and not self._has_next():
                say(f"generation {number}: its job has ended; another one may take its place, until Ctrl-C")
            while not until() and not self._has_next():
                time.sleep(_WAIT_S)
            if not until():
                self._go_on()

    def close(self) -> None:
        """Let the tails go."""
        self._watch.close()

    def _watch_of(self, job: ServedJob, after: int | None) -> Watch:
        return Watch(job, lambda first, last: self._lost(job, first, last), after)

    def _has_next(self) -> bool:
        """Return whether another generation is the current one; looks now and then."""
        if time.monotonic() >= self._looked_at:
            self._looked_at = time.monotonic() + _LOOK_S
            try:
                self._next = self._service.numbered(None)
            except FreshetError as error:
                self._cannot(str(error))
        return self._next.generation > self._generation.generation

    def _go_on(self) -> None:
        """Follow the next job, if that can be done."""
        former = self._watch
        try:
            job, seen = job_of(self._next, self._kind), self._all_seen()
            found = self._watch_of(job, first_unseen(job, seen) - 1 if seen else None)
        except (FreshetError, OSError) as error:
            self._cannot(f"generation {self._next.generation}: {error}; watching the job before")
            self._next = self._generation
            return
        found.pass_over(lambda parts: not _is_past(_positions(parts, job), seen))
        self._watch, self._generation, self._seen, self._lacking = found, self._next, {}, ""
        former.close()
        self._began(self._generation)

    def _all_seen(self) -> Places:
        """Return the positions after the last epoch that was seen."""
        job = self.job
        rows = positions_at(job.log, min(self.epoch, job.complete_epoch()), job.sources).tolist()
        return {
            (job.sources[source], partition): upto for source, partition, upto, _ in rows if source >= 0
        } | self._seen

    def _cannot(self, why: str) -> None:
        if why != self._lacking:
            say(why)
        self._lacking, self._looked_at = why, time.monotonic() + _AGAIN_S


def first_unseen(job: ServedJob, seen: Places) -> int:
    """Return the first epoch, from 1 on, with input past the positions `seen`, as far as the change log shows."""
    upto = job.complete_epoch()
    return again(lambda: _first_past(job.log, upto, seen))


def _first_past(log: LogFolders, upto: int, seen: Places) -> int:
    first = upto + 1
    for path in sorted(log.epochs.glob("[!._]*.parquet"), reverse=True):  # offsets grow from file to file
        with reading(path) as file:
            table = pq.read_table(file, columns=["epoch", "source", "partition", "next_offset"])
        table = table.filter(pc.is_valid(table["source"]))
        places = table.group_by(["source", "partition"]).aggregate([]).to_pylist()
        epochs, offsets = table["epoch"].to_numpy(), table["next_offset"].to_numpy()
        is_past = np.zeros(table.num_rows, bool)
        for one in places:  # few: one for each partition
            source, partition = one["source"], one["partition"]
            own = pc.and_(pc.equal(table["source"], source), pc.equal(table["partition"], partition)).to_numpy()
            is_past |= own & (offsets > seen.get((source, partition), 0))
        if not is_past.any():
            break
        first = min(first, int(epochs[is_past].min()))
    return max(first, 1)


def _positions(parts: list[TailEpoch], job: ServedJob) -> Places:
    """Return the positions that an epoch moved."""
    rows = [row for one in parts for row in one.positions.tolist() if 0 <= row[0] < len(job.sources)]
    return {(job.sources[source], partition): upto for source, partition, upto, _ in rows}


def _is_past(moved: Mapping[tuple[str, int], int], seen: Places) -> bool:
    return any(upto > seen.get(place, 0) for place, upto in moved.items())
