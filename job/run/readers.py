"""Number of readers: of each topic sources with their Parsers, for some of the partitions; of files threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from freshet.job.console import say
from freshet.job.run.sources import Sources
from freshet.job.run.topic_source import TopicSource
from freshet.operators.parser.ahead import is_parsed_ahead


@dataclass(frozen=True)
class Processes:
    """The processes of a job on Flink: groups of neighbouring operators have as many each as a layer has subtasks."""

    count: int
    subtasks: int
    of_cluster: bool = False  # that was started by others

    def readers_by_default(self) -> int:
        """Return one reader for each process that is known to have room for one.

        A cluster may have no slots but those of the layers, and of these only the first group's have room.
        """
        return self.subtasks if self.of_cluster else self.count

    def whole_groups(self, readers: int, *, more: bool) -> int:
        """Return the next number of readers, not above or (`more`) not below this one, that fills whole groups."""
        if self.of_cluster or not self.subtasks < readers < self.count or readers % self.subtasks == 0:
            return readers
        return readers + (self.subtasks if more else 0) - readers % self.subtasks


def file_readers_of(sources: Sources, given: int | None, processes: int) -> int:
    """Return the number of threads that parse files, `given` or one for each process."""
    if given and given > 1 and not sources.topics and not any(map(is_parsed_ahead, sources.chunks)):
        say(f"--readers {given}: one reads these files; several read topics, and JSON Lines that are not compressed")
    return given or processes


def readers_of(
    topics: Sequence[TopicSource], given: int | None, processes: Processes, *, resumes: bool
) -> tuple[int, ...]:
    """Return the number of readers of each topic, `given` or by default, and at most its partitions.

    Raises: JobFailed when the brokers can't be reached.
    """
    return tuple(_readers(topic, given, processes, resumes) for topic in topics)


def _readers(topic: TopicSource, given: int | None, processes: Processes, resumes: bool) -> int:
    wanted = given or processes.readers_by_default()
    partitions = len(topic.start if topic.end is None else topic.end)
    if wanted > partitions and topic.end is None and resumes:
        partitions = len(topic.ends_now())  # some may have been added
    if given and given > partitions:
        found = "1 partition, so one reader" if partitions == 1 else f"{partitions} partitions, so {partitions} readers"
        say(f"--readers {given}: {topic.name} has {found}")
    return processes.whole_groups(max(1, min(wanted, partitions)), more=given is not None)
