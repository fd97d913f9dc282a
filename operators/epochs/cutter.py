"""Ends of epochs: those in the cut log, and after it by number of events, by time, by event time or adaptively."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut import AnyCutLog, Cut, Lane, LostCutError
from freshet.operators.epochs.flush_intervals import NO_LIMIT, Intervals
from freshet.operators.epochs.input_positions import InputPositions, Patience, last_arrival_ms
from freshet.operators.epochs.journal import Journal
from freshet.operators.epochs.under_way import UnderWay
from freshet.operators.epochs.waiting_events import Lanes
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import EventRange
from freshet.state.sweep import Mutations, Sweeper

SWEEP_BYTES_PER_S = 20_000_000
# A publication that comes when so much of the time to the next marker has passed is that marker: small states have both
# equally often, and their files would close twice.
_NEARLY_DUE = 0.85


class Markers:
    """Says when an epoch is a marker, at which a restore may begin, and takes sweeps, journal and cut log past one.

    After a marker every page that changed since the one before it is written once (state/sweep.py). A restore begins at
    the marker before last and replays the journal from there: with few markers it replays much, with many the job
    writes much. A marker is due when one of these is reached since the last one:

    - time: `marker_interval_ms`, or what writing the whole state takes at SWEEP_BYTES_PER_S, if that is longer; with a
      budget of memory also until the pages of the last one are written;
    - bytes journaled: `journal_bytes`, or as many as the whole state has, if those are more;
    - epochs: `marker_epochs_max`.

    So markers write at most about as much again as comes in, and a restore replays at most two intervals.
    """

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
        pager = core.tables.pager
        waits = pager is not None and pager.sweeps  # in little memory a marker waits for the sweep of the one before
        return (
            (self.since_last_ms(now_ms) >= (_NEARLY_DUE if publishes else 1.0) * interval_ms and not waits)
            or self._journal.since_marker >= journal_bytes
            or epoch - self._last_epoch >= config.marker_epochs_max
        )

    def pass_one(self, epoch: int, now_ms: float, lanes: Lanes, is_replay: bool) -> Mutations:
        """Pass a sealed marker, with what the lanes have sealed: write changes, drop entries that no restore needs."""
        mutations = self._sweeper.mark(epoch)[0]
        mutations.extend(self._journal.trim(epoch, lanes.sealed_by_lane(), lanes.saved_times()))
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


# As many epochs are under way at once before events wait: operators overlap, and no epoch stands in a long line.
EPOCHS_UNDER_WAY = 2


class Pace:
    """Decides how many waiting events the next epoch has, if the cut log does not have it.

    Without a latency target, epochs are cut by count: as many events as an epoch has, no sooner. (The clock cuts, too,
    but that is the Cutter's.) With one they adapt, as a database commits in groups: what comes while nothing is under
    way is an epoch at once, and what comes while epochs are under way waits and is the next one. So epochs are as small
    as the job can keep up with, and grow with the backlog, up to the ceiling.

    With a target, an epoch is due when fewer than `EPOCHS_UNDER_WAY` are under way, when it has reached the ceiling, or
    when its oldest event has waited for half of the target: the other half is for the way to the Sink.

    `under_way` is to be set by whoever knows the Sink; without it only the ceiling and the clock decide.
    """

    def __init__(self, config: SealingConfig) -> None:
        self.under_way = UnderWay()
        self.adapts = config.latency_target_ms > 0
        self.ceiling, self._patience_ms = config.epoch_events, config.latency_target_ms / 2
        self._since_ms: float | None = None  # that the oldest event waits

    def events_due(self, waiting: int, now_ms: float) -> int:
        """Return how many of the waiting events become an epoch now; 0: it is not time yet."""
        if waiting >= self.ceiling:
            return self.ceiling
        return waiting if waiting and self.adapts and self._is_time(now_ms) else 0

    def _is_time(self, now_ms: float) -> bool:
        if self._since_ms is None:
            self._since_ms = now_ms
        epochs = self.under_way.epochs
        has_room = epochs is not None and epochs < EPOCHS_UNDER_WAY
        return has_room or now_ms - self._since_ms >= self._patience_ms

    def note_sealed(self, epoch: int) -> None:
        """Note a sealed epoch; the remaining events arrived with its last ones."""
        self._since_ms = None
        self.under_way.note_sealed(epoch)


class Epoch(NamedTuple):
    """An epoch that is to be sealed now: its cut, which the log has, and its events, which wait no more."""

    cut: Cut
    pieces: list[EventRange]


class Cutter:
    """Cuts the waiting events into epochs; an epoch in the log is cut again identically.

    The parameter `epoch` is the number of the next one, if not stated otherwise.
    """

    def __init__(
        self, config: SealingConfig, log: AnyCutLog, lanes: Lanes, markers: Markers, positions: InputPositions
    ) -> None:
        self.pace = Pace(config)
        self._by_count = config.epoch_ms == 0
        self._log, self._lanes, self._markers, self._positions = log, lanes, markers, positions
        self._flushes = Intervals(config.flush_epochs, config.flush_ms)
        self._files = Intervals(NO_LIMIT if config.publish_ms else 0, config.publish_after_ms)
        self._patience = Patience()

    def restore(self, marker: int) -> None:
        """Begin at a marker, which ends every interval."""
        self._flushes.last = self._files.last = marker

    def is_decided(self, epoch: int) -> bool:
        """Return whether the log has the end of the epoch."""
        return epoch <= self._log.last

    def cut_if_due(self, epoch: int, now_ms: float) -> Epoch | None:
        """The epoch, if all its events are here: those that the log names, else the oldest ones, as many as are due.

        Raises:
            LostCutError: events that the log names can't come any more.
        """
        lanes = self._lanes
        if self.is_decided(epoch):
            cut = self._log.cut_of(epoch)
            counts = lanes.counts_of(cut)
            if not lanes.lacking(counts):
                return self._withdraw(cut, counts)
            self._positions.refuse_passed(cut, lanes.waiting_by_lane(), lanes.read_up_to())
            return None
        due = self._events_due(now_ms)
        return self._cut(epoch, lanes.counts_of_oldest(due), now_ms) if due else None

    def is_due(self, now_ms: float) -> bool:
        """Return whether an epoch that the log does not have ends now."""
        return self._events_due(now_ms) > 0

    def _events_due(self, now_ms: float) -> int:
        """The number of oldest open events that become an epoch now; 0: none does."""
        has_ended = self._interval_ends(now_ms)
        due = self.pace.events_due(self._lanes.open, now_ms)
        return self._lanes.open if has_ended and not due else due

    def _interval_ends(self, now_ms: float) -> bool:
        """Return whether the open events end an interval of event time; intervals that have no events are passed."""
        if (time := self._lanes.time) is None:
            return False
        time.look(now_ms)
        while has_ended := time.has_ended():
            if time.has_begun and self._lanes.open:
                break
            time.advance()
        return has_ended

    def cut_at_end(self, epoch: int) -> Epoch | None:
        """Return an epoch of the ended input that event time ends, or one before it; None: the rest is the last one."""
        if (time := self._lanes.time) is None:
            return None
        time.end()
        has_ended, is_open = self._interval_ends(0.0), self._lanes.open
        if not has_ended and is_open <= self.pace.ceiling:
            return None
        return self._cut(epoch, self._lanes.counts_of_oldest(min(is_open, self.pace.ceiling)), 0.0)

    def cut_by_clock(self, epoch: int, now_ms: float) -> Epoch | None:
        """Return the epoch of waiting events at a tick, or in a pause an empty one that closes files and intervals.

        Adaptive epochs, and those by count alone, are cut by the same rules, so a tick may leave events waiting.
        """
        self._interval_ends(now_ms)
        is_open = self._lanes.open
        if self._by_count or (self.pace.adapts and is_open):
            return self.cut_if_due(epoch, now_ms)
        # or an interval has waited long enough for an empty epoch to end it
        if is_open or any(one.is_overdue(epoch - 1, now_ms) for one in (self._flushes, self._files)):
            return self.cut_all(epoch, now_ms)
        return None

    def cut_again(self, epoch: int) -> Epoch:
        """An epoch that the log has.

        Raises:
            LostCutError: its events are not here, or are others than those that it was cut from.
        """
        cut = self._log.cut_of(epoch)
        return self._withdraw(cut, self._lanes.counts_of(cut))

    def _withdraw(self, cut: Cut, counts: Mapping[Lane, int]) -> Epoch:
        try:
            pieces = self._lanes.withdraw(counts)
        except LostCutError as error:
            msg = f"epoch {cut.epoch} {error}"
            raise LostCutError(msg) from None
        self._positions.refuse_changed(cut, pieces)
        return Epoch(cut, pieces)

    def cut_all(self, epoch: int, now_ms: float, last: bool = False) -> Epoch:
        """An epoch of all open events, possibly none; the `last` one of the input ends whatever is open."""
        return self._cut(epoch, self._lanes.open_by_lane(), now_ms, last)

    def _cut(self, epoch: int, counts: Mapping[Lane, int], now_ms: float, last: bool = False) -> Epoch:
        """Cut an epoch with these numbers of events of each lane, and record it in the log."""
        publish = last or self._files.ends_with(epoch, now_ms, False)
        marker = self._markers.is_due(epoch, now_ms, publish)
        flush = self._flushes.ends_with(epoch, now_ms, marker or last)
        pieces = self._lanes.withdraw(counts)
        shares, arrived_ms = self._positions.shares_of(pieces), last_arrival_ms(pieces)
        cut = Cut(epoch, self._lanes.sealed, marker, shares, flush, publish, arrived_ms)
        self._log.append(cut)
        return Epoch(cut, pieces)

    def note_sealed(self, cut: Cut, now_ms: float) -> None:
        """An epoch was sealed, and with it the intervals that it ends."""
        self.pace.note_sealed(cut.epoch)
        if cut.flush:
            self._flushes.note_end(cut.epoch, now_ms)
        if cut.publish or cut.marker:
            self._files.note_end(cut.epoch, now_ms)

    def is_flush_open(self, sealed: int) -> bool:
        """Return whether the coalesced output waits for the end of the interval of the newest sealed epoch."""
        return self._flushes.is_open(sealed)

    def is_open(self, sealed: int) -> bool:
        """Return whether the coalesced output or a file waits for the end of the newest sealed epoch's interval."""
        return self._flushes.is_open(sealed) or self._files.is_open(sealed)

    def remind(self, epoch: int, now_ms: float) -> None:
        """Log from time to time that the next epoch waits for events that the cut log names."""
        if self.is_decided(epoch):
            self._patience.remind(epoch, now_ms, lambda: self._lacks(epoch))

    def refuse_end(self, epoch: int) -> None:
        """The input has ended, and what was due is sealed: make sure that the log names no further epoch.

        Raises:
            LostCutError: it does, so the input has lost events.
        """
        if self.is_decided(epoch):
            msg = f"the input ends at event {self._lanes.accepted}, but {self._lacks(epoch)}"
            raise LostCutError(msg)

    def _lacks(self, epoch: int) -> str:
        return self._positions.describe_missing(self._log.cut_of(epoch), self._lanes.waiting_by_lane())
