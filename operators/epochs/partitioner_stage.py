"""The Partitioner's stage: what comes in is journaled, cut into epochs and partitioned, and replayed after a restore.

- journal: a block of events goes to keyed state once, as it arrives (operators/epochs/journal.py);
- cut: its events wait by lane until an epoch takes them (waiting_events.py); the cut is logged first (cutter.py);
- core: the Partitioner nets and places the epoch, and a block for each task goes down the chain;
- marker: now and then all changed pages are written (markers.py);
- replay: after a restore the tables stand at the marker before last; the journal is replayed from there to the newest
  epoch that was sealed, and from then on the log decides until it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from freshet.operators.control import FLUSH, LAST, PUBLISH, REPLAY, control_values
from freshet.operators.dataflow import PARTITIONER, STORAGE
from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut import AnyCutLog, refuse_foreign
from freshet.operators.epochs.cutter import Cutter, Epoch, Markers
from freshet.operators.epochs.event_time import EventTime
from freshet.operators.epochs.input_positions import InputPositions, last_arrival_ms, position_columns
from freshet.operators.epochs.journal import JOURNAL_KEYS, MARKERS_KEY, Journal, journaled_blocks
from freshet.operators.epochs.under_way import UnderWay
from freshet.operators.epochs.waiting_events import Lanes
from freshet.operators.outcome import Message, Outcome
from freshet.operators.parser.letter_box import NOTED_LATE, OTHER_REASONS, LetterBox, add_reasons, reason_of
from freshet.operators.parser.rejects import Refusals
from freshet.operators.telemetry.figures import HAS_TS, NOTED_AND_ALL, UNUSUAL_TS, Figures
from freshet.operators.telemetry.paging import with_paging
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import NO_TS, EventRange, Events
from freshet.partitioner.times.units import first_unusual
from freshet.state.codec import Block
from freshet.state.entries import Entries, SomeEntries, mapping_of
from freshet.state.sweep import Mutations, Sweeper

SEALED_KEY = "sealed"


@dataclass(slots=True)
class Progress:
    """Counts since the job began, as of the newest epoch that any attempt has sealed and saved.

    Units: since_marker_ms milliseconds in which attempts were at work.
    """

    epoch: int = 0  # the newest one sealed; a replay ends there
    rejected: int = 0  # records that the Parser rejected
    refused: int = 0  # events that only the graph's state shows to be wrong
    told: int = 0  # so many of both as the newest epoch has told
    attrs: int = 0  # edges that came with attr, which is checked and not kept
    since_marker_ms: float = 0.0  # since the last marker
    reasons: dict[str, int] = field(default_factory=dict)  # why they were rejected and refused, as many as these are
    noted: dict[str, int] = field(default_factory=dict)  # by the names of NOTED_AND_ALL, without zeros

    @staticmethod
    def decode(entry: bytes | None, job: str) -> Progress:
        """The inverse of `encode`; without an entry a job that begins.

        Raises:
            ForeignStateError: the entry is another job's.
        """
        found = orjson.loads(entry) if entry is not None else {}
        refuse_foreign(found.pop("job", ""), job)
        found.pop("streamed_ms", None)  # of a former version
        if entry is not None and "noted" not in found:  # of another one, which did not count these
            found["noted"] = {NOTED_LATE: 1}
        return Progress(**found)

    def reject(self, records: int, reasons: Iterable[tuple[str, int]]) -> None:
        """Count records that the Parser rejected."""
        self.rejected += records
        self._count(reasons, records)

    def refuse(self, reasons: Sequence[str]) -> None:
        """Count events that only the graph's state shows to be wrong."""
        self.refused += len(reasons)
        self._count(((reason, 1) for reason in reasons), len(reasons))

    def note(self, counts: Mapping[str, int]) -> bool:
        """Count what became of accepted events; returns whether there was anything."""
        found = {name: number for name, number in counts.items() if number}
        for name, number in found.items():
            self.noted[name] = self.noted.get(name, 0) + number
        return bool(found)

    def _count(self, reasons: Iterable[tuple[str, int]], records: int) -> None:
        """Count records by reason."""
        known = list(reasons)
        add_reasons(self.reasons, known)
        if without := records - sum(count for _, count in known):
            add_reasons(self.reasons, [(OTHER_REASONS, without)])

    def encode(self, job: str) -> bytes:
        """The entry, as JSON."""
        counts: dict[str, Any] = {"epoch": self.epoch, "rejected": self.rejected, "refused": self.refused, "job": job}
        counts |= {"told": self.told, "attrs": self.attrs, "reasons": self.reasons, "noted": self.noted}
        counts["since_marker_ms"] = round(self.since_marker_ms)
        return orjson.dumps(counts)

    @property
    def rejected_in_all(self) -> int:
        """Records and events that became part of no epoch."""
        return self.rejected + self.refused


