"""`freshet embed` for a stream, and jobs that start from what it wrote."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from freshet.job.embed import folder
from tests.support.runs.embeds import start_embed
from tests.support.runs.jobs import DEADLINE_S, Input, Job, make_input, read_log

pytestmark = pytest.mark.slow
OPTIONS = ("--parts", "2", "--partitioner", "hdrf")
EXACT = ("--epoch-events", "100", "--epoch-ms", "0", "--runtime", "local")


def embedded(given: Input, out: Path, *options: str) -> str:
    """Embed to the end; what was said."""
    process = start_embed(given, out, *options)
    try:
        _, errors = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return errors


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("input"), 2000, snapshot=True)


@pytest.fixture(scope="module")
def made(given: Input, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot with the state of a job; its embedding was killed once."""
    out = tmp_path_factory.mktemp("made") / "S2"
    process = start_embed(given, out, *OPTIONS, "--memory", "64MiB", faults={"placed": 60_000})
    until = time.monotonic() + DEADLINE_S
    while not (out / folder.WORK / "steps" / "topology-1" / "columns.json").exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (out / "snapshot.json").exists()
    errors = embedded(given, out, *OPTIONS, "--memory", "64MiB")
    assert "going on where an earlier attempt ended" in errors
    assert "a later `freshet run`" in errors
    assert not (out / folder.WORK).exists()
    return out


def test_where_edges_expire_a_job_computes_its_own(given: Input, made: Path, tmp_path: Path) -> None:
    job = Job(Input(given.model, given.events, given.count, made), tmp_path / "O")
    try:
        job.done(*OPTIONS, *EXACT, "--edge-ttl", "30d")
        assert "its state was made without times of events, so it is computed once more" in job.log()
        job.check()
    finally:
        job.end()


def test_a_job_starts_from_it_without_computing_and_is_exact(given: Input, made: Path, tmp_path: Path) -> None:
    logs = []
    for name, snapshot in (("from", made), ("anew", given.snapshot)):
        job = Job(Input(given.model, given.events, given.count, snapshot), tmp_path / name)
        try:
            job.done(*OPTIONS, *EXACT)
            assert ("state taken over" in job.log()) == (name == "from")
            assert ("partitioning the snapshot" in job.log()) == (name == "anew")
            job.check()
        finally:
            job.end()
        log = read_log(tmp_path / name)
        logs.append(
            {(i, e): v.tobytes() for i, e, v in zip(log.id.tolist(), log.epoch.tolist(), log.vector, strict=True)}
        )
    assert logs[0] == logs[1]
    assert {epoch for _, epoch in logs[0]} >= {0, 20}


def test_a_job_takes_over_the_options_of_the_state(given: Input, made: Path, tmp_path: Path) -> None:
    """Of two parts by HDRF; none of that is given."""
    job = Job(Input(given.model, given.events, given.count, made), tmp_path / "out")
    try:
        job.done(*EXACT)
        assert "its state was made with --parts 2, --partitioner hdrf, which this job takes over" in job.log()
        assert "2 parts" in job.log()
        job.check()
    finally:
        job.end()


def test_other_options_and_a_budget_that_is_too_small_are_refused(given: Input, made: Path, tmp_path: Path) -> None:
    job = Job(Input(given.model, given.events, given.count, made), tmp_path / "out")
    for options, differing in (
        (("--partitioner", "hybrid"), "made with --partitioner hdrf, this job has --partitioner hybrid"),
        (("--parts", "3"), "made with --parts 2, this job has --parts 3"),
        (("--runtime", "flink", "--parallelism", "7"), "made with --parts 2; give --parallelism 6"),
    ):
        ended = job.run(*EXACT, *options)
        job.end()
        assert ended.code == 2
        assert differing in ended.errors
    assert not (tmp_path / "out" / "base" / "complete").exists()
    process = start_embed(given, tmp_path / "S2", "--memory", "1MiB")
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    assert "--memory 1MiB: too little to place" in errors
    assert "or --for serving" in errors
