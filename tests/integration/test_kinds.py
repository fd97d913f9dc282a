"""A job with kinds on Flink: a TaskManager is killed, then all of it, and it goes on as if nothing had been.

Each returned kind has a topic, in which no row comes twice.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from freshet.gnn.model import save_model
from freshet.job.dev.broker import Broker, start_broker
from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import progress
from tests.support.graphs.kind_streams import random_records
from tests.support.graphs.kinds import KINDS, kinds_model, sage_everywhere
from tests.support.kafka.topics import broker_folder, require_jars
from tests.support.runs.jobs import Input, Job, assert_as_uninterrupted, read_log
from tests.support.runs.judge import Outcome, check_topic

pytestmark = pytest.mark.slow

SHAPE = ("--parts", 3, "--parallelism", 2, "--epoch-events", 40, "--epoch-ms", 0, "--checkpoint-interval", "500ms")
SLOW = {"slow": {"parser": 400}, "chunk": 100, "lull": 8}  # a stream that lasts
EVENTS = 1_600
RETURNED = ("item", "user")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    require_jars()
    with broker_folder(tmp_path) as data, start_broker(data, sasl=False, tls=False) as started:
        yield started


@pytest.fixture
def stream(tmp_path: Path) -> Input:
    layers = [sage_everywhere(KINDS, 6, aggr="max"), sage_everywhere(dict.fromkeys(KINDS, 6), 4)]
    model = kinds_model(layers, RETURNED)
    assert model.features.kinds is not None
    save_model(model, tmp_path / "model")
    records = random_records(model.features.kinds, 7, EVENTS)
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(map(orjson.dumps, records)))
    return Input(tmp_path / "model", tmp_path / "events.jsonl", EVENTS)


def test_a_job_with_kinds_survives_the_death_of_a_task_manager_and_its_own(
    job: Callable[[Input], Job], stream: Input, broker: Broker
) -> None:
    one = job(stream)
    topics = ("--embeddings-to", f"kafka://{broker.address}/rows", "--delivery", "exactly-once")
    one.start(*SHAPE, *topics, faults=SLOW)
    one.until(lambda: progress(one.out)["epoch"] >= 5)
    os.kill(read_run(one.out)["pids"]["taskmanagers"][0], signal.SIGKILL)
    reached = progress(one.out)["epoch"] + 5
    one.until_epoch(reached)
    one.kill()
    one.done("--resume", "latest", "--parallelism", 1)
    one.check()
    assert_as_uninterrupted(one)
    for kind in RETURNED:
        outcome = Outcome()
        check_topic(broker, read_log(one.out, kind), "exactly-once", outcome, print, f"rows.{kind}")
        assert outcome.good, (kind, outcome)
