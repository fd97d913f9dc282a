"""The graph of a run, made again from its input by the plain reader, epoch by epoch, as `epochs/` records them.

One thing alone is taken from the job: where in each source an epoch ends, which decides what events are in it. How many
they are is counted here, and the job must have counted as many.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from freshet.job.console import Report
from freshet.job.errors import UsageError
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.topic_specs import TopicInput
from freshet.job.results.graph_at import Piece, input_order
from freshet.job.results.plain_graph import PlainGraph, SnapshotGraph
from freshet.job.results.plain_kinds import PlainKindsGraph, PlainKindsRules
from freshet.job.results.plain_reader import Judged, event_ts_of, snapshot_events
from freshet.job.results.plain_rules import ID_BYTES_MAX, Event, PlainRules
from freshet.job.results.plain_snapshot import read_snapshot
from freshet.job.results.plain_sources import PlainFile, PlainSource, PlainTopic
from freshet.job.run.sources import named_sources
from freshet.operators.sink.change_log_reader import Positions
from freshet.partitioner.config import GraphRules
from freshet.schema import Features

_TELL_EVERY = 1 << 12
_SAME_MAX = 256  # edges of one pair and type in a message, where each has a key of its own


@dataclass(frozen=True, slots=True)
class Given:
    """Inputs of a run that determine the graph."""

    events: Sequence[str]
    snapshot: Path | None
    features: Features
    id_kind: str | None  # None: the first accepted event's
    graph: GraphRules
    topics: Sequence[TopicInput] = ()
    events_map: Mapping[str, str] | Sequence[Mapping[str, str]] = field(default_factory=dict)
    properties: ClientProperties = field(default_factory=ClientProperties)  # by which Kafka is reached
    message_format: str = ""  # of messages whose schemas are in a registry
    registry: str = ""
    starts: Mapping[int, int] = field(default_factory=dict)  # by source: the files' first records that the run read
    id_bytes_max: int = ID_BYTES_MAX
    cast_ids: bool = False
    recorded: Sequence[str] = ()  # the names of the sources, as the run recorded them
    ts_unit: str = "ms"  # of integers in `ts`
    edge_key: str = ""  # the field with keys of edges, or `offset`

    def rules(self) -> PlainRules:
        """The rules that decide which records are events."""
        of = PlainRules if self.features.kinds is None else PlainKindsRules
        known = self.features, self.id_kind, self.graph.edge_types, self.events_map, self.id_bytes_max
        return of(*known, self.cast_ids, self.ts_unit, self.graph.edge_keys, self.edge_key)

    def sources(self, recorded: Sequence[str]) -> dict[str, PlainSource]:
        """Return the sources to read again, by the names that the run recorded, in reading order.

        Raises: UsageError when it can't be the run's.
        """
        found, names = named_sources(self.events, recorded)
        sources: dict[int, PlainSource] = {
            file.source: PlainFile(file, self.starts.get(file.source, 0)) for file in found.files
        }
        for topic in self.topics:
            if topic.source in found.topics:
                sources[topic.source] = PlainTopic(
                    topic.at(found.topics[topic.source]), self.properties, self.message_format, self.registry
                )
        return {names[index]: source for index, source in sorted(sources.items())}


class Lane:
    """The records of one source and partition, taken as far as epochs reach."""

    def __init__(self, records: Iterator[Judged]) -> None:
        self._records = records
        self._next = next(records, None)
        self.accepted = self.rejected = self.skipped = self.position = 0

    def through(self, next_offset: int, count: int) -> Iterator[Event]:
        """The events that stand before an offset, and of a message that goes on there as many as `count` wants."""
        wanted = self.accepted + count
        while (found := self._next) is not None and (
            found.position <= next_offset or (found.position == next_offset + 1 and self.accepted < wanted)
        ):
            yield from self._take(found)

    def rest(self) -> Iterator[Event]:
        """The events that are left."""
        while (found := self._next) is not None:
            yield from self._take(found)

    @property
    def is_over(self) -> bool:
        """True if no record is left."""
        return self._next is None

    @property
    def has_more(self) -> bool:
        """Return whether events are left; rejected records before the next one are consumed."""
        while (found := self._next) is not None and found.event is None:
            for _ in self._take(found):
                pass
        return found is not None

    def _take(self, found: Judged) -> Iterator[Event]:
        self.position = found.position
        self._next = next(self._records, None)
        if found.is_skipped:
            self.skipped += 1
        elif found.event is None:
            self.rejected += 1
        else:
            self.accepted += 1
            yield found.event


def with_own_keys(records: Iterator[Judged], lane: str) -> Iterator[Judged]:
    """Give each edge that is added a key of its own; in a message, those past the most of one pair are rejected."""
    position, same = -1, Counter[tuple[Any, ...]]()
    for number, one in enumerate(records):
        if one.position != position:
            position = one.position
            same.clear()
        event = one.event
        if event is not None and event.op == "add_edge":
            same[edge := (event.a, event.b, event.type)] += 1
            event = event._replace(key=f"{lane}:{number}") if same[edge] <= _SAME_MAX else None
        yield one._replace(event=event)


class PlainReplay:
    """Applies the input of a run in the order that its epochs record.

    `faults` describes events of `epochs/` that the input does not have.
    """

    def __init__(self, given: Given, positions: Positions, report: Report) -> None:
        """Apply the snapshot, if there is one.

        Raises: UsageError when it is none, or the events are not those of the run.
        """
        self.given = given
        self._positions, self._report = positions, report
        self._rules = given.rules()
        self.graph = self._begin()
        recorded = list(given.recorded) or list(dict.fromkeys(positions.source.tolist()))
        self._sources = given.sources(recorded)
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._miscounted: list[str] = []
        self._read = 0
        if given.snapshot is not None and self.graph.began_empty:
            with _without_collector():
                for event in snapshot_events(given.snapshot, self._rules, with_ts=given.graph.is_timed):
                    self.graph.take(event)
                    self._count("of the snapshot")
        self.graph.replaced = self.graph.unchanged = 0  # counts are of the stream
        if given.snapshot is not None and given.graph.is_timed:
            self.graph.times.advance(event_ts_of(given.snapshot))

    def epochs(self, wanted: Collection[int]) -> Iterator[int]:
        """Apply all epochs, and stop after each of the wanted ones.

        Raises:
            UsageError: a source does not reach as far as the run read it.
        """
        waiting = sorted(wanted)
        for epoch, pieces in groupby(input_order(self._positions, list(self._sources)), key=lambda piece: piece.epoch):
            while waiting and waiting[0] < epoch:  # without an event
                yield self._reach(waiting.pop(0))
            with _without_collector():
                self.graph.take_epoch(event for piece in pieces for event in self._events_of(piece))
        yield from map(self._reach, waiting)

    def _reach(self, epoch: int) -> int:
        """End an epoch without events; returns it."""
        if epoch > 0:
            self.graph.end_epoch()
        return epoch

    def finish(self) -> int:
        """Read on to the end of the input; returns how many events are in no epoch.

        Of a topic that the run did not read to an end, nothing more is read.
        """
        left = 0
        for name, source in self._sources.items():
            for partition in source.bounded:
                for _ in self._lane(name, partition).rest():
                    left += 1
                    self._count()
        return left

    def read_on(self, rejected: int) -> None:
        """Read past the last epoch until `rejected` records were rejected: a stopped run had read further."""
        for name, source in self._sources.items():
            for partition in source.bounded:
                rest = self._lane(name, partition).rest()
                while self.rejected < rejected and next(rest, None) is not None:
                    self._count()

    @property
    def faults(self) -> list[str]:
        """Faults of `epochs/`, in words."""
        if not self._miscounted:
            return []
        return [f"epochs/: {len(self._miscounted):,} counts of events are wrong; the first: {self._miscounted[0]}"]

    def why_not_whole(self) -> list[str]:
        """Describe what topics have lost since the run has read them.

        Raises: JobFailed when the brokers can't be reached.
        """
        topics = [source for source in self._sources.values() if isinstance(source, PlainTopic)]
        found = [topic.why_not_whole(lacks_events=bool(self._miscounted)) for topic in topics]
        return [one for one in found if one is not None]

    @property
    def accepted(self) -> int:
        """Events read so far that the rules and the graph took."""
        return sum(lane.accepted for lane in self._lanes.values()) - self.graph.rejected

    @property
    def rejected(self) -> int:
        """Records read so far that they did not take."""
        return sum(lane.rejected for lane in self._lanes.values()) + self.graph.rejected

    @property
    def noted(self) -> dict[str, int]:
        """Counts of what became of accepted events, and of skipped tombstones, by the names of the summary."""
        found = {name: getattr(self.graph, name) for name in ("replaced", "unchanged", "nothing_deleted")}
        return found | {"tombstones_skipped": sum(lane.skipped for lane in self._lanes.values())}

    @property
    def has_more(self) -> bool:
        """Return whether files have events left."""
        return any(lane.has_more for (name, _), lane in self._lanes.items() if self._sources[name].is_file)

    def _begin(self) -> PlainGraph:
        """The graph of a snapshot that is read as a whole, else an empty one."""
        if self.given.features.kinds is not None:
            return PlainKindsGraph(self.given.features, self.given.graph, self._snapshot())
        return PlainGraph(self.given.features, self.given.graph, self._snapshot())

    def _snapshot(self) -> SnapshotGraph | None:
        """The snapshot as a whole; None where it has to be taken row by row."""
        if self.given.snapshot is None:
            return None
        self._report("reading the snapshot")
        return read_snapshot(self.given.snapshot, self._rules, self.given.graph)

    def _events_of(self, piece: Piece) -> Iterator[Event]:
        lane, source = self._lane(piece.source, piece.partition), self._sources[piece.source]
        before = lane.accepted
        for event in lane.through(piece.next_offset, piece.events):
            yield event
            self._count()
        if lane.position < piece.next_offset and lane.is_over:
            msg = (
                f"--events: {piece.source} ends at {lane.position:,} after {lane.accepted:,} events, the run read up "
                f"to {piece.next_offset:,}: these are not the events that it read"
            )
            raise UsageError(msg)
        taken = lane.accepted - before
        if taken != piece.events:
            place = piece.source if source.is_file else f"{piece.source} partition {piece.partition}"
            self._miscounted.append(
                f"epoch {piece.epoch:,} has {piece.events:,} events of {place} up to {piece.next_offset:,}, where "
                f"{taken:,} are"
            )

    def _lane(self, source: str, partition: int) -> Lane:
        lane = self._lanes.get((source, partition))
        if lane is None:
            records = self._sources[source].records(partition, self._rules)
            if self._rules.by_offset:
                records = with_own_keys(records, f"{source}:{partition}")
            lane = self._lanes[source, partition] = Lane(records)
        return lane

    def _count(self, what: str = "") -> None:
        self._read += 1
        if self._read % _TELL_EVERY == 0:
            self._report(f"{self._read:,} events read {what}".rstrip())


@contextmanager
def _without_collector() -> Iterator[None]:
    """Millions of small objects and no cycle: half of the time would go into looking for one."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
