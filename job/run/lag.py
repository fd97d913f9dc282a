"""How much of its input a job still has before it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from job.errors import JobFailed
from job.kafka.client import ClientProperties
from job.kafka.topic_specs import TopicInput
from operators.parser.topic_stage import read_positions

_ASK_S = 5.0

Ends = Mapping[int, int]


class Lag:
    """Records of files and messages of topics that have not been read yet; a context manager.

    A thread asks the brokers where the topics end; while they don't answer, their last answer holds.
    """

    def __init__(
        self,
        out: Path,
        records: int,
        topics: Sequence[TopicInput],
        properties: ClientProperties,
        ask: Callable[[TopicInput, ClientProperties], Ends] | None = None,
    ) -> None:
        """`records` of files; `ask` returns where a topic's partitions end."""
        self._out, self._records, self._topics, self._properties = out, records, topics, properties
        self._ask = ask
        self._ends: dict[int, Ends] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshet-lag", daemon=True) if topics else None

    def __enter__(self) -> Lag:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        from job.kafka.read_topics import end_offsets

        ask = self._ask or end_offsets
        while not self._stop.is_set():
            for topic in self._topics:
                try:
                    self._ends[topic.source] = ask(topic, self._properties)
                except JobFailed:  # the job itself tells when brokers are away for too long
                    continue
            self._stop.wait(_ASK_S)

    def of(self, events: int) -> int | None:
        """What is left after so many events; None while a topic's end is not known. Of topics: messages."""
        if not self._topics:
            return max(0, self._records - events)
        read = read_positions(self._out)
        total = 0
        for topic in self._topics:
            ends = self._ends.get(topic.source) if topic.end is None else topic.end
            if ends is None:
                return None
            done = read.get(str(topic.address), {})
            total += sum(max(0, end - done.get(p, topic.start.get(p, 0))) for p, end in ends.items())
        return total
