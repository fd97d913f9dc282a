"""`freshet export` of real Flink jobs: stopped, killed and finished ones, from files and from Kafka."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest

from freshet.job.dev.broker import start_broker
from freshet.job.flink.checkpoints import complete_states
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.produce import produce
from freshet.job.lifecycle.summary import progress
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.snapshot.reader import open_snapshot
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features
from tests.support.graphs.models import IN_WIDTH
from tests.support.kafka.topics import broker_folder, require_jars
from tests.support.runs.jobs import DEADLINE_S, FRESHET, ROOT, Ended, Input, Job, TopicInput, make_input
from tests.unit.job.results.test_behind_an_export import positions, served

pytestmark = pytest.mark.slow

EVENTS = 6_000
SHAPE = ("--hybrid-threshold", 5, "--checkpoint-interval", "500ms", "--epoch-events", 100)
# So slow a stream that one can stop it on the way, and so small chunks that a barrier passes soon.
SLOW = {"slow": {"parser": 500}, "chunk": 100, "lull": 30}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Input:
    """A stream that begins with a snapshot."""
    return make_input(tmp_path_factory.mktemp("stream"), EVENTS, snapshot=True, seed=3)


def export(snapshot: Path, job: Path, *options: object) -> Ended:
    """`freshet export`."""
    command = [str(FRESHET), "export", "--out", str(snapshot), *map(str, options), str(job)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return Ended(done.returncode, orjson.loads(done.stdout) if done.stdout else {}, done.stderr)


def exported(snapshot: Path, job: Path, *options: object) -> dict[str, Any]:
    """What it says; nothing else may lie in the folder."""
    ended = export(snapshot, job, *options)
    assert ended.code == 0, ended.errors
    found = {item.name for item in snapshot.iterdir()}
    assert found == {"vertices.parquet", "edges.parquet", "snapshot.json"}
    return ended.result


def after(given: Input, events: int) -> tuple[dict[int, bytes], dict[tuple[int, int], float]]:
    """The truth after so many events: features, and weights."""
    graph = ReferenceGraph(Features(IN_WIDTH))
    if given.snapshot:
        for block in open_snapshot(given.snapshot, Features(IN_WIDTH)).blocks():
            graph.apply(block)
    lines = given.events.read_bytes().splitlines(keepends=True)[:events]
    graph.apply(Parser(Features(IN_WIDTH), "int").parse_jsonl(b"".join(lines), Origin())[0])
    found = graph.arrays()
    ends = zip(found.src.tolist(), found.dst.tolist(), found.values.weight.tolist(), strict=True)
    edges = {(found.ids[src], found.ids[dst]): weight for src, dst, weight in ends}
    return dict(zip(found.ids, map(np.ndarray.tobytes, found.x), strict=True)), edges  # type: ignore[arg-type,return-value]


def read(snapshot: Path) -> tuple[dict[int, bytes], dict[tuple[int, int], float]]:
    vertices, edges = pq.read_table(snapshot / "vertices.parquet"), pq.read_table(snapshot / "edges.parquet")
    x = vertices["x"].combine_chunks().flatten().to_numpy().reshape(vertices.num_rows, -1)
    ends = zip(edges["src"].to_pylist(), edges["dst"].to_pylist(), strict=True)
    assert vertices.num_rows > 100
    return (
        dict(zip(vertices["id"].to_pylist(), map(np.ndarray.tobytes, x), strict=True)),
        dict(zip(ends, edges["weight"].to_pylist(), strict=True)),
    )


@pytest.mark.long
def test_stopped_on_the_way_it_goes_on_in_another_number_of_parts(
    stream: Input, tmp_path: Path, jobs: list[Job]
) -> None:
    job = Job(stream, tmp_path / "O")
    jobs.append(job)
    job.start(*SHAPE, "--parts", 2, "--parallelism", 2, faults=SLOW)
    job.until_epoch(5)
    refused = export(tmp_path / "S", job.out)
    assert refused.code == 2
    assert f"stop it first: freshet stop {job.out}" in refused.last_line
    assert not (tmp_path / "S").exists()
    stopped = job.stop()
    assert stopped.code == 0, stopped.errors
    job.wait()
    line = exported(tmp_path / "S", job.out, "--from", stopped.result["savepoint"])
    (position,) = line["positions"]
    assert 0 < position["next_offset"] < EVENTS == position["records"]
    assert line["epoch"] == stopped.result["epoch"]
    assert read(tmp_path / "S") == after(stream, position["next_offset"])
    assert export(tmp_path / "S", job.out).code == 2, "there is something in it"

    second = Job(replace(stream, snapshot=tmp_path / "S"), tmp_path / "O2")
    jobs.append(second)
    done = second.done(*SHAPE, "--parts", 3, "--parallelism", 1)
    assert done["events"] == EVENTS - position["next_offset"]
    assert f"covers {position['next_offset']:,} records; reading on from there" in second.log()
    second.check()
    # Flink keeps nothing of a job that has come to its end.
    assert exported(tmp_path / "S2", second.out)["positions"][0]["next_offset"] == EVENTS
    assert read(tmp_path / "S2") == after(stream, EVENTS)


def number_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("chk-"))


def newest(job: Job) -> int:
    """The number of the newest checkpoint that is complete."""
    return max(map(number_of, complete_states(job.out / "checkpoints")), default=0)


def test_killed_it_goes_on_from_its_newest_checkpoint_in_the_other_runtime(
    stream: Input, tmp_path: Path, jobs: list[Job]
) -> None:
    job = Job(stream, tmp_path / "O")
    jobs.append(job)
    job.start(*SHAPE, faults=SLOW)  # one part: operators share tasks
    job.until_epoch(10)
    job.until(lambda: newest(job) >= 3)
    job.kill()
    job.out.rename(tmp_path / "moved")
    line = exported(tmp_path / "S", tmp_path / "moved")
    covered = line["positions"][0]["next_offset"]
    assert 0 < covered < EVENTS
    assert read(tmp_path / "S") == after(stream, covered)
    second = Job(replace(stream, snapshot=tmp_path / "S"), tmp_path / "O2")
    second.done("--runtime", "local", "--parts", 4)
    second.check()


@pytest.mark.long
def test_a_topic_is_read_on_from_the_offsets(tmp_path: Path, jobs: list[Job]) -> None:
    """Messages of 70 events, epochs of 100: the job is stopped within messages."""
    require_jars()
    given = make_input(tmp_path / "input", EVENTS)
    lines = given.events.read_bytes().splitlines(keepends=True)
    halves = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    halves[0].write_bytes(b"".join(lines[:2_550]))
    halves[1].write_bytes(b"".join(lines[2_550:]))
    with broker_folder(tmp_path) as folder, start_broker(folder, sasl=False, tls=False) as broker:
        topic = KafkaAddress.parse(f"kafka://{broker.address}/changes")
        produce(events=[str(halves[0])], to=topic, partitions=3, batch=70)
        on_topic = TopicInput(given.model, given.events, EVENTS, topic=str(topic))
        job = Job(on_topic, tmp_path / "O")
        jobs.append(job)
        job.start(*SHAPE, "--epoch-ms", 0, "--parts", 2)
        job.until(lambda: progress(job.out)["events"] >= 2_500)
        behind = newest(job) + 2  # one that was begun since has all of these behind it
        job.until(lambda: newest(job) >= behind)
        live = exported(tmp_path / "S0", job.out, "--from", job.out / "checkpoints")
        assert not (job.out / "checkpoints" / "exports").exists()
        assert job.stop().code == 0
        job.wait()
        line = exported(tmp_path / "S", job.out)
        assert line["epoch"] == 25
        assert (line, read(tmp_path / "S")) == (live, read(tmp_path / "S0"))
        quiet = Job(replace(on_topic, snapshot=tmp_path / "S"), tmp_path / "O1")
        jobs.append(quiet)
        assert quiet.done(*SHAPE, "--until", "latest")["events"] <= 50, "the rest of messages"
        reached = {one["partition"]: one["next_offset"] for one in line["positions"]}
        with served(job.out) as before, served(quiet.out) as lookup:
            of_snapshot = before.served.so_far(line["epoch"]).arrived_ms
            known = lookup.served.so_far(0).arrived_ms
            assert of_snapshot is not None
            assert known is not None
            assert known >= of_snapshot
        shown = {one["partition"]: one for one in positions(quiet.out)}
        assert shown.keys() == reached.keys()
        assert all(shown[partition]["next_offset"] >= offset for partition, offset in reached.items())
        assert any(shown[at]["epoch"] == 0 and shown[at]["next_offset"] == offset for at, offset in reached.items())
        produced = produce(events=[str(halves[1])], to=topic, batch=70)
        ends = {int(partition): one["next_offset"] for partition, one in produced["partitions"].items()}
        offsets = {one["partition"]: one["next_offset"] for one in line["positions"]}
        assert all(0 < offsets[partition] < ends[partition] for partition in range(3))

        second = Job(replace(on_topic, snapshot=tmp_path / "S"), tmp_path / "O2")
        jobs.append(second)
        refused = second.run("--until", "latest", "--from", "earliest")
        assert refused.code == 2
        assert "leave --from out" in refused.last_line
        done = second.done(*SHAPE, "--until", "latest", "--parts", 3)
        assert 0 < EVENTS - 2_500 - done["events"] <= 50, "the rest of a message went with the snapshot"
        second.check()
        final = exported(tmp_path / "S2", second.out)
        assert {one["partition"]: one["next_offset"] for one in final["positions"]} == ends
        assert final["vertices"] == done["vertices"]
