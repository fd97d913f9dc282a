"""What Freshet starts is reached from this machine alone, unless an option says otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.folder.run_file import read_run
from freshet.job.run.summary import progress
from freshet.job.serving.place import read_server
from tests.support.runs.embeds import start_embed
from tests.support.runs.jobs import DEADLINE_S, Input, Job, make_input
from tests.support.runs.listening import Seen, watched
from tests.support.serving.hand_job import HandJob
from tests.support.serving.server import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Make = Callable[[Input], Job]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("input"), 1500, snapshot=True)


def is_shut(seen: Seen, *programs: str) -> None:
    assert seen.programs >= set(programs), seen
    assert not seen.open, sorted(seen.open)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--parallelism", 3, "--pipeline", 1, "--parts", 4),
        ("--parallelism", 2, "--pipeline", 2, "--state-backend", "hashmap"),
    ],
)
def test_a_run_with_its_server(given: Input, job: Make, options: tuple[object, ...]) -> None:
    one = job(given)
    with watched() as seen:
        one.start("--flight-port", 0, "--stay", "--checkpoint-interval", "500ms", *options)
        one.until(lambda: progress(one.out)["epoch"] > 0 and (one.out / "tables" / "server.json").is_file())
        assert takes_no_jar(read_run(one.out)["rest"])
        assert one.stop().code == 0
        one.wait()
    is_shut(seen, "java", "freshet")
    assert seen.ports >= own_ports(one)


def test_a_run_without_flink(given: Input, job: Make) -> None:
    one = job(given)
    with watched() as seen:
        one.start("--flight-port", 0, "--runtime", "local", faults={"slow": {"parser": 300}, "chunk": 50})
        one.until(lambda: (one.out / "tables" / "server.json").is_file())
        one.hurry()
        assert one.wait().code == 0
    is_shut(seen)
    assert seen.ports >= own_ports(one)


def own_ports(one: Job) -> set[int]:
    return {int(read_run(one.out)["serving"][name].rpartition(":")[2]) for name in ("flight", "http")}


def takes_no_jar(rest: str) -> bool:
    with httpx.Client(trust_env=False) as client:
        return client.get(f"http://{rest}/v1/jars").status_code == 404


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--runtime", "flink", "--parts", "3", "--parallelism", "2"),
        ("--for", "serving", "--runtime", "flink", "--parallelism", "2"),
    ],
)
def test_embed(given: Input, tmp_path: Path, options: tuple[str, ...]) -> None:
    with watched() as seen:
        process = start_embed(given, tmp_path / "embedded", *options)
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, errors
    is_shut(seen, *(["java"] if options else []))


def test_servers_with_workers_and_those_that_feed_from_them(tmp_path: Path) -> None:
    hand = HandJob(tmp_path / "out")
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
    first, second = Server(tmp_path / "out"), Server(tmp_path / "copy" / "out")
    try:
        with watched() as seen:
            told = first.start("--workers", "3")
            deadline = time.monotonic() + 90
            while len(read_server(first.tables).get("workers", ())) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            second.start("--from", told["flight"])
        assert seen.ports >= {int(told[name].rpartition(":")[2]) for name in ("flight", "http")}
        is_shut(seen)
    finally:
        second.end()
        first.end()
        hand.close()


def test_a_local_cluster_and_a_job_on_it(given: Input, job: Make, tmp_path: Path) -> None:
    one = job(given)
    with watched() as seen, LocalCluster(tmp_path / "cluster", 2) as cluster:
        assert takes_no_jar(cluster.rest)
        one.done("--cluster", cluster.rest, "--parallelism", 2)
    is_shut(seen, "java")
