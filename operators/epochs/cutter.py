"""Ends of epochs: those in the cut log, and after it by number of events, by time or adaptively."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut import AnyCutLog, Cut, Lane, LostCutError
from freshet.operators.epochs.flush_intervals import NO_LIMIT, Intervals
from freshet.operators.epochs.input_positions import InputPositions, Patience, last_arrival_ms
from freshet.operators.epochs.markers import Markers
from freshet.operators.epochs.pace import Pace
from freshet.operators.epochs.waiting_events import Lanes
from freshet.partitioner.events import Events


class Epoch(NamedTuple):
    """An epoch that is to be sealed now: its cut, which the log has, and its events, which wait no more."""

    cut: Cut
    pieces: list[Events]


class Cutter:
    """Cuts the waiting events into epochs; an epoch in the log is cut again identically.

    The parameter `epoch` is the number of the next one, if not stated otherwise.
    """

    def __init__(
        self, config: SealingConfig, log: AnyCutLog, lanes: Lanes, markers: Markers, positions: InputPositions
    ) -> None:
        self.pace = Pace(config)
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
        due = self.pace.events_due(lanes.waiting, now_ms)
        return self._cut(epoch, lanes.counts_of_oldest(due), now_ms) if due else None

    def cut_by_clock(self, epoch: int, now_ms: float) -> Epoch | None:
        """Return the epoch of waiting events at a tick, or in a pause an empty one that closes files and intervals.

        Adaptive epochs are cut by the same rules, so a tick may leave events waiting.
        """
        if self.pace.adapts and self._lanes.waiting:
            return self.cut_if_due(epoch, now_ms)
        if self._lanes.waiting or self._is_overdue(epoch - 1, now_ms):
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
        """An epoch of all that waits, possibly nothing; the `last` one of the input ends whatever is open."""
        return self._cut(epoch, self._lanes.waiting_by_lane(), now_ms, last)

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

    def _is_overdue(self, sealed: int, now_ms: float) -> bool:
        """Return whether one of them has waited long enough for an empty epoch to end it."""
        return any(one.is_overdue(sealed, now_ms) for one in (self._flushes, self._files))

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
