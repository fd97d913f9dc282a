"""Where the time of a job goes: shares of operators, and traffic of topics."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freshet.operators.flink.task_clock import TaskClock
from freshet.operators.telemetry.load import Window, layer_loads, read_loads, source_of
from freshet.operators.telemetry.profile import Profile
from freshet.operators.telemetry.traffic import Traffic


def test_a_window_covers_the_last_seconds() -> None:
    window = Window(span_s=2.0)
    assert window.rates(10.0, {"busy_s": 5.0}) == {"busy_s": 0.0}, "nothing is known of the time before"
    assert window.rates(10.5, {"busy_s": 5.25}) == {"busy_s": 0.5}
    for at in (11.0, 11.5, 12.0, 12.5, 13.0):
        found = window.rates(at, {"busy_s": 5.25})
    assert found == {"busy_s": 0.0}, "the busy half second is over two seconds ago"
    assert window.rates(60.0, {"busy_s": 5.75, "messages": 3})["messages"] == 0.0, "a sum that is new has no rate yet"
    assert window.rates(70.0, {"busy_s": 0.0}) == {"busy_s": 0.0}, "and none is negative"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def profile_of(out: Path, operator: str, subtask: int, clock: list[float]) -> Profile:
    profile = Profile(out, operator, subtask)
    profile.loads.clock_s = lambda: clock[0]
    profile.write()
    return profile


def test_loads_of_a_job_are_in_the_order_of_the_flow_and_over_all_subtasks(tmp_path: Path, clock: list[float]) -> None:
    read, sent = Traffic(), Traffic()
    sink = profile_of(tmp_path, "sink", 0, clock)
    sink.loads.places["outlet"] = lambda: {"busy_s": sink.emit_s, **sent.sums()}
    storages = [profile_of(tmp_path, "storage1", k, clock) for k in range(2)]
    parser = profile_of(tmp_path, "parser-0", 0, clock)
    parser.loads.places[source_of("parser-0")] = lambda: {"busy_s": 0.0, **read.sums()}
    for one in (parser, sink):
        one.write()
    clock[0] += 2.0
    storages[0].stage, storages[1].stage, storages[1].state, sink.emit = 0.5, 1.0, 0.5, 0.2
    parser.emit = 1.0
    read.add(300, 9000)
    sent.add(40, 500)
    for one in (parser, *storages, sink):
        one.write()
    clock[0] += 2.0
    found = read_loads(tmp_path, running=True)
    assert list(found) == ["source-0", "parser-0", "storage1", "sink", "outlet"]
    both = found["storage1"]
    assert (both["subtasks"], both["busy"], both["busy_by_subtask"]) == (2, 0.5, [0.25, 0.75])
    assert both["busy_mean"] == 0.25, "two seconds later nothing more was counted"
    assert (found["parser-0"]["busy"], found["parser-0"]["blocked"]) == (0.0, 0.5)
    assert (found["source-0"]["messages_per_s"], found["source-0"]["bytes_per_s"]) == (150.0, 4500.0)
    assert (found["outlet"]["busy"], found["outlet"]["messages"], found["outlet"]["bytes"]) == (0.1, 40, 500)
    sink.loads.end()
    sink.write()
    assert read_loads(tmp_path, running=True)["outlet"]["busy"] == 0, "a subtask that has ended, of a job that goes on"
    ended = read_loads(tmp_path, running=False)
    assert (ended["storage1"]["busy"], ended["storage1"]["busy_mean"]) == (None, 0.5), "until its last status"


def test_the_load_of_a_layer_is_that_of_its_busier_thread() -> None:
    def load(*shares: float) -> dict[str, Any]:
        many = {"busy_by_subtask": list(shares)} if len(shares) > 1 else {}
        return {"subtasks": len(shares), "busy": sum(shares) / len(shares), "busy_mean": 0.1, **many}

    loads = {"parser": load(0.9), "storage0": load(0.8), "storage1": load(0.25), "sink": load(0.5)}
    loads |= {"storage2": load(0.5, 0.75), "tail2": load(0.75, 0.25), "storage11": {**load(0.5), "busy": None}}
    assert layer_loads(loads) == [
        {"layer": 1, "processes": 1, "busy": 0.25, "busy_mean": 0.1},
        {"layer": 2, "processes": 2, "busy": 0.625, "busy_mean": 0.1, "busy_by_process": [0.75, 0.75]},
        {"layer": 11, "processes": 1, "busy": None, "busy_mean": 0.1},
    ]


def test_a_profile_of_an_earlier_version_has_no_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "status").mkdir()
    (tmp_path / "status" / "profile-sink-0.json").write_text('{"operator":"sink","subtask":0}')
    assert read_loads(tmp_path, running=False) == {}


def test_the_time_of_java_in_a_task_is_what_neither_waits_nor_python_take(tmp_path: Path, clock: list[float]) -> None:
    waits = {"idle": 0, "back-pressured": 0}
    gauges = {name: SimpleNamespace(getAccumulatedCount=lambda name=name: waits[name]) for name in waits}
    task = SimpleNamespace(
        getIdleTimeMsPerSecond=lambda: gauges["idle"],
        getSoftBackPressuredTimePerSecond=lambda: gauges["back-pressured"],
    )
    metrics = SimpleNamespace(getTaskIOMetricGroup=lambda: task)
    context: Any = SimpleNamespace(_runtime_context=SimpleNamespace(getMetricGroup=lambda: metrics))
    profile, now = Profile(tmp_path, "parser-0", 0), [50.0]
    of_task = TaskClock(context, profile, lambda: now[0])
    of_task.look()
    assert of_task.beside_s == 0.0
    now[0] += 10.0
    waits |= {"idle": 3000, "back-pressured": 1500}
    profile.stage, profile.emit = 2.0, 1.0
    of_task.look()
    assert of_task.beside_s == 2.5
    now[0] += 0.1
    of_task.look()
    assert of_task.beside_s == 2.5, "at most twice a second"
