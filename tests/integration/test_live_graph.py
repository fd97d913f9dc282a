"""`freshet.LiveGraph` of a Flink job that reads Kafka: beside it, through a kill and a resume, and after a loss."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from kafka import KafkaAdminClient, TopicPartition

from freshet import InputError, LiveGraph, NotYetError
from freshet.gnn.model import save_model
from freshet.job.dev.broker import Broker
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.produce import produce
from freshet.job.lifecycle.job_state import at_work
from freshet.job.lifecycle.summary import progress
from tests.support.graphs.live_truth import Record, Truth, as_event, assert_same_data, content_of, records_of
from tests.support.kafka.topics import read_topic
from tests.support.runs.jobs import DEADLINE_S, ROOT, Job, TopicInput
from tests.unit.job.live.test_live_graph import TEXTS, bonds_of
from tests.unit.job.results.test_kinds_jobs import kinds_of, with_attributes

pytestmark = pytest.mark.slow

EVENTS, PER_MESSAGE, TTL_S = 6_000, 70, 120
KEYS = (1, 2, 3)
OPTIONS = (
    *("--epoch-events", 100, "--epoch-ms", 0, "--checkpoint-interval", "500ms", "--parts", 2),
    *("--edge-ttl", f"{TTL_S}s", "--ts-jump", "30d", "--edge-key", "key"),
)
ATTR = [True, True, False, False]


@dataclass
class Streamed:
    """A job on a topic of messages of many events, and where its events come from."""

    job: Job
    broker: Broker
    topic: KafkaAddress
    records: dict[bytes, Record]  # by their lines, each of which is there once

    def truth(self) -> Truth:
        kinds = kinds_of(with_attributes())
        return Truth(dict(zip(kinds.names, kinds.widths, strict=True)), bonds_of(kinds), 1000 * TTL_S)

    def contents(self, epochs: set[int]) -> dict[int, Any]:
        """Return the graph after these epochs, whose events in every partition `epochs/` counts."""
        lanes = {
            partition: [self.records[line] for message in messages for line in message.value.split(b"\n") if line]
            for partition, messages in read_topic(self.broker, self.topic.topic).items()
        }
        found, truth, at = dict[int, Any](), self.truth(), dict.fromkeys(lanes, 0)
        tables = [pq.read_table(file) for file in sorted((self.job.out / "epochs").glob("[!._]*.parquet"))]
        rows = sorted(
            (row["epoch"], row["partition"] or 0, row["events"]) for table in tables for row in table.to_pylist()
        )
        for epoch in range(max(epochs) + 1):
            events = list[Record]()
            for _, partition, count in [row for row in rows if row[0] == epoch]:
                events += lanes[partition][at[partition] : at[partition] + count]
                at[partition] += count
            truth.epoch(events)
            if epoch in epochs:
                x, edges = truth.content(ATTR)
                found[epoch] = dict(x), edges
        return found


@pytest.fixture
def streamed(broker: Broker, tmp_path: Path) -> Iterator[Streamed]:
    model = with_attributes()
    save_model(model, tmp_path / "model")
    truth = Streamed(None, broker, None, {}).truth()  # type: ignore[arg-type]
    records = records_of(random.Random(2), truth, EVENTS, TEXTS, KEYS, step=100)
    lines = dict[bytes, Record]()
    for number, one in enumerate(records):  # a field that nobody reads makes each line another
        lines[orjson.dumps({**as_event(truth, one), "number": number})] = one
    every = list(lines)
    for name, some in (("first", every[: EVENTS // 2]), ("second", every[EVENTS // 2 :])):
        (tmp_path / f"{name}.jsonl").write_bytes(b"\n".join(some))
    topic = KafkaAddress.parse(f"kafka://{broker.address}/live-graph")
    given = TopicInput(tmp_path / "model", tmp_path / "first.jsonl", EVENTS, topic=str(topic))
    job = Job(given, tmp_path / "O")
    yield Streamed(job, broker, topic, lines)
    job.end()


def held(streamed: Streamed, live: LiveGraph, epochs: set[int]) -> None:
    """The graph at these epochs, in any order, is the right one."""
    expected, truth = streamed.contents(epochs), streamed.truth()
    for epoch in random.Random(1).sample(sorted(epochs), len(epochs)):
        data = live.at(epoch, timeout=0.0)
        assert content_of(data, truth) == expected[epoch], f"epoch {epoch}"
        assert {place.rpartition("/")[2].partition(":")[0] for place in data["positions"]} <= {"live-graph"}


@pytest.mark.long
def test_it_follows_a_job_through_a_kill_and_a_resume(streamed: Streamed, tmp_path: Path) -> None:
    job, folder = streamed.job, tmp_path
    produce(events=[str(folder / "first.jsonl")], to=streamed.topic, partitions=3, batch=PER_MESSAGE)
    job.start(*OPTIONS)
    with pytest.raises(InputError, match="no job in it"):
        LiveGraph(folder / "nothing")
    job.until(lambda: progress(job.out)["events"] >= EVENTS // 2 - 100)
    base = LiveGraph(job.out)
    job.until(lambda: base.newest() >= 20)
    newest = base.newest()
    held(streamed, base, {0, newest, *random.Random(3).sample(range(1, newest), 12)})
    with pytest.raises(NotYetError, match="not within 0"):
        base.at(10_000, timeout=0.5)

    # A savepoint of the job that runs, which ends within messages.
    began = progress(job.out)["epoch"]
    latest = LiveGraph(job.out, begin="latest")
    assert began <= latest.begin_epoch
    assert not (job.out / "checkpoints" / "exports").exists()
    assert_same_data(latest.at(latest.begin_epoch), base.at(latest.begin_epoch, timeout=60.0))
    latest.save(folder / "S")

    job.kill()
    with pytest.raises(NotYetError, match="nobody works on the job"):
        base.at(base.newest() + 1, timeout=DEADLINE_S)
    produce(events=[str(folder / "second.jsonl")], to=streamed.topic, batch=PER_MESSAGE)
    job.start(*OPTIONS, "--resume", "latest")
    job.until(lambda: at_work(job.out) is not None)
    data = base.at(newest + 5, timeout=DEADLINE_S)
    assert data["epoch"] == newest + 5
    job.until(lambda: base.newest() >= EVENTS // 100 - 2)
    last = base.newest()
    saved = LiveGraph(job.out, begin=folder / "S")
    some = {last, *random.Random(4).sample(range(latest.begin_epoch + 1, last), 6)}
    for live in (base, latest, saved):
        held(streamed, live, some)
    with pytest.raises(InputError, match="is before epoch"):
        saved.at(saved.begin_epoch - 1)

    # Records that are gone are none that a reader from the begin could do without.
    admin = KafkaAdminClient(bootstrap_servers=streamed.broker.address)
    admin.delete_records({TopicPartition(streamed.topic.topic, 0): 2})
    admin.close()
    with pytest.raises(InputError, match="the messages between are gone"):
        LiveGraph(job.out).at(last)
    assert saved.at(last)["epoch"] == last
    assert job.stop().code == 0
    job.wait()
    with LiveGraph(job.out, begin="latest") as stopped:
        assert stopped.begin_epoch >= last
        assert_same_data(stopped.at(stopped.begin_epoch), saved.at(stopped.begin_epoch))
    for live in (base, latest, saved):
        live.close()


SAVES = """
import sys
from freshet import LiveGraph
live = LiveGraph(sys.argv[1])
for epoch in range(1, 1000):
    live.arrays(epoch % 20 + 1)
    live.save(sys.argv[2])
    print(live.epoch, flush=True)
"""


def test_a_reader_that_is_killed_at_any_moment_goes_on_from_its_last_save(tmp_path: Path) -> None:
    from tests.unit.job.results.test_export import Given

    given = Given(tmp_path)
    out, rng = given.run("O", parts=2), random.Random(5)
    with LiveGraph(out) as base:
        for _ in range(4):
            command = [sys.executable, "-c", SAVES, str(out), str(tmp_path / "S")]
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline()
                time.sleep(rng.uniform(0.0, 0.2))
                process.send_signal(signal.SIGKILL)
            with LiveGraph(out, begin=tmp_path / "S") as live:
                assert_same_data(live.at(live.begin_epoch), base.at(live.begin_epoch))
                assert_same_data(live.at(25), base.at(25))
