"""A job with kinds on Flink: a TaskManager is killed, then all of it, and it goes on as if nothing had been."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from freshet.gnn.model import save_model
from freshet.job.folder.run_file import read_run
from freshet.job.run.summary import progress
from tests.support.graphs.kind_streams import random_records
from tests.support.graphs.kinds import KINDS, kinds_model, sage_everywhere
from tests.support.runs.jobs import Input, Job, assert_as_uninterrupted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SHAPE = ("--parts", 3, "--parallelism", 2, "--epoch-events", 40, "--epoch-ms", 0, "--checkpoint-interval", "500ms")
SLOW = {"slow": {"parser": 400}, "chunk": 100}  # a stream that lasts
EVENTS = 1_600


@pytest.fixture
def stream(tmp_path: Path) -> Input:
    layers = [sage_everywhere(KINDS, 6, aggr="max"), sage_everywhere(dict.fromkeys(KINDS, 6), 4)]
    model = kinds_model(layers, ["item"])
    assert model.features.kinds is not None
    save_model(model, tmp_path / "model")
    records = random_records(model.features.kinds, 7, EVENTS)
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(map(orjson.dumps, records)))
    return Input(tmp_path / "model", tmp_path / "events.jsonl", EVENTS)


def test_a_job_with_kinds_survives_the_death_of_a_task_manager_and_its_own(
    job: Callable[[Input], Job], stream: Input
) -> None:
    one = job(stream)
    one.start(*SHAPE, faults=SLOW)
    one.until(lambda: progress(one.out)["epoch"] >= 5)
    os.kill(read_run(one.out)["pids"]["taskmanagers"][0], signal.SIGKILL)
    reached = progress(one.out)["epoch"] + 5
    one.until_epoch(reached)
    one.kill()
    one.done("--resume", "latest")
    one.check()
    assert_as_uninterrupted(one)
