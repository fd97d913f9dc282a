"""How far a job has taken its sources in, and its graph made again from them where no state is left."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import numpy as np

from job.console import say
from job.errors import UsageError
from job.folder.job_file import SavedJob
from job.kafka.client import ClientProperties
from job.kafka.input import TopicInput
from job.results.final_graph import SourceEvents, apply_stretches, chunk_events, stretches, topic_events
from job.run.positions import Position, Start
from operators.factory import load_plan
from operators.live_graph import LiveState
from operators.parser.core import Parser
from operators.parser.file_stage import read_plan
from operators.parser.files import Chunk
from operators.parser.skipping import records_of
from operators.settings import Settings
from operators.sink.change_log_reader import ChangeLogReader, Positions


class Covered:
    """What the epochs of a job cover of its sources, by source (index) and partition.

    Invariant: a partition of a topic that the job knew when it began is there, also where no event came from it.
    """

    def __init__(self, out: Path, settings: Settings, saved: SavedJob) -> None:
        """Nothing is covered but what the job itself began behind."""
        self.out, self.sources = out, list(settings.sources)
        self.topics: dict[int, TopicInput] = {topic.source: topic for topic in saved.topics}
        self.chunks: dict[int, list[Chunk]] = {
            source: list(group) for source, group in groupby(read_plan(Path(settings.chunks)), lambda one: one.source)
        }
        if twice := sorted({name for name in self.sources if self.sources.count(name) > 1}):
            message = f"{out}: the job read {', '.join(twice)} twice; positions can't tell the two apart"
            raise UsageError(message)
        starts = Start.load(out).files
        files = [source for source in range(len(self.sources)) if source not in self.topics]
        self._next = {(source, 0): starts.get(source, 0) for source in files}
        self._next |= {
            (one.source, partition): at for one in self.topics.values() for partition, at in one.start.items()
        }
        # What a file held when the job began; one without a chunk held nothing more than what it began behind.
        self._records = {source: records_of(self.chunks.get(source, [])) or starts.get(source, 0) for source in files}

    def update(self, positions: Mapping[tuple[int, int], int]) -> None:
        """Take over how far later epochs reach."""
        self._next |= positions

    def through(self, epoch: int) -> None:
        """Take over what `epochs/` says of all epochs up to this one.

        Raises: UsageError when it misses one of them.
        """
        if epoch > 0:
            found, recorded = self._log().positions(), self._log().epochs()
            if np.unique(recorded[(recorded > 0) & (recorded <= epoch)]).size < epoch:
                message = f"{self.out}: epochs/ does not have all epochs up to {epoch:,}; put its files back"
                raise UsageError(message)
            self._take(found, epoch)

    def all(self) -> tuple[Positions, int]:
        """Take over what all epochs cover; it, and the last of them."""
        log = self._log()
        positions, last = log.positions(), log.last_epoch() or 0
        self._take(positions, last)
        return positions, last

    def positions(self, finished: bool) -> list[Position]:
        """As they stand in `snapshot.json`; `finished`: the whole input has been taken in.

        Files are read one after the other, so those before one that was begun are covered whole, with records that
        were rejected behind their last event; of a topic these are read again.
        """
        found = dict(self._next)
        files = sorted(self._records)
        begun = [source for source in files if found[source, 0] > 0]
        for source in files:
            if finished or (begun and source < begun[-1]):
                found[source, 0] = self._records[source]
        for topic in self.topics.values() if finished else ():
            found |= {(topic.source, partition): end for partition, end in (topic.end or {}).items()}
        return [
            Position(
                source=self.sources[source], partition=partition, next_offset=at, records=self._records.get(source)
            )
            for (source, partition), at in sorted(found.items())
        ]

    def _take(self, found: Positions, epoch: int) -> None:
        index = {name: source for source, name in enumerate(self.sources)}
        within = found.epoch <= epoch
        rows = zip(
            found.source[within], found.partition[within].tolist(), found.next_offset[within].tolist(), strict=True
        )
        self._next |= {(index[name], partition): following for name, partition, following in rows}  # the last holds

    def _log(self) -> ChangeLogReader:
        return ChangeLogReader(self.out)


def rebuild(live: LiveState, covered: Covered, properties: ClientProperties) -> None:
    """Bring a graph to the last epoch from the base image and the job's events, in the order that its epochs record.

    Raises: UsageError, EventFileError when the events are not there as they were; JobFailed when Kafka is not.
    """
    live.restore(lambda operator, part: ())
    positions, last = covered.all()
    settings = live.settings
    plan = load_plan(settings.model)

    def parser() -> Parser:
        types, longest = plan.edge_types or None, settings.id_bytes_max
        return Parser(plan.in_width, settings.id_kind, types, settings.events_map, longest)

    def partition_of(name: str, partition: int) -> SourceEvents:
        topic = covered.topics[covered.sources.index(name)]
        return SourceEvents(topic_events(topic, partition, parser(), properties))

    files = {
        name: SourceEvents(chunk_events(covered.chunks.get(source, []), parser()))
        for source, name in enumerate(covered.sources)
        if source not in covered.topics
    }
    apply_stretches(stretches(positions, covered.sources), files, partition_of, live.apply, say)
    live.partitioner.epoch = last  # stretches are fewer than epochs
