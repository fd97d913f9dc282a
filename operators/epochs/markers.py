"""Markers: the epochs that a restore may begin at; when one is due, and what follows once it is sealed.

After a marker every page that changed since the one before it is written once (state/sweep.py). A restore begins at
the marker before last and replays the journal from there: with few markers it replays much, with many the job writes
much. A marker is due when one of these is reached since the last one:

- time: `marker_interval_ms`, or what writing the whole state takes at SWEEP_BYTES_PER_S, if that is longer;
- bytes journaled: `journal_bytes`, or as many as the whole state has, if those are more;
- epochs: `marker_epochs_max`.

So markers write at most about as much again as comes in, and a restore replays at most two intervals.
"""

from __future__ import annotations

from collections.abc import Mapping

from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut import AnyCutLog, Lane
from freshet.operators.epochs.journal import Journal
from freshet.partitioner.core import Partitioner
from freshet.state.sweep import Mutations, Sweeper

SWEEP_BYTES_PER_S = 20_000_000
# A publication that comes when so much of the time to the next marker has passed is that marker: small states have both
# equally often, and their files would close twice.
_NEARLY_DUE = 0.85


class Markers:
    """Says when an epoch is a marker, and takes sweeps, journal and cut log past one."""

    def __init__(
        self, config: SealingConfig, core: Partitioner, sweeper: Sweeper, journal: Journal, log: AnyCutLog
    ) -> None:
        self._config, self._core = config, core
        self._sweeper, self._journal, self._log = sweeper, journal, log
        self._last_epoch = 0
        self._last_ms = 0.0  # by this attempt's clock; 0: it has not begun
        self._restored_ms = 0.0
        self._journal_max = config.journal_bytes  # bytes that call for a marker, at most so far

    def restore(self, since_last_ms: float) -> None:
        """Go on with the time that had passed since the last marker when the state was saved.

        A job that is killed more often than markers come would otherwise have ever more to replay.
        """
        self._restored_ms = since_last_ms

    def since_last_ms(self, now_ms: float) -> float:
        """The time since the last marker, without what passed between attempts."""
        if not self._last_ms:
            self._last_ms = now_ms - self._restored_ms
        return now_ms - self._last_ms

    def is_due(self, epoch: int, now_ms: float, publishes: bool) -> bool:
        """Return whether a new epoch is a marker; one that `publishes` is so a little before its time."""
        config, core = self._config, self._core
        # about what all operators together would write if every page had changed
        state_bytes = core.vertices * config.vertex_bytes + core.edges * config.edge_bytes
        interval_ms = max(config.marker_interval_ms, 1e3 * state_bytes / SWEEP_BYTES_PER_S)
        journal_bytes = max(config.journal_bytes, state_bytes)
        self._journal_max = max(self._journal_max, journal_bytes)
        return (
            self.since_last_ms(now_ms) >= (_NEARLY_DUE if publishes else 1.0) * interval_ms
            or self._journal.since_marker >= journal_bytes
            or epoch - self._last_epoch >= config.marker_epochs_max
        )

    def pass_one(self, epoch: int, now_ms: float, sealed: Mapping[Lane, int], is_replay: bool) -> Mutations:
        """Pass a sealed marker, with events `sealed` by lane: write changes, drop entries that no restore needs."""
        mutations = self._sweeper.mark(epoch)[0]
        mutations.extend(self._journal.trim(epoch, sealed))
        self._log.settle(self._journal.restored_to)
        self._last_epoch = epoch
        if not is_replay:
            self._last_ms = now_ms
        return mutations

    def bound_journal(self, waiting_bytes: int) -> None:
        """Set the journal's bound, given the most bytes of it that have waited for their epochs.

        An epoch that is no marker finds the journal below its limit; later events wait for the next one. From the
        marker before last on it may have this size twice.
        """
        self._journal.level.bound = 2 * (self._journal_max + waiting_bytes)
