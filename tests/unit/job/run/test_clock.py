"""Intervals go by a clock that nobody sets back: markers come, and epochs close, whatever the wall clock does."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from freshet.gnn.model import save_model
from freshet.job.local import runtime as local_runtime
from freshet.job.local.runtime import LocalRuntime
from freshet.job.options.config_file import load_run_config
from freshet.job.run.new_job import prepare
from freshet.operators.flink import partitioner_shell
from freshet.operators.flink import shell as flink_shell
from freshet.operators.flink.partitioner_shell import PartitionerShell
from tests.support.graphs.models import IN_WIDTH, conv, make_model


@pytest.fixture
def set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall clock that goes back by a minute each time it is asked."""
    minutes = itertools.count(30_000_000, -1)
    clock = SimpleNamespace(**vars(time) | {"time": lambda: 60.0 * next(minutes)})
    for module in (local_runtime, flink_shell, partitioner_shell):
        monkeypatch.setattr(module, "time", clock, raising=False)


def test_markers_come_in_the_local_runtime(tmp_path: Path, set_back: None) -> None:
    save_model(make_model(1, [conv("graph_conv", IN_WIDTH, 3)]), tmp_path / "model")
    lines = [orjson.dumps({"op": "add_edge", "src": n, "dst": n + 1}) for n in range(4000)]
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(lines))
    options = {"model": tmp_path / "model", "events": [str(tmp_path / "events.jsonl")], "out": tmp_path / "out"}
    options |= {"runtime": "local", "epoch_events": 4, "epoch_ms": 0, "checkpoint_interval": "1ms"}
    job = prepare(load_run_config(options), tmp_path / "out")
    marked: list[int] = []
    runtime = LocalRuntime(job.settings, len(job.sources.chunks), tmp_path / "state")
    make_stage = local_runtime.make_stage

    def watched(config: dict[str, Any], operator: str, part: int) -> Any:
        stage = make_stage(config, operator, part)
        if operator == "partitioner":
            mark = stage.sweeper.mark
            stage.sweeper.mark = lambda epoch: marked.append(epoch) or mark(epoch)
        return stage

    local_runtime.make_stage = watched
    try:
        assert runtime.run()
    finally:
        local_runtime.make_stage = make_stage
    assert len(marked) >= 3, f"markers at {marked}, in 1,000 epochs"


def test_the_partitioner_on_flink_is_told_the_time_that_passes(set_back: None) -> None:
    told: list[float] = []

    def stage_call(*arguments: Any) -> SimpleNamespace:
        told.append(arguments[-1])
        return SimpleNamespace(messages=[], puts=[], deletes=[])

    shell = PartitionerShell.__new__(PartitionerShell)
    shell.epoch_ms, shell._worker = 20, object()
    shell._profile = SimpleNamespace(bytes_in=0)
    shell._mailbox = SimpleNamespace(taken=lambda value: (value, len(value)), close=lambda: None)
    shell._metrics = SimpleNamespace(update=lambda: None)
    shell._stage = SimpleNamespace(receive=stage_call, tick=stage_call, is_due=lambda now_ms: True, holds_back=False)
    shell._act = lambda fn, *arguments: fn(*arguments)
    shell._apply = lambda outcome: iter(())
    shell._letters = lambda stage: iter(())
    timers = SimpleNamespace(register_processing_time_timer=lambda at: None)
    context = SimpleNamespace(timer_service=lambda: timers)
    for _ in range(3):
        list(shell.process_element(b"block", context))
        list(shell.on_timer(1, context))
    shell._worker = None  # there is nothing to close
    assert len(told) == 6
    assert told == sorted(told)
    assert told[-1] - told[0] < 60_000
