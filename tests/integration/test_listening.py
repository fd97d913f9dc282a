"""What Freshet starts is reached from this machine alone, unless an option says otherwise, and by its owner alone.

Whatever it writes is of its owner alone, whatever the umask: nobody else reads seed, graph or embeddings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.folder.run_file import RUNNING, read_run
from freshet.job.lifecycle.summary import progress
from freshet.job.serving.tables.place import SHM, mark_of, read_server
from tests.support.runs.embeds import start_embed
from tests.support.runs.jobs import DEADLINE_S, Input, Job, make_input
from tests.support.runs.listening import Seen, is_shut, watched
from tests.support.runs.live import paths_below
from tests.support.runs.modes import is_open, no_umask, open_to_others, ours_open_to_others, second_user_reads
from tests.support.serving.hand_job import HandJob
from tests.support.serving.server import Server

pytestmark = pytest.mark.slow
Make = Callable[[Input], Job]


@pytest.fixture(autouse=True)
def no_mask() -> Iterator[None]:
    with no_umask():
        yield


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("input"), 1500, snapshot=True)


def test_a_run_with_its_server(given: Input, job: Make) -> None:
    one = job(given)
    one.out.mkdir(0o777)
    with watched() as seen:
        one.start("--flight-port", 0, "--stay", "--checkpoint-interval", "500ms")
        one.until(lambda: progress(one.out)["epoch"] > 0 and serves_within(one, seen))
        one.until(lambda: {"java", "freshet"} <= seen.programs)
        assert takes_no_jar(read_run(one.out)["rest"])
        assert one.stop().code == 0
        one.wait()
    is_shut(seen, "java", "freshet")
    assert seen.ports >= own_ports(one)
    assert not open_to_others(one.out)
    assert (one.out / "job" / "job.json").is_file()
    assert list(one.out.rglob("_metadata")), "a savepoint is among them"
    with watched() as seen:  # a job that goes on, in several processes
        one.start("--stay", "--resume", "latest", "--parallelism", 2)
        one.until(lambda: read_run(one.out).get("state") == RUNNING and {"java", "freshet"} <= seen.programs)
        assert one.stop().code == 0
        one.wait()
    is_shut(seen, "java", "freshet")
    assert not open_to_others(one.out)


def test_a_run_without_flink(given: Input, job: Make, tmp_path: Path) -> None:
    one = job(given)
    with watched() as seen:
        one.start("--flight-port", 0, "--runtime", "local", faults={"slow": {"parser": 300}, "chunk": 50, "lull": 10})
        one.until(lambda: serves_within(one, seen))
        one.hurry()
        assert one.wait().code == 0
    is_shut(seen)
    assert seen.ports >= own_ports(one)
    assert not open_to_others(one.out)
    if os.geteuid() == 0:  # only root can be another user
        assert second_user_reads(one.out, tmp_path) == ""


def own_ports(one: Job) -> set[int]:
    return {int(read_run(one.out)["serving"][name].rpartition(":")[2]) for name in ("flight", "http")}


def serves_within(one: Job, seen: Seen) -> bool:
    """Return whether its server has started and has been looked at since then."""
    return "serving" in read_run(one.out) and seen.ports >= own_ports(one)


def takes_no_jar(rest: str) -> bool:
    with httpx.Client(timeout=60, trust_env=False) as client:
        return client.get(f"http://{rest}/v1/jars").status_code == 404


def test_embed(given: Input, tmp_path: Path) -> None:
    """In one process; with Flink's it is seen where `test_embed_on_flink.py` has a command go on after kills."""
    assert given.snapshot is not None
    with watched() as seen:
        process = start_embed(given, tmp_path / "embedded", "--for", "serving")
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, errors
    is_shut(seen)
    assert not ours_open_to_others(tmp_path / "embedded", given.snapshot)


def test_servers_with_workers_and_those_that_feed_from_them(tmp_path: Path) -> None:
    hand = HandJob(tmp_path / "out")
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []))
    first, second = Server(tmp_path / "out"), Server(tmp_path / "copy" / "out")
    try:
        with watched() as seen:
            told = first.start("--workers", "3")
            deadline = time.monotonic() + 300
            while len(read_server(first.tables).get("workers", ())) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            second.start("--from", told["flight"])
        assert seen.ports >= {int(told[name].rpartition(":")[2]) for name in ("flight", "http")}
        is_shut(seen)
        shared = [path for server in (first, second) for path in SHM.glob(f"freshet-*-{mark_of(server.tables)}-*")]
        assert len(shared) == 2
        assert not [path for path in shared if is_open(path)]
        assert not open_to_others(first.tables)
        assert not is_open(second.tables)
        assert not [path for path in paths_below(second.tables) if is_open(path)]
    finally:
        second.end()
        first.end()
        hand.close()


@pytest.mark.long
def test_a_local_cluster_and_a_job_on_it(given: Input, job: Make, tmp_path: Path) -> None:
    one = job(given)
    with watched() as seen, LocalCluster(tmp_path / "cluster", 2) as cluster:
        assert takes_no_jar(cluster.rest)
        one.done("--cluster", cluster.rest, "--parallelism", 2)
    is_shut(seen, "java")
    found = open_to_others(one.out)
    # The JobManager is somebody else's, with our umask, which is none: what it writes has its mode, in folders that
    # nobody else can open.
    assert not [line for line in found if "/checkpoints/" not in line]
    assert not is_open(one.out / "checkpoints")
