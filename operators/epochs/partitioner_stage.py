"""The Partitioner's stage: journal, cuts and replay around its core.

Events that arrive go to keyed state once (the journal) and wait. An epoch is sealed by count or by time, its cut is
logged, the core nets and places it, and one block per part goes down the chain. After a restore at epoch s the tables
stand at the cut before last; the journal is replayed from there to s, and from then on the log decides until it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from operators.control import FLUSH, LAST, PUBLISH, REPLAY, control_values
from operators.dataflow import STORAGE
from operators.epochs.cut import Cut, Lane, LostCutError, refuse_foreign
from operators.epochs.cut_log import CutLog
from operators.epochs.flush_intervals import NO_LIMIT, Intervals
from operators.epochs.input_positions import Patience, Positions, positions
from operators.epochs.journal import JOURNAL_BYTES, JOURNAL_KEYS, MARKERS_KEY, Journal, journal_key, journaled
from operators.epochs.waiting_events import WAITING_BYTES, Lanes
from operators.outcome import Message, Outcome
from operators.parser.letter_box import LetterBox
from operators.parser.rejects import Refusals
from operators.telemetry.level import Level
from partitioner.core import Partitioner
from partitioner.events import Events
from state.sweep import Mutations, Sweeper

SWEEP_BYTES_PER_S = 20_000_000
# A publication that comes when so much of the time to the next marker has passed is that marker: small states have both
# equally often, and their files would close twice.
_NEARLY_DUE = 0.85


@dataclass(frozen=True, slots=True)
class SealingConfig:
    """When epochs are sealed, and when a marker follows.

    Units: epoch_events events; marker_interval_ms milliseconds; vertex_bytes, edge_bytes bytes in all operators;
    journal_bytes, waiting_bytes bytes.
    A marker has every changed page written once, so markers are at least so far apart that a state whose pages all
    change is written at SWEEP_BYTES_PER_S, or as much was journaled as that state has (and `journal_bytes` at least):
    they never write more than about as much again as comes in. A restore replays at most two intervals.
    `flush_epochs` and `flush_ms` are those of `Intervals`, for an output that coalesces.
    `publish_ms` after the files of the change log closed last, the next epoch closes them again; in a pause an empty
    one does, once. It need be no marker (a large state would be written anew for a few rows): the flag in the cut log
    is enough for a replay to write the same files. 0: they close at markers and by their size alone.
    """

    epoch_events: int = 1000
    epoch_ms: int = 20
    marker_interval_ms: int = 10_000
    marker_epochs_max: int = 20_000
    vertex_bytes: int = 0
    edge_bytes: int = 0
    journal_bytes: int = JOURNAL_BYTES
    waiting_bytes: int = WAITING_BYTES
    flush_epochs: int = 0
    flush_ms: int = 0
    publish_ms: int = 0


class PartitionerStage:
    """Cuts the stream into epochs and partitions them; driven by `restore`, `begin`, `receive`, `tick` and `finish`.

    `sources` are the names of the sources, by index; `streams` the indexes of those that are Kafka topics.

    Invariant: the events of a lane are numbered from the beginning of the job; the journal holds all from the marker
    before last on.
    """

    def __init__(
        self,
        core: Partitioner,
        config: SealingConfig,
        log: CutLog,
        image: Path | None = None,
        dead_letters: LetterBox | None = None,
        sources: tuple[str, ...] = (),
        streams: Iterable[int] = (),
    ) -> None:
        self.core, self.config, self.log = core, config, log
        self.sweeper = Sweeper(core.tables, image)
        self.epoch = 0
        self.rejected = self.refused = 0
        self._told_rejected = 0  # so many of both as the last epoch that was sealed has told
        self.dead_letters, self._refused = dead_letters, Refusals(sources)
        self._lanes = Lanes(frozenset(streams), config.waiting_bytes)
        self._positions = Positions(sources, frozenset(streams))
        self._patience = Patience()
        self._taken: list[Events] | None = None  # of a cut that was made and is not sealed yet
        self._intervals = Intervals(config.flush_epochs, config.flush_ms)
        self._files = Intervals(NO_LIMIT if config.publish_ms else 0, config.publish_ms)
        self._journal = Journal()
        self._block = self._largest = 0  # number of the next block; events of the largest so far
        self._limit = config.journal_bytes  # of the journal between two markers, the highest so far
        self._waiting_events = Level(config.epoch_events)
        self.levels = {
            "journal_bytes": self._journal.level,
            "waiting_events": self._waiting_events,
            **self._lanes.levels,
        }
        self._last_marker_ms = 0.0
        self._last_marker_epoch = 0
        # Both go on where an earlier attempt was: streaming time, and time since the last marker (a job that is killed
        # more often than markers come would have ever more to replay).
        self._streamed_ms = self._since_marker_ms = 0.0
        self._arrived_ms = 0.0  # of the last epoch whose events came in this attempt
        self._journaled = 0  # events that came in an earlier one
        self._sealed_before = 0
        self._is_stamped = False  # whether keyed state says whose it is

    # -- restore and replay -------------------------------------------------------------------------------------

    def preload(self) -> None:
        """Load what does not depend on keyed state."""
        self.sweeper.preload()

    def restore(self, items: Iterable[tuple[str, bytes]]) -> None:
        """Load the newest complete cut and the journal.

        Raises:
            LostCutError: the cut log misses an epoch that the state needs.
            ForeignStateError: the state is another job's.
        """
        entries = dict(items)
        sealed: dict[str, Any] = {"epoch": 0, "rejected": 0, "refused": 0}
        sealed |= orjson.loads(entries.get("sealed", b"{}"))
        refuse_foreign(sealed.get("job", ""), self.log.job)
        self._is_stamped = "sealed" in entries
        own = (JOURNAL_KEYS, "sealed", MARKERS_KEY)
        self.epoch = self.sweeper.restore((k, v) for k, v in entries.items() if not k.startswith(own))
        self.core.after_restore()
        self._sealed_before = sealed["epoch"]
        self.rejected, self.refused = sealed["rejected"], sealed["refused"]
        self._told_rejected = sealed.get("told", 0)
        self._streamed_ms, self._since_marker_ms = sealed.get("streamed_ms", 0.0), sealed.get("since_marker_ms", 0.0)
        self._intervals.last = self._files.last = self.epoch  # a marker, which ends an interval
        ends = self._journal.restore(self.epoch, entries.get(MARKERS_KEY))
        if self._sealed_before > self.epoch:
            self.log.of(self.epoch + 1)  # the first that a replay asks for
        self._lanes.restore(ends)
        for block, first, data in journaled(entries):
            self._keep(block, first, Events.decode(data), len(data))
        self._journaled = self.accepted

    def begin(self, now_ms: float = 0.0) -> Iterator[Outcome]:
        """Replay the journal up to the epoch that was sealed when the state was saved, and seal what is due by now.

        An epoch that was cut after the state was saved may hold journaled events alone: no event, and no tick (the log
        decides), would ever seal it again.
        """
        yield from self.replay(now_ms)
        while (due := self._due(now_ms)) is not None:
            yield self._seal(due, now_ms)
        for level in (self._waiting_events, *self._lanes.levels.values()):
            level.peak = level.now  # what was to be replayed had not to wait

    def replay(self, now_ms: float = 0.0) -> Iterator[Outcome]:
        """Replay the journal up to the epoch that was sealed when the state was saved."""
        while self.epoch < self._sealed_before:
            yield self._seal(self.log.of(self.epoch + 1), now_ms)

    # -- events -------------------------------------------------------------------------------------------------

    def receive(self, block: bytes, now_ms: float) -> Outcome:
        """Journal a block of events, and seal the epochs that it completes."""
        events = Events.decode(block)
        out = Outcome()
        first = self._lanes.next_number(self._lanes.lane_of(events))
        out.mutations.puts.append((journal_key(self._block, first), block))
        out.mutations.extend(self.sweeper.stamp())
        self._keep(self._block, first, events, len(block))
        self.rejected += events.rejected
        if events.rejected or not self._is_stamped:
            out.mutations.puts.append(self._sealed_entry())
        while (cut := self._due(now_ms)) is not None:
            self._join(out, self._seal(cut, now_ms))
        return out

    def tick(self, now_ms: float) -> Outcome:
        """Seal what waits, if the log does not say otherwise; in a pause, an empty epoch that ends what is open."""
        out = Outcome()
        if self.epoch < self.log.last:
            self.look(now_ms)
            return out
        if self._lanes.waiting or any(one.is_overdue(self.epoch, now_ms) for one in (self._intervals, self._files)):
            self._join(out, self._seal(self._cut(self._lanes.all(), now_ms), now_ms))
        return out

    def look(self, now_ms: float) -> None:
        """Say so from time to time, while the log names events that do not come."""
        if self.epoch < self.log.last:
            cut = self.log.of(self.epoch + 1)
            self._patience.waits(cut.epoch, now_ms, lambda: self._positions.missing(cut, self._lanes.all()))

    def finish(self) -> Outcome:
        """The input has ended: seal what waits, or an empty epoch that tells of records rejected since the last one.

        Raises:
            LostCutError: the log names events that the input does not have any more.
        """
        out = Outcome()
        if self.epoch < self.log.last:  # else it were sealed
            lacks = self._positions.missing(self.log.of(self.epoch + 1), self._lanes.all())
            message = f"the input ends at event {self.accepted}, but {lacks}"
            raise LostCutError(message)
        untold = self.rejected + self.refused > self._told_rejected
        if self._lanes.waiting or self._intervals.is_open(self.epoch) or untold:
            self._join(out, self._seal(self._cut(self._lanes.all(), 0.0, last=True), 0.0, LAST))
        return out

    @property
    def lanes(self) -> Lanes:
        """What has come of each lane, and what of it is sealed."""
        return self._lanes

    @property
    def accepted(self) -> int:
        """Events that came since the job began."""
        return self._lanes.accepted

    @property
    def memory_bytes(self) -> int:
        """Bytes held by the tables."""
        return self.core.tables.nbytes

    @property
    def waiting(self) -> bool:
        """Whether events have come that are not sealed, or are awaited, or an interval or a file is open."""
        open_ends = self._intervals.is_open(self.epoch) or self._files.is_open(self.epoch)
        return self._lanes.waiting > 0 or self.epoch < self.log.last or open_ends

    def close(self) -> None:
        """Close the cut log, and write the last counts of rejected records."""
        self.log.close()
        self._lanes.close()
        if self.dead_letters is not None:
            self.dead_letters.close()

    # -- sealing ------------------------------------------------------------------------------------------------

    def _due(self, now_ms: float) -> Cut | None:
        """The next cut, if its events are all here."""
        lanes = self._lanes
        if self.epoch < self.log.last:
            cut = self.log.of(self.epoch + 1)
            if not lanes.missing(lanes.counts_of(cut)):
                return cut
            self._positions.refuse_passed(cut, lanes.all(), lanes.passed())
            return None
        if lanes.waiting < self.config.epoch_events:
            return None
        return self._cut(lanes.oldest(self.config.epoch_events), now_ms)

    def _cut(self, counts: Mapping[Lane, int], now_ms: float, last: bool = False) -> Cut:
        """Cut so many events of each lane here, and say so in the log."""
        epoch = self.epoch + 1
        if not self._last_marker_ms:
            self._last_marker_ms = now_ms - self._since_marker_ms
        publish = last or self._files.ends_with(epoch, now_ms, False)
        marker = self._is_marker(epoch, now_ms, _NEARLY_DUE if publish else 1.0)
        flush = self._intervals.ends_with(epoch, now_ms, marker or last)
        self._taken = self._lanes.take(counts)
        cut = Cut(epoch, self._lanes.sealed, marker, self._positions.reached(self._taken), flush, publish)
        self.log.append(cut)
        return cut

    def _is_marker(self, epoch: int, now_ms: float, share: float) -> bool:
        """Whether a marker is due by (a share of) its time, by the journal's bytes or by the number of epochs."""
        config, core = self.config, self.core
        # about what all operators together would write if every page had changed
        state_bytes = core.vertices * config.vertex_bytes + core.edges * config.edge_bytes
        interval_ms = max(config.marker_interval_ms, 1e3 * state_bytes / SWEEP_BYTES_PER_S)
        limit = max(config.journal_bytes, state_bytes)
        self._limit = max(self._limit, limit)
        return (
            now_ms - self._last_marker_ms >= share * interval_ms
            or self._journal.since_marker >= limit
            or epoch - self._last_marker_epoch >= config.marker_epochs_max
        )

    def _seal(self, cut: Cut, now_ms: float, flags: int = 0) -> Outcome:
        pieces = self._take(cut)
        arrived_now = self._lanes.sealed - sum(map(len, pieces)) >= self._journaled
        events = Events.concatenate(pieces) if pieces else Events.empty(self.core.in_width, self.core.config.id_kind)
        if cut.flush:
            flags |= FLUSH
            self._intervals.ended(cut.epoch, now_ms)
        if cut.publish:
            flags |= PUBLISH
        if cut.publish or cut.marker:
            self._files.ended(cut.epoch, now_ms)
        if arrived_now and events.arrival_ms > 0:
            self._streamed_ms += max(0.0, events.arrival_ms - self._arrived_ms) if self._arrived_ms else 0.0
            self._arrived_ms = events.arrival_ms
        if cut.epoch <= self._sealed_before:
            flags |= REPLAY
        self._waiting_events.set(self._lanes.waiting)
        change = self.core.apply(events)
        self.refused += self._refuse(events, change.rejected, flags)
        self.epoch = cut.epoch
        accepted = cut.end - self.refused
        marker = self.sweeper.marker + 1 if cut.marker else -1
        rejected = self.rejected + self.refused
        if not flags & REPLAY:
            self._told_rejected = rejected
        times = events.arrival_ms, self._streamed_ms
        control = control_of(self.core, marker, len(events), times, flags, rejected, accepted)
        blocks = self.core.split(change, control, cut.epoch, positions(events, pieces))
        messages = [Message(STORAGE, part, cut.epoch, 0, block) for part, block in enumerate(blocks)]
        mutations = Mutations()
        if cut.marker:
            mutations = self.sweeper.mark(cut.epoch)
            mutations.deletes += self._journal.pass_marker(cut.epoch, self._lanes.ends())
            mutations.puts.append((MARKERS_KEY, self._journal.markers()))
            self.log.pass_marker(self._journal.restored_to)
            self._last_marker_ms = self._last_marker_ms if flags & REPLAY else now_ms
            self._last_marker_epoch = cut.epoch
        else:
            mutations = self.sweeper.step()
        if cut.epoch > self._sealed_before:
            self._since_marker_ms = max(0.0, now_ms - self._last_marker_ms) if self._last_marker_ms else 0.0
            mutations.puts.append(self._sealed_entry())
        return Outcome(messages, mutations)

    def _sealed_entry(self) -> tuple[str, bytes]:
        epoch = max(self.epoch, self._sealed_before)
        self._is_stamped = True
        entry = {"epoch": epoch, "rejected": self.rejected, "refused": self.refused, "job": self.log.job}
        entry["told"] = self._told_rejected
        entry |= {"streamed_ms": round(self._streamed_ms), "since_marker_ms": round(self._since_marker_ms)}
        return "sealed", orjson.dumps(entry)

    def _keep(self, block: int, first: int, events: Events, size: int) -> None:
        """Hold a block that is in the journal, where it has `size` bytes."""
        self._lanes.add(block, first, events, size)
        self._journal.add(journal_key(block, first), self._lanes.lane_of(events), first + len(events), size)
        self._block = block + 1
        self._largest = max(self._largest, len(events))
        self._waiting_events.set(self._lanes.waiting)
        self._waiting_events.bound = self.config.epoch_events + self._largest
        # A cut that is no marker finds the journal below the limit; what comes until the next one waits for that.
        waited = sum(level.peak for level in self._lanes.levels.values())
        self._journal.level.bound = 2 * (self._limit + waited)

    def _take(self, cut: Cut) -> list[Events]:
        """The waiting events of a cut; those of an earlier one are held against it."""
        if self._taken is not None:
            pieces, self._taken = self._taken, None
            return pieces
        try:
            pieces = self._lanes.take(self._lanes.counts_of(cut))
        except LostCutError as error:
            message = f"epoch {cut.epoch} {error}"
            raise LostCutError(message) from None
        self._positions.hold(cut, pieces)
        return pieces

    def _refuse(self, events: Events, rejected: list[tuple[int, str]], flags: int) -> int:
        """Events that only the graph's state shows to be wrong go to the dead letters, too."""
        if not rejected or flags & REPLAY:
            return 0
        if self.dead_letters is not None:
            self.dead_letters.write(self._refused.letters(events, rejected))
        return len(rejected)

    @staticmethod
    def _join(out: Outcome, more: Outcome) -> None:
        out.messages += more.messages
        out.mutations.extend(more.mutations)


def control_of(
    core: Partitioner,
    marker: int,
    events: int,
    times_ms: tuple[float, float],
    flags: int,
    rejected: int,
    accepted: int,
) -> np.ndarray:
    """The column `ctl` of an epoch's blocks (see operators/control.py for the places).

    `times_ms`: arrival of the first event at the Parser, and streaming time since the job began.
    """
    arrival_ms, streamed_ms = times_ms
    return control_values(marker, events, arrival_ms, flags, rejected, accepted, core.vertices, streamed_ms)
