"""Coverage of a job's sources by its epochs: the `positions` in the `snapshot.json` of an export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from freshet.job.errors import UsageError
from freshet.job.run.positions import Position
from freshet.job.run.sources import Sources
from freshet.operators.sink.change_log_reader import ChangeLogReader


class Coverage:
    """First offset that is not covered, by source and partition.

    Invariant: a partition of a topic that the job knew when it began is there, also where no event came from it.
    """

    def __init__(self, out: Path, sources: Sources) -> None:
        """Nothing is covered but what the job itself began behind.

        Raises: UsageError when the job read something twice.
        """
        self.out, self.sources = out, sources
        self._names = [source.name for source in sources]
        if twice := sorted({name for name in self._names if self._names.count(name) > 1}):
            msg = f"{out}: the job read {', '.join(twice)} twice; positions can't tell the two apart"
            raise UsageError(msg)
        self._next = {(source.index, partition): at for source in sources for partition, at in source.start.items()}

    @property
    def reached(self) -> Mapping[tuple[int, int], int]:
        """The first offset that is not covered, by source and partition."""
        return self._next

    def extend(self, reached: Mapping[tuple[int, int], int]) -> None:
        """Say how far later epochs reach, by source and partition."""
        self._next |= reached

    def extend_to(self, epoch: int, log: ChangeLogReader) -> None:
        """Take in what the log's `epochs/` says of all epochs up to this one.

        Raises: UsageError when it misses one of them.
        """
        recorded = log.epochs()
        if np.unique(recorded[(recorded > 0) & (recorded <= epoch)]).size < epoch:
            why = "(a job on a cluster that does not share this folder writes none, and can't be exported)"
            msg = f"{self.out}: epochs/ does not have all epochs up to {epoch:,}; put its files back {why}"
            raise UsageError(msg)
        found, index = log.positions(), {source.name: source.index for source in self.sources}
        within = found.epoch <= epoch
        columns = (found.source, found.partition, found.next_offset)
        for name, partition, following in zip(*(column[within].tolist() for column in columns), strict=True):
            self._next[index[name], partition] = following  # the last one holds

    def positions(self, finished: bool) -> list[Position]:
        """Return the positions as in `snapshot.json`; `finished`: the whole input was read.

        Files are read one after the other, so those before one that was begun are covered whole, with records that
        were rejected behind their last event; of a topic these are read again.
        """
        found = dict(self._next)
        records = {file.index: file.records for file in self.sources.files}
        begun = max((source for source in records if found[source, 0] > 0), default=-1)
        for source in self.sources:
            if finished or (source.index in records and source.index < begun):
                found |= {(source.index, partition): end for partition, end in (source.end or {}).items()}
        ids = {topic.index: topic.spec.identity._asdict() for topic in self.sources.topics}
        return [
            Position(
                source=self._names[source],
                partition=partition,
                next_offset=following,
                records=records.get(source),
                **ids.get(source, {}),
            )
            for (source, partition), following in sorted(found.items())
        ]
