"""Edges that expire in real jobs: through kills, in both runtimes, and by way of an export in a new job."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import save_model
from tests.support.graphs.models import IN_WIDTH, make_model
from tests.support.graphs.streams import Record, random_records
from tests.support.runs.jobs import SUMS, Input, Job

pytestmark = pytest.mark.slow

EVENTS, STEP_MS, TTL_MS = 4_000, 1000, 600_000
TTL = ("--edge-ttl", "10min", "--ts-jump", "1h", "--epoch-events", 100, "--epoch-ms", 0, "--parts", 2)
SLOW = {"slow": {"parser": 800}, "chunk": 100, "lull": 20}


def timed(records: list[Record]) -> list[Record]:
    """The records with times: a clock that goes on, some that are late or without, and few that are far ahead."""
    rng = random.Random(5)
    for k, record in enumerate(records):
        ts = STEP_MS * k - rng.choice([0, 0, 0, 500, TTL_MS // 2, 3 * TTL_MS])
        if rng.random() < 0.9:
            record["ts"] = ts + 10**10 * (rng.random() < 0.01)
    return records


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Input:
    folder = tmp_path_factory.mktemp("stream")
    save_model(make_model(1, SUMS), folder / "model")
    records = timed(random_records(random.Random(3), EVENTS, IN_WIDTH, vertices=400))
    (folder / "events.jsonl").write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in records))
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "half").mkdir()
    (folder / "half" / "a.jsonl").write_bytes(b"".join(lines[: EVENTS // 2]))
    (folder / "half" / "b.jsonl").write_bytes(b"".join(lines[EVENTS // 2 :]))
    return Input(folder / "model", folder / "events.jsonl", EVENTS)


def edges_of(job: Job, snapshot: Path) -> dict[tuple[int, int], tuple[float, int | None]]:
    """The live edges of a job, with weights and times."""
    ended = job.exported(snapshot)
    assert ended.code == 0, ended.errors
    table = pq.read_table(snapshot / "edges.parquet")
    assert table.schema.field("ts").type == "int64"
    columns = [table[name].to_pylist() for name in ("src", "dst", "weight", "ts")]
    return {(src, dst): (weight, ts) for src, dst, weight, ts in zip(*columns, strict=True)}


@pytest.fixture(scope="module")
def whole(stream: Input, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[Any, Any]]:
    """The closing line, and the edges after a run of the local runtime."""
    folder = tmp_path_factory.mktemp("whole")
    job = Job(stream, folder / "O")
    line = job.done("--runtime", "local", *TTL)
    assert 10 < line["rejected"] < 100
    (reason,) = line["reasons"]
    assert reason == "ts: more than --ts-jump 1h ahead of the largest so far and of its neighbours"
    assert job.check("--every", 10)["epochs_checked"] == 4
    edges = edges_of(job, folder / "S")
    times = [ts for _, ts in edges.values() if ts is not None]
    assert 50 < len(times) < len(edges) < EVENTS / 4
    assert min(times) >= STEP_MS * (EVENTS - 20) - TTL_MS
    return line, edges


@pytest.mark.long
def test_flink_expires_the_same_through_a_kill(
    stream: Input, whole: tuple[dict[str, Any], dict[Any, Any]], tmp_path: Path, jobs: list[Job]
) -> None:
    job = Job(stream, tmp_path / "O")
    jobs.append(job)
    job.start(*TTL, "--checkpoint-interval", "500ms", faults=SLOW)
    job.until_epoch(12)
    job.kill()
    line = job.done("--resume", "latest")
    assert (line["rejected"], line["reasons"]) == (whole[0]["rejected"], whole[0]["reasons"])
    job.check("--every", 10)
    assert edges_of(job, tmp_path / "S") == whole[1], "of a job of which Flink keeps nothing"


def test_a_new_job_goes_on_behind_an_export(
    stream: Input, whole: tuple[dict[str, Any], dict[Any, Any]], tmp_path: Path, jobs: list[Job]
) -> None:
    half = stream.events.parent / "half"
    first = Job(replace(stream, events=half / "a.jsonl"), tmp_path / "O")
    second = Job(replace(stream, events=half / "b.jsonl", snapshot=tmp_path / "S"), tmp_path / "O2")
    jobs += [first, second]
    first.done("--runtime", "local", *TTL)
    edges_of(first, tmp_path / "S")
    info = orjson.loads((tmp_path / "S" / "snapshot.json").read_bytes())
    assert STEP_MS * (EVENTS // 2 - 20) < info["event_ts"] < STEP_MS * EVENTS // 2
    second.done("--runtime", "local", *TTL, "--ignore-positions")
    second.check("--every", 10)
    assert edges_of(second, tmp_path / "S2") == whole[1]
    other = Job(second.given, tmp_path / "O3")
    jobs.append(other)
    assert (
        "--edge-ttl 1d: fixed at 10min"
        in Job(second.given, second.out).run("--resume", "latest", "--edge-ttl", "1d").errors
    )