_PART = 0  # the Partitioner's only one


class PartitionerStage:
    """Cuts the stream into epochs and partitions them; driven by `restore`, `begin`, `receive`, `tick` and `finish`.

    `sources` are the names of the sources, by index; `streams` the indexes of those that are Kafka topics. `original`
    gives a record as it came, by source and number, where it can be read again. `time`: epochs end by event time, too.

    Invariant: the events of a lane are numbered from the beginning of the job; the journal holds all from the marker
    before last on.
    """

    def __init__(
        self,
        core: Partitioner,
        config: SealingConfig,
        log: AnyCutLog,
        image: Path | None = None,
        dead_letters: LetterBox | None = None,
        sources: tuple[str, ...] = (),
        streams: Iterable[int] = (),
        original: Callable[[int, int], bytes | None] = lambda _source, _number: None,
        time: EventTime | None = None,
    ) -> None:
        self.core, self.log, self.dead_letters = core, log, dead_letters
        self.epoch = 0  # that the core has taken
        self.progress = Progress()  # its epoch is ahead of that during a replay
        self.sweeper = Sweeper(core.tables, image)
        topics = frozenset(streams)
        self.lanes = Lanes(topics, config.waiting_bytes, config.epoch_events, time)
        self._journal = Journal()
        self._markers = Markers(config, core, self.sweeper, self._journal, log)
        self._cutter = Cutter(config, log, self.lanes, self._markers, InputPositions(sources, topics))
        self._refusals = Refusals(sources, original, core.features)
        self.levels = {"journal_bytes": self._journal.level, **self.lanes.levels}
        self._unusual_ts: int | None = None  # the first of this attempt
        self._is_stamped = False  # whether keyed state says whose it is
        self._is_recorded = True  # whether keyed state has the progress

    # -- restore and replay -------------------------------------------------------------------------------------

    def preload(self) -> None:
        """Load what does not depend on keyed state."""
        self.sweeper.preload()

    def restore(self, items: Entries) -> None:
        """Load the newest complete cut and the journal.

        Raises:
            LostCutError: the cut log misses an epoch that the state needs.
            ForeignStateError: the state is another job's.
        """
        entries = mapping_of(items)
        self.progress = Progress.decode(entries.get(SEALED_KEY), self.log.job)
        self._is_stamped = SEALED_KEY in entries
        own = (JOURNAL_KEYS, SEALED_KEY, MARKERS_KEY)
        self.epoch = self.sweeper.restore(SomeEntries(entries, lambda key: not key.startswith(own)))
        self.core.after_restore()
        self._markers.restore(self.progress.since_marker_ms)
        self._cutter.restore(self.epoch)
        sealed = self._journal.restore(self.epoch, entries.get(MARKERS_KEY))
        if self.epoch < self.progress.epoch:
            self.log.cut_of(self.epoch + 1)  # the first that a replay asks for
        self.lanes.restore(sealed, self._journal.restored_times)
        for number, first, block in journaled_blocks(entries):
            self._hold(number, first, Events.decode(block), len(block))

    def begin(self, now_ms: float = 0.0) -> Iterator[Outcome]:
        """Replay the journal up to the epoch that was sealed when the state was saved, and seal epochs due by now.

        An epoch that was cut after the state was saved may have only journaled events: no new event, and no tick (the
        log decides), would ever seal it again.
        """
        self._report()  # an attempt that failed may have reported more
        yield from self.replay(now_ms)
        while (epoch := self._cutter.cut_if_due(self.epoch + 1, now_ms)) is not None:
            yield self._recorded(self._seal(epoch, now_ms))
        self.lanes.forget_peaks()  # what was replayed did not wait

    def replay(self, now_ms: float = 0.0) -> Iterator[Outcome]:
        """Replay the journal up to the epoch that was sealed when the state was saved."""
        while self.epoch < self.progress.epoch:
            yield self._seal(self._cutter.cut_again(self.epoch + 1), now_ms)

    # -- events -------------------------------------------------------------------------------------------------

    def receive(self, block: bytes, now_ms: float) -> Outcome:
        """Journal a block of events, and seal the epochs that it completes."""
        events = Events.decode(block)
        out = Outcome()
        number, first = self._journal.next_number, self.lanes.next_number(self.lanes.lane_of(events))
        changes = out.of(_PART)
        changes.puts.append((self._hold(number, first, events, len(block)), block))
        changes.extend(self.sweeper.stamp().get(_PART, Mutations()))
        self.progress.reject(events.rejected, events.reasons)
        dropped = events.values.dropped
        self.progress.attrs += dropped
        skipped = self.progress.note({"tombstones_skipped": events.tombstones})
        self._is_recorded &= not (events.rejected or dropped or skipped) and self._is_stamped
        while (epoch := self._cutter.cut_if_due(self.epoch + 1, now_ms)) is not None:
            _join(out, self._seal(epoch, now_ms))
        self._report(now=False)
        return self._recorded(out)

    def tick(self, now_ms: float) -> Outcome:
        """Seal due epochs, if the log does not decide; in a pause, an empty epoch that closes files and intervals."""
        out, following = Outcome(), self.epoch + 1
        self._report_rest()
        if self._cutter.is_decided(following):
            self._cutter.remind(following, now_ms)
            return out
        epoch = self._cutter.cut_by_clock(following, now_ms)
        while epoch is not None:
            _join(out, self._seal(epoch, now_ms))
            # a lane that is idle from now on may have kept several intervals waiting
            epoch = None if self.lanes.time is None else self._cutter.cut_if_due(self.epoch + 1, now_ms)
        return self._recorded(out)

    def is_due(self, now_ms: float) -> bool:
        """Return whether a tick would find anything to do."""
        if self.dead_letters is not None and self.dead_letters.is_behind:
            return True
        if not self.holds_back:
            return self.waiting
        return self._cutter.is_due(now_ms)

    def finish(self) -> Outcome:
        """End the input: seal waiting events, or an empty epoch for records rejected since the last one.

        Raises:
            LostCutError: the log names events that the input does not have any more.
        """
        out, following = Outcome(), self.epoch + 1
        self._cutter.refuse_end(following)
        while (epoch := self._cutter.cut_at_end(self.epoch + 1)) is not None:
            _join(out, self._seal(epoch, 0.0))
        unreported = self.progress.rejected_in_all > self.progress.told
        if self.lanes.waiting or self._cutter.is_flush_open(self.epoch) or unreported:
            _join(out, self._seal(self._cutter.cut_all(self.epoch + 1, 0.0, last=True), 0.0, LAST))
        return self._recorded(out)

    @property
    def accepted(self) -> int:
        """Events that came since the job began."""
        return self.lanes.accepted

    @property
    def figures(self) -> Figures:
        """Events, accepted and rejected, epochs, and the size of the graph (each direction of an edge counts)."""
        progress, core = self.progress, self.core
        counts = {"events": self.accepted + progress.rejected, "rejected": progress.rejected_in_all}
        counts["epochs"] = max(self.epoch, progress.epoch)
        counts |= {name: progress.noted.get(name, 0) for name in NOTED_AND_ALL}
        gauges = {"vertices": core.vertices, "edges": core.edges}
        if self._unusual_ts is not None:
            gauges[UNUSUAL_TS] = self._unusual_ts
        if self.lanes.time is not None:
            gauges[HAS_TS] = int(self.lanes.time.has_ts)
        return with_paging(Figures(counts, gauges, dict(progress.reasons)), core.tables.pager, PARTITIONER)

    @property
    def memory_bytes(self) -> int:
        """Bytes held by the tables and their indexes."""
        return self.core.tables.nbytes + self.core.index_bytes

    @property
    def waiting(self) -> bool:
        """True if there are unsealed or awaited events, or an open interval or file."""
        return self.lanes.waiting > 0 or self._cutter.is_decided(self.epoch + 1) or self._cutter.is_open(self.epoch)

    @property
    def holds_back(self) -> bool:
        """True if events wait only for the right moment, not for others: a tick should come soon."""
        return self._cutter.pace.adapts and self.lanes.open > 0 and not self._cutter.is_decided(self.epoch + 1)

    def watch(self, under_way: UnderWay) -> None:
        """Have epochs adapt to which of them are under way; called before `begin`."""
        under_way.begin(self.epoch)
        self._cutter.pace.under_way = under_way
        if self._cutter.pace.adapts:
            self.levels = {**self.levels, "epochs_under_way": under_way.level}

    def close(self) -> None:
        """Close the cut log, and write the last counts of rejected records."""
        self.sweeper.close()
        self.log.close()
        self.lanes.close()
        self._report(last=True)

    # -- sealing ------------------------------------------------------------------------------------------------

    def _seal(self, epoch: Epoch, now_ms: float, flags: int = 0) -> Outcome:
        """Partition an epoch: a block for each task, and what becomes of keyed state."""
        cut, progress = epoch.cut, self.progress
        is_replay = cut.epoch <= progress.epoch
        self._cutter.note_sealed(cut, now_ms)
        blocks = self._partition(epoch, is_replay, flags)
        self.epoch = cut.epoch
        if cut.marker:
            mutations = self._markers.pass_one(cut.epoch, now_ms, self.lanes, is_replay)
        else:
            mutations = self.sweeper.step().get(_PART, Mutations())
        if not is_replay:
            progress.epoch, progress.told = cut.epoch, progress.rejected_in_all
            progress.since_marker_ms = max(0.0, self._markers.since_last_ms(now_ms))
            self._is_recorded = False
        messages = [Message(STORAGE, task, cut.epoch, block) for task, block in enumerate(blocks)]
        return Outcome(messages, {_PART: mutations})

    def _partition(self, epoch: Epoch, is_replay: bool, flags: int) -> list[Block]:
        """Take an epoch through the core."""
        (cut, pieces), core, progress = epoch, self.core, self.progress
        piece = pieces[0] if len(pieces) == 1 else self._joined(pieces)
        if self._unusual_ts is None and piece.events.ts is not None:
            self._unusual_ts = first_unusual(piece.events.ts[piece.start : piece.stop], NO_TS)
        change = core.partition(*piece)
        if not is_replay:
            self._refuse(piece, change.rejected)
            progress.note(change.effects._asdict())
        control = control_values(
            self.sweeper.marker + 1 if cut.marker else -1,
            piece.size,
            piece.events.arrival_ms,
            flags | cut.flush * FLUSH | cut.publish * PUBLISH | is_replay * REPLAY,
            rejected=progress.rejected_in_all,
            accepted=cut.end - progress.refused,
            vertices=core.vertices,
            event_ts=change.event_ts,
            last_arrival_ms=cut.arrived_ms or last_arrival_ms(pieces),
        )
        return core.split(change, control, cut.epoch, position_columns(pieces))

    def _joined(self, pieces: Sequence[EventRange]) -> EventRange:
        """Return pieces of several blocks, or none, as one."""
        if not pieces:
            return EventRange.whole(Events.empty(self.core.features, self.core.config.id_kind))
        return EventRange.whole(Events.concatenate([piece.cut for piece in pieces]))

    def _refuse(self, piece: EventRange, rejected: list[tuple[int, str]]) -> None:
        """Events that only the graph's state shows to be wrong go to the dead letters, too."""
        if not rejected:
            return
        if self.dead_letters is not None:
            self.dead_letters.write(self._refusals.letters(piece.cut, rejected))
        self.progress.refuse([reason_of(reason) for _, reason in rejected])
        self._report(now=False)

    def _report(self, *, now: bool = True, last: bool = False) -> None:
        if self.dead_letters is not None:
            progress, read = self.progress, self.accepted + self.progress.rejected
            self.dead_letters.report(progress.reasons, progress.attrs, read, progress.noted, now=now, last=last)

    def _report_rest(self) -> None:
        """Report the last blocks before a pause, too: somebody may wait for that."""
        if self.dead_letters is not None and self.dead_letters.is_behind:
            self._report(now=False)

    def _recorded(self, out: Outcome) -> Outcome:
        """Have the progress among the changes of keyed state, once for all epochs of an outcome."""
        if not self._is_recorded:
            self._report(now=False)
            self._is_recorded = self._is_stamped = True
            out.of(_PART).puts.append((SEALED_KEY, self.progress.encode(self.log.job)))
        return out

    def _hold(self, number: int, first: int, events: Events, size: int) -> str:
        """Let a journaled block wait for its epochs, counting its bytes; returns its key in keyed state."""
        self.lanes.add_block(number, first, events, size)
        key = self._journal.add_block(number, first, self.lanes.lane_of(events), first + len(events), size)
        self._markers.bound_journal(self.lanes.peak_bytes)
        return key


def _join(out: Outcome, more: Outcome) -> None:
    out.messages += more.messages
    for part, mutations in more.mutations.items():
        out.of(part).extend(mutations)
