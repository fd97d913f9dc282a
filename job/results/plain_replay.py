"""The graph of a run made again from its input by the plain reader, epoch by epoch, as `epochs/` records them.

What the job took from the input is not believed: where an epoch ends in a source decides which events are in it, and
how many the job counted there must be as many as are read here.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np

from job.errors import UsageError
from job.kafka.client import ClientProperties
from job.kafka.topic_specs import TopicInput
from job.results.check_progress import Tell
from job.results.plain_reader import Judged, file_records, message_records, snapshot_events
from job.results.plain_rules import ID_BYTES_MAX, Event, PlainRules
from job.run.sources import named_sources
from operators.sink.change_log_reader import Positions
from partitioner.reference_graph import ReferenceGraph

_TELL_EVERY = 1 << 12


@dataclass(frozen=True, slots=True)
class Given:
    """What a run was given, as far as it decides the graph."""

    events: Sequence[str]
    snapshot: Path | None
    in_width: int
    id_kind: str | None  # None: the first accepted event's
    edge_types: Sequence[str] | None
    undirected: bool
    forbid_typed_loops: bool
    topics: Sequence[TopicInput] = ()
    events_map: Mapping[str, str] = field(default_factory=dict)
    properties: ClientProperties = field(default_factory=ClientProperties)  # by which Kafka is reached
    starts: Mapping[int, int] = field(default_factory=dict)  # by source: the files' first records that the run read
    id_bytes_max: int = ID_BYTES_MAX
    recorded: Sequence[str] = ()  # the names of the sources, as the run recorded them

    def rules(self) -> PlainRules:
        """What of it decides which records are events."""
        return PlainRules(self.in_width, self.id_kind, self.edge_types, self.events_map, self.id_bytes_max)


class PlainGraph(ReferenceGraph):
    """The graph after single events; `rejected` counts those that only the graph shows to be wrong."""

    def __init__(self, given: Given) -> None:
        super().__init__(given.in_width, given.undirected, forbid_typed_loops=given.forbid_typed_loops)

    def take(self, event: Event) -> None:
        """Apply one event."""
        if event.b is None:
            if event.op == "del_vertex":
                self.del_vertex(event.a)
            else:
                self.add_vertex(event.a, event.x)
        elif event.op == "del_edge":
            self.del_edge(event.a, event.b, event.type)
        else:
            self.add_edge(event.a, event.b, event.weight, event.type, event.attr)


class Lane:
    """The records of one source and partition, taken as far as epochs reach."""

    def __init__(self, records: Iterator[Judged]) -> None:
        self._records = records
        self._next = next(records, None)
        self.accepted = self.rejected = self.position = 0

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
        """Whether no record is left."""
        return self._next is None

    @property
    def has_more(self) -> bool:
        """Whether events are left; rejected records before the next one are taken."""
        while (found := self._next) is not None and found.event is None:
            for _ in self._take(found):
                pass
        return found is not None

    def _take(self, found: Judged) -> Iterator[Event]:
        self.position = found.position
        self._next = next(self._records, None)
        if found.event is None:
            self.rejected += 1
        else:
            self.accepted += 1
            yield found.event


class PlainReplay:
    """Applies the input of a run in the order that its epochs record.

    `faults` says in words where `epochs/` tells of other events than there are.
    """

    def __init__(self, given: Given, positions: Positions, tell: Tell) -> None:
        """Apply the snapshot, if there is one.

        Raises: UsageError when it is none, or the events are not those of the run.
        """
        self.given, self.graph = given, PlainGraph(given)
        self._positions, self._tell = positions, tell
        self._rules = given.rules()
        recorded = list(given.recorded) or list(dict.fromkeys(positions.source.tolist()))
        found, self._names = named_sources(given.events, recorded)
        self._files = {self._names[file.source]: file for file in found.files}
        self._topics = {
            self._names[topic.source]: topic.at(found.topics[topic.source])
            for topic in given.topics
            if topic.source in found.topics
        }
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._miscounted: list[str] = []
        self._read = 0
        if given.snapshot is not None:
            with _without_collector():
                for event in snapshot_events(given.snapshot, self._rules):
                    self.graph.take(event)
                    self._count("of the snapshot")

    def epochs(self, wanted: Collection[int]) -> Iterator[int]:
        """Apply all epochs, and stop after each of the wanted ones.

        Raises:
            UsageError: a source does not reach as far as the run read it.
        """
        columns = (self._positions.partition, self._positions.next_offset, self._positions.events)
        order = self._order()
        rows = zip(
            self._positions.epoch[order].tolist(),
            self._positions.source[order].tolist(),
            *(column[order].tolist() for column in columns),
            strict=True,
        )
        waiting = sorted(wanted)
        for epoch, group in groupby(rows, key=lambda row: row[0]):
            while waiting and waiting[0] < epoch:  # without an event
                yield waiting.pop(0)
            with _without_collector():
                for _, source, partition, next_offset, events in group:
                    self._apply(epoch, source, partition, next_offset, events)
        yield from waiting

    def finish(self, ended: bool) -> int:
        """Read on to the end of the input; returns how many events are in no epoch. `ended`: the run took in all of it.

        Of a topic that the run did not read to an end, nothing more is read.
        """
        if ended:
            for name in self._files:
                self._lane(name, 0)
            for name, topic in self._topics.items():
                for partition in topic.end or ():
                    self._lane(name, partition)
        left = 0
        for (name, _), lane in self._lanes.items():
            if ended and (name in self._files or self._topics[name].end is not None):
                for _ in lane.rest():
                    left += 1
                    self._count()
        return left

    @property
    def faults(self) -> list[str]:
        """What `epochs/` has wrong."""
        if not self._miscounted:
            return []
        return [f"epochs/: {len(self._miscounted):,} counts of events are wrong; the first: {self._miscounted[0]}"]

    @property
    def accepted(self) -> int:
        """Events read so far that the rules and the graph took."""
        return sum(lane.accepted for lane in self._lanes.values()) - self.graph.rejected

    @property
    def rejected(self) -> int:
        """Records read so far that they did not take."""
        return sum(lane.rejected for lane in self._lanes.values()) + self.graph.rejected

    @property
    def has_more(self) -> bool:
        """Whether files have events left."""
        return any(lane.has_more for (name, _), lane in self._lanes.items() if name in self._files)

    def _order(self) -> np.ndarray:
        """Rows of `epochs/` by epoch, in it by source as the run had them, and partition."""
        unknown = sorted(set(self._positions.source.tolist()) - set(self._names))
        if unknown:
            message = f"--events: the run read {', '.join(unknown)}; give what it read"
            raise UsageError(message)
        rank = {name: k for k, name in enumerate(self._names)}
        ranks = np.array([rank[name] for name in self._positions.source.tolist()], np.int64)
        return np.lexsort((self._positions.partition, ranks, self._positions.epoch))

    def _apply(self, epoch: int, source: str, partition: int, next_offset: int, events: int) -> None:
        lane = self._lane(source, partition)
        before = lane.accepted
        for event in lane.through(next_offset, events):
            self.graph.take(event)
            self._count()
        if lane.position < next_offset and lane.is_over:
            message = (
                f"--events: {source} ends at {lane.position:,} after {lane.accepted:,} events, the run read up to "
                f"{next_offset:,}: not what it read"
            )
            raise UsageError(message)
        taken = lane.accepted - before
        if taken != events:
            place = f"{source} partition {partition}" if source in self._topics else source
            self._miscounted.append(
                f"epoch {epoch:,} has {events:,} events of {place} up to {next_offset:,}, where {taken:,} are"
            )

    def _lane(self, source: str, partition: int) -> Lane:
        lane = self._lanes.get((source, partition))
        if lane is None:
            lane = self._lanes[source, partition] = Lane(self._records(source, partition))
        return lane

    def _records(self, source: str, partition: int) -> Iterator[Judged]:
        if source in self._files:
            file = self._files[source]
            return file_records(file, self._rules, self.given.starts.get(file.source, 0))
        from job.kafka.read_topics import read_partition

        topic = self._topics[source]
        end = None if topic.end is None else topic.end.get(partition)
        pieces = read_partition(topic, partition, self.given.properties, end)
        return message_records(((one.offset, one.value) for piece in pieces for one in piece), self._rules)

    def _count(self, what: str = "") -> None:
        self._read += 1
        if self._read % _TELL_EVERY == 0:
            self._tell(f"{self._read:,} events read {what}".rstrip())


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
