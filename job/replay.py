"""The graph that a run's input leads to, by the slow reference: what `freshet check` recomputes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np

from job.change_log_reader import Positions
from job.errors import UsageError
from job.kafka_address import KafkaAddressError
from job.kafka_client import ClientProperties
from job.kafka_input import TopicInput
from job.sources import Sources, find_sources
from operators.event_files import Chunk, ChunkReader, EventFile, EventFileError
from operators.parser import Origin, Parser, RawMessage
from operators.replay_graph import ReferenceGraph
from operators.skipping import plan_from
from operators.snapshot import SnapshotError, open_snapshot
from partitioner.events import Events

Say = Callable[[str], None]
_SAY_EVERY = 200_000


@dataclass(frozen=True, slots=True)
class Input:
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

    def parser(self, id_kind: str | None) -> Parser:
        """As the run had it."""
        return Parser(self.in_width, id_kind, self.edge_types, self.events_map)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Events of one source's partition that apply one after the other: so many, up to the position `end`."""

    source: str
    partition: int
    count: int
    end: int


def stretches(positions: Positions, sources: Sequence[str]) -> list[Stretch]:
    """The order in which the input applies: by epoch, in it by source (in the order given) and partition.

    Raises:
        UsageError: the run read from something that is none of the sources.
    """
    unknown = sorted(set(positions.source.tolist()) - set(sources))
    if unknown:
        message = f"--events: the run read {', '.join(unknown)}; give what it read"
        raise UsageError(message)
    rank = {name: k for k, name in enumerate(sources)}
    ranks = np.array([rank[name] for name in positions.source.tolist()], np.int64)
    order = np.lexsort((positions.partition, ranks, positions.epoch))
    columns = (positions.source, positions.partition, positions.events, positions.next_offset)
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    found = []
    for (source, partition), group in groupby(rows, key=lambda row: row[:2]):
        together = list(group)
        found.append(Stretch(source, partition, sum(row[2] for row in together), together[-1][3]))
    return found


def named_sources(events: Sequence[str], recorded: Sequence[str]) -> tuple[Sources, list[str]]:
    """The sources, and for each the name that the run recorded for it, in reading order.

    Files that lie elsewhere now, and brokers that have another address, are taken by their place in the order.

    Raises:
        UsageError: they can't be the run's.
    """
    try:
        sources = find_sources(events)
    except (EventFileError, KafkaAddressError) as error:
        message = f"--events: {error}"
        raise UsageError(message) from None
    if set(recorded) <= set(sources.names):
        return sources, list(sources.names)
    if len(recorded) == len(sources.names):
        return sources, list(recorded)
    message = f"--events: got {len(sources.names)} files, the run read {len(recorded)}: {', '.join(recorded)}"
    raise UsageError(message)


class SourceEvents:
    """The events of one file or partition in order, parsed as far as they are asked for."""

    def __init__(self, blocks: Iterator[Events]) -> None:
        self._blocks = blocks
        self._rest: Events | None = None
        self.position = 0  # of the last event taken

    def take(self, count: int) -> Iterator[Events]:
        """The next `count` events, block by block; fewer where the source has no more."""
        while count and (block := self._rest or next(self._blocks, None)) is not None:
            taken = min(count, len(block))
            self._rest = block.slice(taken, len(block)) if taken < len(block) else None
            if taken:
                count -= taken
                self.position = int(block.position[taken - 1])
                yield block.slice(0, taken)

    @property
    def has_more(self) -> bool:
        """Whether events are left."""
        if self._rest is None:
            self._rest = next((block for block in self._blocks if len(block)), None)
        return self._rest is not None


def file_events(file: EventFile, parser: Parser, first: int = 0) -> Iterator[Events]:
    """The events of a file, from its record `first` on."""
    return chunk_events(plan_from(file, first), parser)


def chunk_events(chunks: Iterable[Chunk], parser: Parser) -> Iterator[Events]:
    """The events of a file's chunks."""
    reader = ChunkReader(every_column=parser.is_mapped)
    for chunk in chunks:
        yield parser.parse_chunk(chunk, reader.read(chunk))[0]


def topic_events(topic: TopicInput, partition: int, parser: Parser, properties: ClientProperties) -> Iterator[Events]:
    """The events of a partition, from where the run began; reads on to where it ends now."""
    from job.kafka_topics import read_partition

    origin = Origin(topic.source, str(topic.address), partition)
    for messages in read_partition(topic, partition, properties):
        yield parser.parse_messages([RawMessage(offset, value) for _, offset, value in messages], origin)[0]


def final_graph(given: Input, positions: Positions, recorded: Sequence[str], say: Say) -> ReferenceGraph:
    """The graph after the events that the positions cover.

    Raises:
        UsageError: the snapshot or the events can't be read, or are not what the run read.
    """
    graph = ReferenceGraph(given.in_width, given.undirected, forbid_typed_loops=given.forbid_typed_loops)
    id_kind = given.id_kind
    try:
        if given.snapshot is not None:
            snapshot = open_snapshot(given.snapshot, given.in_width, None, given.edge_types)
            id_kind = snapshot.id_kind
            for block in snapshot.blocks():
                graph.apply(block)
            say(f"snapshot: {len(graph):,} vertices")
        _apply_events(graph, given, id_kind, positions, recorded, say)
    except (SnapshotError, EventFileError) as error:
        raise UsageError(str(error)) from None
    return graph


def _apply_events(
    graph: ReferenceGraph, given: Input, id_kind: str | None, positions: Positions, recorded: Sequence[str], say: Say
) -> None:
    read = list(recorded) or list(dict.fromkeys(positions.source.tolist()))
    found, names = named_sources(given.events, read)
    parser = given.parser(id_kind)
    files = {
        names[file.source]: SourceEvents(file_events(file, parser, given.starts.get(file.source, 0)))
        for file in found.files
    }
    topics = {names[topic.source]: topic.at(found.topics[topic.source]) for topic in given.topics}

    def partition_of(topic: str, partition: int) -> SourceEvents:
        return SourceEvents(topic_events(topics[topic], partition, parser, given.properties))

    applied = apply_stretches(stretches(positions, names), files, partition_of, graph.apply, say)
    if any(source.has_more for source in files.values()):
        say(f"the run stopped before the end of its input: checking what it applied, {applied:,} events")


def apply_stretches(
    found: Iterable[Stretch],
    files: Mapping[str, SourceEvents],
    partition_of: Callable[[str, int], SourceEvents],
    apply: Callable[[Events], None],
    say: Say,
) -> int:
    """Apply the events of files and topics in the order of the stretches; returns how many there were.

    Raises:
        UsageError: a source does not have what the run read.
    """
    partitions: dict[tuple[str, int], SourceEvents] = {}
    applied = said = 0
    for stretch in found:
        place, in_topic, before = (stretch.source, stretch.partition), stretch.source not in files, applied
        if in_topic and place not in partitions:
            partitions[place] = partition_of(*place)
        source = partitions[place] if in_topic else files[stretch.source]
        for block in source.take(stretch.count):
            apply(block)
            applied += len(block)
            if applied - said >= _SAY_EVERY:
                said = applied
                say(f"{applied:,} events replayed")
        # An epoch may end within a message of many events: it is not covered whole then.
        ends = (stretch.end, stretch.end + 1) if in_topic else (stretch.end,)
        if applied - before < stretch.count or source.position not in ends:
            message = (
                f"--events: after {applied:,} events {stretch.source} stands at {source.position}, the run at "
                f"{stretch.end}: not what it read"
            )
            raise UsageError(message)
    return applied
