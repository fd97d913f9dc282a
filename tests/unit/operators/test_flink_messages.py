"""The shell of a topic's Parser, driven as Flink drives it: a checkpoint between any two calls loses nothing."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyflink.common import Row

from operators import flink_messages
from operators.flink_messages import MessageParserShell
from operators.flink_shells import MAX_TIMESTAMP
from operators.message_parsing import MessageStage, TopicMessage
from operators.parser import Origin, Parser
from partitioner.events import Events

ORIGIN = Origin(0, "kafka://localhost:9092/events")


def make(config: dict[str, Any], operator: str, part: int) -> MessageStage:
    """The stage's factory."""
    return MessageStage(Parser(1, "int"), ORIGIN, None, 1000, Path(config["out"]))


class ListState(list):  # type: ignore[type-arg]
    """Flink's list state, by the methods that differ."""

    def get(self) -> list[bytes]:
        return list(self)

    def add(self, value: bytes) -> None:
        self.append(value)


class Metrics(dict):  # type: ignore[type-arg]
    """Flink's metric group: the values by name."""

    def add_group(self, name: str) -> Metrics:
        assert name == "freshet"
        return self

    def distribution(self, name: str) -> Any:
        assert name not in self, "registered once"
        self[name] = None
        return SimpleNamespace(update=lambda value: self.update({name: value}))


class Attempt:
    """A shell from a checkpoint on: its list state and its timers."""

    def __init__(self, out: Path, kept: list[bytes]) -> None:
        self.kept = ListState(kept)
        self.timers: set[int] = set()
        self.events: list[tuple[int, int, Any]] = []
        task = SimpleNamespace(getIndexOfThisSubtask=lambda: 0)
        self.metrics = Metrics()
        runtime = SimpleNamespace(
            get_list_state=lambda descriptor: self.kept,
            get_metrics_group=lambda: self.metrics,
            _runtime_context=SimpleNamespace(getTaskInfo=lambda: task),
        )
        service = SimpleNamespace(
            register_processing_time_timer=self.timers.add, register_event_time_timer=lambda at: None
        )
        self.ctx: Any = SimpleNamespace(timer_service=lambda: service)
        stage = {"out": str(out)}
        config = {"factory": f"{__name__}:make", "stage": stage, "out": str(out), "logs": str(out)}
        self.shell = MessageParserShell("parser-0", json.dumps(config))
        self.shell.open(runtime)  # type: ignore[arg-type]

    def take(self, elements: Any) -> None:
        for element in elements:
            events = Events.decode(element[1])
            offsets = (events.position - 1).tolist()
            self.events += zip(events.partition.tolist(), offsets, events.a.to_list(), strict=True)

    def message(self, *fields: Any) -> None:
        self.take(self.shell.process_element(Row(*fields), self.ctx))

    def fire(self) -> None:
        """The timers that are due."""
        for at in sorted(at for at in self.timers if at <= time.time() * 1e3):
            self.timers.discard(at)
            self.take(self.shell.on_timer(at, self.ctx))

    def finish(self) -> None:
        self.take(self.shell.on_timer(MAX_TIMESTAMP, self.ctx))


@pytest.fixture
def attempts(tmp_path: Path) -> Any:
    started: list[Attempt] = []

    def begin(kept: list[bytes]) -> Attempt:
        started.append(Attempt(tmp_path, kept))
        return started[-1]

    yield begin
    for attempt in started:
        attempt.shell.close()


def value(vertex: int) -> bytes:
    return b'{"op":"del_vertex","id":%d}' % vertex


def test_the_first_message_after_a_pause_is_parsed_at_once(attempts: Any) -> None:
    attempt = attempts([])
    attempt.message(3, 7, value(1))
    assert attempt.events == [(3, 7, 1)]
    assert not attempt.kept
    attempt.message(3, 8, value(2))
    assert len(attempt.events) == 1, "the next one waits, in keyed state"
    assert [TopicMessage.decode(data) for data in attempt.kept] == [TopicMessage(3, 8, value(2))]
    deadline = time.monotonic() + 10
    while len(attempt.events) == 1 and time.monotonic() < deadline:
        attempt.fire()
    assert attempt.events[1] == (3, 8, 2)
    assert not attempt.kept


