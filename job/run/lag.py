"""Part of its input that a job has yet to read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from freshet.job.errors import JobFailed
from freshet.job.run.sources import Sources
from freshet.job.run.topic_source import TopicSource
from freshet.operators.parser.topic_stage import read_positions

_ASK_S = 5.0

Ends = Mapping[int, int]


class Lag:
    """Records of files and messages of topics that have not been read yet; a context manager.

    A thread asks the brokers where the topics end; while they don't answer, their last answer holds.
    """

    def __init__(self, out: Path, sources: Sources, ask: Callable[[TopicSource], Ends] = TopicSource.ends_now) -> None:
        """`ask` returns where a topic's partitions end."""
        self._out, self._records, self._topics, self._ask = out, sources.records, sources.topics, ask
        self._before = read_positions(out)  # of the attempt before: this one reads on behind what that had read
        self._ends: dict[int, Ends] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshet-lag", daemon=True)

    def __enter__(self) -> Lag:
        if self._topics:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            for topic in self._topics:
                try:
                    self._ends[topic.index] = self._ask(topic)
                except JobFailed:  # the job itself tells when brokers are away for too long
                    continue
            self._stop.wait(_ASK_S)

    def of(self, events: int) -> int | None:
        """Return the remaining input after this many events; None while a topic's end is not known.

        For a job that reads topics only their messages are counted.
        """
        if not self._topics:
            return max(0, self._records - events)
        read = read_positions(self._out)
        total = 0
        for topic in self._topics:
            ends = self._ends.get(topic.index) if topic.end is None else topic.end
            if ends is None:
                return None
            done = self._before.get(topic.name, {}) | read.get(topic.name, {})
            total += sum(max(0, end - done.get(p, topic.start.get(p, 0))) for p, end in ends.items())
        return total
