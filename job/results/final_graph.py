"""The events of a run's input once more, in the order in which its epochs took them, by the job's own Parser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from job.errors import UsageError
from job.kafka.client import ClientProperties
from job.kafka.topic_specs import TopicInput
from operators.parser.core import Origin, Parser, RawMessage
from operators.parser.files import Chunk, ChunkReader
from operators.sink.change_log_reader import Positions
from partitioner.events import Events

Say = Callable[[str], None]
_SAY_EVERY = 200_000


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


def chunk_events(chunks: Iterable[Chunk], parser: Parser) -> Iterator[Events]:
    """The events of a file's chunks."""
    reader = ChunkReader(every_column=parser.is_mapped)
    for chunk in chunks:
        yield parser.parse_chunk(chunk, reader.read(chunk))[0]


def topic_events(topic: TopicInput, partition: int, parser: Parser, properties: ClientProperties) -> Iterator[Events]:
    """The events of a partition, from where the run began; reads on to where it ends now."""
    from job.kafka.read_topics import read_partition

    origin = Origin(topic.source, str(topic.address), partition)
    for messages in read_partition(topic, partition, properties):
        yield parser.parse_messages([RawMessage(offset, value) for _, offset, value in messages], origin)[0]


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