def test_what_waits_is_parsed_when_it_is_enough(attempts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flink_messages, "LINGER_MS", 60_000)
    monkeypatch.setattr(flink_messages, "BATCH_MESSAGES", 5)
    attempt = attempts([])
    for offset in range(6):
        attempt.message(0, offset, value(offset))
    assert [offset for _, offset, _ in attempt.events] == [0, 1, 2, 3, 4, 5]
    attempt.message(0, 6, b" " * flink_messages.BATCH_BYTES)
    assert not attempt.kept, "as much as a batch by itself"


def test_the_end_of_a_topic_leaves_nothing_behind(attempts: Any) -> None:
    attempt = attempts([])
    for offset in range(3):
        attempt.message(0, offset, value(offset))
    attempt.finish()
    assert [vertex for _, _, vertex in attempt.events] == [0, 1, 2]
    assert not attempt.kept


def test_messages_that_waited_at_a_checkpoint_come_first_after_it_even_if_no_other_comes(attempts: Any) -> None:
    attempt = attempts([TopicMessage(1, 4, value(8)).encode(), TopicMessage(1, 5, None).encode()])
    attempt.take(attempt.shell.on_timer(0, attempt.ctx))
    assert attempt.events == [(1, 4, 8)]
    assert not attempt.kept


@pytest.mark.parametrize("seed", range(10))
def test_a_checkpoint_between_any_two_calls_loses_nothing(
    attempts: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was handed on before the checkpoint and what comes after the restore is the input, in order, once."""
    rng = random.Random(seed)
    monkeypatch.setattr(flink_messages, "BATCH_MESSAGES", 7)
    read, waited = 0, 0
    journal: list[Any] = []  # what the Partitioner had at the checkpoint
    attempt = attempts([])
    while read < 200:
        for _ in range(rng.randint(1, 12)):
            attempt.message(read % 2, read // 2, value(read))
            read += 1
            if rng.random() < 0.1:
                attempt.fire()
        if rng.random() < 0.3:  # a checkpoint, some messages more, and a crash
            kept, at, journal = list(attempt.kept), read, journal + attempt.events
            waited += len(kept)
            for more in range(rng.randint(0, 5)):
                attempt.message((read + more) % 2, (read + more) // 2, value(read + more))
            attempt, read = attempts(kept), at
    attempt.finish()
    journal += attempt.events
    assert waited > 0
    for partition in (0, 1):
        found = [vertex for place, _, vertex in journal if place == partition]
        assert found == list(range(partition, read, 2)), f"seed {seed}"


def test_what_waits_is_told_in_the_profile_and_to_flink(attempts: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(flink_messages, "LINGER_MS", 60_000)
    attempt = attempts([])
    attempt.message(0, 0, value(0))  # parsed at once, and the metrics are due
    sent = attempt.metrics["bytes_out"]
    assert sent == 0, "what is set before the blocks have gone"
    assert attempt.metrics["batch_bytes"] == 0
    assert attempt.metrics["batch_bytes_peak"] == len(value(0))
    assert attempt.metrics["batch_bytes_bound"] == flink_messages.BATCH_BYTES + len(value(0))
    assert "outbox_bytes_bound" not in attempt.metrics, "it has none"
    for offset in range(1, 4):
        attempt.message(0, offset, value(offset))
    deadline = time.monotonic() + 20
    told: dict[str, Any] = {}
    while told.get("levels", {}).get("batch_bytes", {}).get("now") != 3 * len(value(1)):
        assert time.monotonic() < deadline, "the worker tells while nothing comes"
        time.sleep(0.05)
        told = json.loads((tmp_path / "status" / "profile-parser-0-0.json").read_bytes())
    assert told["bytes_out"] > 0
    again = attempts(list(attempt.kept))
    again.message(0, 4, value(4))
    assert again.metrics["batch_bytes_peak"] == 4 * len(value(1)), "those of the state count again"
