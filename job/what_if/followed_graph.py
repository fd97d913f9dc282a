"""A job's graph at the epoch of a table: by the positions that tails say at once, else by `O/epochs`."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from shutil import rmtree

import numpy as np

from freshet.job.folder.returned_kinds import logs_of
from freshet.job.live.begins import BASE, begin_of, described, graph_of_base, graph_of_saved
from freshet.job.results.graph_at import GraphAt
from freshet.job.serving.tables.part_tails import PartTails
from freshet.operators.sink.change_log_reader import Positions, epochs_between

_AT_ONCE = 256  # epochs whose positions are read from tails together


class FollowedGraph:
    """The graph, and how to bring it on; for one thread at a time."""

    def __init__(self, out: Path, tails: PartTails | None, begin: str = BASE, config: Path | None = None) -> None:
        """Open a job's graph where it begins: see `LiveGraph`. `tails` are those of the Sink's first part.

        Raises:
            InputError: there is no such job, or its begin can't be used.
            JobFailed: Flink can't read the savepoint.
        """
        self.out, self._tails = out.absolute(), tails
        job = described(self.out, None, config)
        self.settings = job.settings
        work = Path(tempfile.mkdtemp(prefix="freshet-what-if-"))
        self._clean_up = weakref.finalize(self, rmtree, work, ignore_errors=True)
        try:
            saved = begin_of(job, begin, work)
            if saved is None:
                self.graph: GraphAt = graph_of_base(job, is_followed=True)
            else:
                self.graph = graph_of_saved(job, saved, is_followed=True)
        except BaseException:
            self._clean_up()
            raise
        self._log = logs_of(self.out)[0]

    @property
    def epoch(self) -> int:
        """The epoch that the graph is at."""
        return self.graph.epoch

    def bring_on(self, epoch: int, report: Callable[[str], None]) -> bool:
        """Bring the graph on to this epoch, or as far as positions are known; whether it has moved.

        Raises:
            InputError: the sources no longer have what the job read.
            JobFailed: the brokers do not answer.
        """
        upto, positions = self._known(epoch)
        if upto <= self.epoch:
            return False
        self.graph.bring_to(upto, positions, report)
        return True

    def close(self) -> None:
        """Let go of memory and files."""
        self.graph.pause()
        self.graph.live.close()
        if self._tails is not None:
            self._tails.close()
        self._clean_up()

    def _known(self, epoch: int) -> tuple[int, Positions]:
        """Return the last epoch up to which positions are known without a gap, and these."""
        begin = self.epoch
        found = self._in_tails(begin + 1, min(epoch, begin + _AT_ONCE))
        if found:
            return begin + len(found), _joined(begin, found, self.settings.sources)
        epochs, positions = epochs_between(self._log, begin, epoch)
        gaps = np.flatnonzero(epochs != np.arange(begin + 1, begin + 1 + len(epochs)))
        upto = begin + (int(gaps[0]) if gaps.size else len(epochs))
        return upto, positions.upto(upto)

    def _in_tails(self, first: int, last: int) -> list[np.ndarray]:
        """Return the positions of the epochs from `first` on that tails have, (p, 4) int64 each."""
        found = list[np.ndarray]()
        for epoch in range(first, last + 1) if self._tails is not None else ():
            assert self._tails is not None
            if (one := self._tails.get(epoch)) is None:
                break
            found.append(one.positions[one.positions[:, 0] >= 0].copy())
        return found


def _joined(before: int, found: Sequence[np.ndarray], names: Sequence[str]) -> Positions:
    epochs = np.repeat(np.arange(before + 1, before + 1 + len(found)), [len(one) for one in found])
    source, partition, following, events = np.concatenate(found).T
    return Positions(epochs, np.array(names, object)[source], partition, following, events)
