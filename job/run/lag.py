"""Part of its input that a job has yet to read.

The process of a run asks the brokers where its topics end, and writes that down for others (`status/lag.json`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from freshet.job.errors import JobFailed
from freshet.job.lifecycle.lag_file import LAG, left_in
from freshet.job.run.sources import Sources
from freshet.job.run.topic_source import TopicSource
from freshet.operators.telemetry.positions import read_positions
from freshet.operators.telemetry.status_file import StatusFile

_ASK_S = 5.0
# Client properties that others need to ask the brokers, and may read.
_NO_SECRETS = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.kerberos.service.name",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.endpoint.identification.algorithm",
    "client.id",
    "request.timeout.ms",
    "metadata.max.age.ms",
}
_OF_LOGINS = "sasl.", "ssl.", "security."
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", re.ASCII)  # to a variable of the environment

Ends = Mapping[int, int]


def _is_no_secret(name: str, value: str) -> bool:
    return name in _NO_SECRETS or _REFERENCE.fullmatch(value) is not None


class Lag:
    """Records of files and messages of topics that have not been read yet; a context manager.

    A thread asks the brokers where the topics end; while they don't answer, their last answer holds.
    """

    def __init__(self, out: Path, sources: Sources, ask: Callable[[TopicSource], Ends] = TopicSource.ends_now) -> None:
        """`ask` returns where a topic's partitions end."""
        self._out, self._records, self._topics, self._ask = out, sources.records, sources.topics, ask
        self._before = read_positions(out)  # of the attempt before: this one reads on behind what that had read
        self._ends: dict[int, Ends] = {}
        self._asked_s: dict[int, float] = {}
        self._status = StatusFile(out, LAG)
        self._tell()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshet-lag", daemon=True)

    def __enter__(self) -> Lag:
        if self._topics:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def look(self) -> None:
        """Ask where the topics end, and write it down."""
        for topic in self._topics:
            try:
                self._ends[topic.index] = self._ask(topic)
            except JobFailed:  # the job itself tells when brokers are away for too long
                continue
            self._asked_s[topic.index] = time.time()
        self._tell()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(_ASK_S)

    def _tell(self) -> None:
        """Write down what is known of the ends."""
        topics = [self._status_of(topic) for topic in self._topics]
        self._status.write({"records": self._records, "topics": topics}, time.time() * 1e3)

    def _status_of(self, topic: TopicSource) -> dict[str, Any]:
        ends = self._ends.get(topic.index) if topic.end is None else topic.end
        asked_s = None if topic.end is not None else self._asked_s.get(topic.index, 0.0)
        before, plain = self._before.get(topic.name, {}), None if ends is None else dict(ends)
        begun = {"source": topic.name, "start": dict(topic.start), "before": before}
        shown = {name: value for name, value in topic.properties.items() if _is_no_secret(name, value)}
        withheld = [name for name in topic.properties if name not in shown and name.startswith(_OF_LOGINS)]
        return {**begun, "ends": plain, "asked": asked_s, "kafka": shown, "withheld": withheld}

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
            total += sum(left_in(topic.start, done, ends).values())
        return total
