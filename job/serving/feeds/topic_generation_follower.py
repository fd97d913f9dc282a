"""Follows the topics of a service's jobs: the next one's table is made beside the current one, then shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from freshet.job.service.current_topic import CurrentTopic
from freshet.job.serving.feeds.generation_follower import Succession
from freshet.job.serving.feeds.table_progress import Place
from freshet.job.serving.feeds.topic_follower import TopicFollower
from freshet.job.serving.feeds.topic_generations import TopicGeneration, TopicGenerations
from freshet.job.serving.tables.kept import KeptTables
from freshet.job.serving.tables.served_job import ServedJob
from freshet.state.served.layout import HISTORY_BYTES


class TopicGenerationFollower(Succession, TopicFollower):
    """Follower of the topic of a generation; the next one is shown once it was read to the end that it had."""

    job: ServedJob

    def __init__(
        self,
        topics: TopicGenerations,
        found: TopicGeneration,
        until: Callable[[], bool],
        history_bytes: int = HISTORY_BYTES,
        *,
        kept: KeptTables,
    ) -> None:
        super().__init__(
            found.job, found.tables, found.topic, lambda: until() or self._is_dropped, history_bytes=history_bytes
        )
        self._begin_with(found.current, kept)
        self._topics, self._found, self._ended_by = topics, found, until

    def step(self) -> bool:
        """Take in what has come; whether there was something. Of a table that nobody has, no failure is put up with."""
        return self._take_in() if self._is_hidden else super().step()

    def read_upto(self) -> dict[Place, int]:
        """Return nothing: offsets of two topics say nothing of each other."""
        return {}

    def covers(self, positions: Mapping[Place, int]) -> bool:
        """Return whether the topic was read to the end that it had."""
        return self._loaded

    @property
    def refused(self) -> int:
        """Return the number of records that were left out, of its topic and of that of generations."""
        return super().refused + self._topics.pointer.refused

    def close(self, forget: bool) -> None:
        """Let the brokers go; with `forget` the table, too."""
        super().close(forget)
        if forget:
            self._topics.pointer.close()

    def _newest(self) -> CurrentTopic | None:
        return self._topics.newest(self.generation.generation)

    def _follower_of(self, newest: CurrentTopic) -> TopicGenerationFollower:
        found = self._topics.found(newest, self._found.job)
        return TopicGenerationFollower(self._topics, found, self._ended_by, self._history_bytes, kept=self._kept)

    def note(self, generation: int) -> None:
        """Note the topic, too, before readers get its first table."""
        if not self.is_readable:
            self._found.note()
        super().note(generation)
