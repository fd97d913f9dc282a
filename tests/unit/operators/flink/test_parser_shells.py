"""The shell of a topic's Parser, driven as Flink drives it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freshet.operators.dataflow import PARTITIONER
from freshet.operators.flink.neighbours import Mailbox, TaskAddress, is_token
from freshet.operators.flink.parser_shells import MessageParserShell
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.messages import TopicMessage
from freshet.operators.parser.stages import MessageStage
from freshet.operators.telemetry.load import read_loads
from freshet.operators.telemetry.positions import read_positions
from freshet.operators.telemetry.profile import read_profiles
from freshet.partitioner.events import Events
from freshet.schema import Features
from tests.support.kafka.batches import batch_of

ORIGIN = Origin(0, "kafka://localhost:9092/events")


def make(config: dict[str, Any], operator: str, part: int) -> MessageStage:
    """The stage's factory."""
    return MessageStage(Parser(Features(1), "int"), ORIGIN, None, 1000, Path(config["out"]), part)


class Metrics(dict):  # type: ignore[type-arg]
    """Flink's metric group: the values by name."""

    def add_group(self, name: str) -> Metrics:
        assert name == "freshet"
        return self

    def distribution(self, name: str) -> Any:
        assert name not in self, "registered once"
        self[name] = None
        return SimpleNamespace(update=lambda value: self.update({name: value}))

    def meter(self, name: str, time_span_in_seconds: int) -> Any:
        assert name not in self, "registered once"
        self[name] = 0
        return SimpleNamespace(mark_event=lambda value: self.update({name: self[name] + value}))


class Attempt:
    """A shell, and what it has sent."""

    def __init__(self, out: Path, subtask: int = 0) -> None:
        self.events: list[tuple[int, int, Any]] = []
        task = SimpleNamespace(getIndexOfThisSubtask=lambda: subtask, getAttemptNumber=lambda: 0)
        self.metrics = Metrics()
        job = SimpleNamespace(getJobId=lambda: SimpleNamespace(toHexString=lambda: "f00d"))
        waits = SimpleNamespace(getAccumulatedCount=lambda: 0)
        of_task = SimpleNamespace(getIdleTimeMsPerSecond=lambda: waits, getSoftBackPressuredTimePerSecond=lambda: waits)
        group = SimpleNamespace(getTaskIOMetricGroup=lambda: of_task)
        java = SimpleNamespace(getTaskInfo=lambda: task, getJobInfo=lambda: job, getMetricGroup=lambda: group)
        runtime = SimpleNamespace(get_metrics_group=lambda: self.metrics, _runtime_context=java)
        self.ctx: Any = SimpleNamespace()
        config = {"factory": f"{__name__}:make", "stage": {"out": str(out)}, "out": str(out), "logs": str(out)}
        self.shell = MessageParserShell("parser-0", json.dumps(config))
        self.shell.open(runtime)  # type: ignore[arg-type]

    def _take(self, elements: Any) -> None:
        for element in elements:
            events = Events.decode(element[1])
            offsets = (events.position - 1).tolist()
            self.events += zip(events.partition.tolist(), offsets, events.a.to_list(), strict=True)

    def batch(self, *messages: tuple[int, int, bytes | None]) -> None:
        self._take(self.shell.process_element(batch_of(TopicMessage(*message) for message in messages), self.ctx))


@pytest.fixture
def attempt(tmp_path: Path) -> Any:
    started = Attempt(tmp_path)
    yield started
    started.shell.close()


def value(vertex: int) -> bytes:
    return b'{"op":"del_vertex","id":%d}' % vertex


def test_a_batch_is_parsed_at_once(attempt: Attempt) -> None:
    attempt.batch((3, 7, value(1)), (2, 4, value(2)), (3, 8, None), (3, 9, value(3)))
    assert attempt.events == [(3, 7, 1), (3, 9, 3), (2, 4, 2)]
    attempt.batch((2, 5, value(4)))
    assert attempt.events[-1] == (2, 5, 4)
    assert attempt.metrics["bytes_in"] == 0, "what comes from another task, and so in flight, only"


def test_the_status_goes_on_being_written_in_a_pause(
    attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.time()
    with monkeypatch.context() as still:
        still.setattr(time, "time", lambda: now_s)
        for offset in range(3):
            attempt.batch((0, offset, value(offset)))
        assert read_positions(tmp_path)[ORIGIN.name] == {0: 1}, "at most twice a second"
    deadline = time.monotonic() + 60
    while read_positions(tmp_path)[ORIGIN.name] != {0: 3}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(attempt.events) == 3


def test_messages_of_the_topic_are_counted(attempt: Attempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = MessageStage.parse

    def slowly(stage: MessageStage, value: bytes) -> Any:
        time.sleep(0.1)  # a share of the time that is not rounded to nothing, however long the attempt takes
        return parse(stage, value)

    monkeypatch.setattr(MessageStage, "parse", slowly)
    attempt.batch((3, 7, value(1)), (2, 4, value(2)), (3, 8, None))
    assert (attempt.metrics["source_messages_per_s"], attempt.metrics["source_bytes_per_s"]) == (3, 2 * len(value(1)))
    assert attempt.metrics["busy_ms_per_s"] >= 0
    attempt.shell.close()
    found = read_loads(tmp_path, running=False)
    assert list(found) == ["source-0", "parser-0"]
    assert (found["source-0"]["messages"], found["source-0"]["bytes"]) == (3, 2 * len(value(1)))
    assert 0 < found["parser-0"]["busy_mean"] <= 1


def test_each_subtask_is_a_task_of_the_parser(tmp_path: Path) -> None:
    """And tells in files of its own what it has done."""
    for subtask in (0, 2):
        attempt = Attempt(tmp_path, subtask)
        attempt.batch((subtask, 4, value(1)))
        attempt.shell.close()
    assert read_positions(tmp_path)[ORIGIN.name] == {0: 5, 2: 5}
    profile = read_profiles(tmp_path)["parser-0"]
    assert (profile["subtasks"], profile["acts"]) == (2, 2)


def test_a_shell_that_has_ended_tells_of_nothing_that_waits(tmp_path: Path) -> None:
    receiver = Mailbox([TaskAddress("f00d", PARTITIONER, 0)])
    attempt = Attempt(tmp_path)
    sent = list(attempt.shell.process_element(batch_of([TopicMessage(0, 4, value(1))]), attempt.ctx))
    attempt.shell.close()
    level = read_profiles(tmp_path)["parser-0"]["levels"]["to_partitioner_bytes"]
    assert (level["now"], level["peak"]) == (0, receiver.taken(sent[0][1])[1]), "it is the receiver's to take"
    assert is_token(sent[0][1])
    receiver.close()
