"""An embedded job with several subtasks: a TaskManager process for each, of which each may die, and none is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from freshet.job.flink.checkpoints import complete_states
from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import progress
from tests.support.runs.jobs import NO_SUMS, NO_SUMS_EITHER, Input, Job, assert_as_uninterrupted, make_input

pytestmark = pytest.mark.slow

SHAPE = ("--parts", 2, "--epoch-events", 40, "--epoch-ms", 0, "--hybrid-threshold", 5, "--checkpoint-interval", "500ms")
TWO = ("--parallelism", 2)
SLOW = {"slow": {"parser": 600}, "chunk": 100, "lull": 35}  # a stream that lasts
END_S = 300.0  # within which nothing is left; on a machine that does nothing else, in a second

Make = Callable[[Input], Job]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Input:
    """Attention, extrema, and rows that are kept."""
    return make_input(tmp_path_factory.mktemp("stream"), 6_000, layers=NO_SUMS, snapshot=True)


@pytest.fixture(scope="module")
def long_stream(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("long"), 12_000)


def processes_of(job: Job) -> list[psutil.Process]:
    """What the newest command has started."""
    found = list[psutil.Process]()

    def are_all_told() -> bool:
        found[:] = psutil.Process(job.processes[-1].pid).children(recursive=True)
        pids = read_run(job.out)["pids"]
        return {one.pid for one in found} == {pids["java"], *pids.get("taskmanagers", ())}

    job.until(are_all_told)
    return found


def assert_gone(processes: list[psutil.Process]) -> None:
    assert processes
    _, alive = psutil.wait_procs(processes, timeout=END_S)
    assert not alive


def has_checkpoint(job: Job) -> bool:
    job_id = read_run(job.out).get("job_id")
    return any(state.parent.name == job_id for state in complete_states(job.out / "checkpoints"))


def under_way(job: Job) -> Callable[[], bool]:
    """Whether the present attempt has done something, and could restart."""
    before = progress(job.out)["epoch"]
    return lambda: has_checkpoint(job) and progress(job.out)["epoch"] >= before + 10


def share_rings(job: Job) -> bool:
    """Whether blocks go from one TaskManager to the other by shared memory."""
    try:
        pids = read_run(job.out)["pids"]["taskmanagers"]
        return all("memfd:freshet-ring" in Path(f"/proc/{pid}/maps").read_text() for pid in pids)
    except (FileNotFoundError, ProcessLookupError):  # one that has just ended
        return False


def test_a_task_manager_that_is_killed_is_started_again(job: Make, stream: Input) -> None:
    one = job(stream)
    one.start(*SHAPE, *TWO, faults=SLOW)
    one.until(under_way(one))
    processes, killed = processes_of(one), read_run(one.out)["pids"]["taskmanagers"]
    assert len(killed) == 2, "each subtask has a process of its own"
    hosts = {
        each.laddr.ip for process in processes for each in process.net_connections("tcp") if each.status == "LISTEN"
    }
    assert {host.removeprefix("::ffff:") for host in hosts} == {"127.0.0.1"}
    for pid in killed:  # the second one while the job has two again
        os.kill(pid, signal.SIGKILL)
        one.until(lambda pid=pid: pid not in read_run(one.out)["pids"]["taskmanagers"])  # type: ignore[misc]
        one.until(under_way(one))
        one.until(lambda: share_rings(one))
    processes += processes_of(one)
    one.hurry()
    ended = one.wait()
    assert ended.code == 0, ended.errors
    for number in range(2):
        assert f"taskmanager-{number} was killed by SIGKILL; started again" in ended.errors
    assert "restarted after: " in ended.errors
    assert ended.result["events"] == stream.count
    assert_gone(processes)
    assert not list(one.out.glob("tmp/*"))
    assert_as_uninterrupted(one, "--parts", 2, "--hybrid-threshold", 5)


@pytest.mark.long
def test_variances_and_gates_survive_the_death_of_a_task_manager(job: Make, tmp_path: Path) -> None:
    one = job(make_input(tmp_path / "in", 6_000, layers=NO_SUMS_EITHER, snapshot=True))
    one.start(*SHAPE, *TWO, faults=SLOW)
    one.until(under_way(one))
    os.kill(read_run(one.out)["pids"]["taskmanagers"][1], signal.SIGKILL)
    one.hurry()
    ended = one.wait()
    assert ended.code == 0, ended.errors
    assert "started again" in ended.errors
    assert_as_uninterrupted(one, "--parts", 2, "--hybrid-threshold", 5)


@pytest.mark.long
def test_more_deaths_than_restarts_end_the_job(job: Make, stream: Input) -> None:
    one = job(stream)
    one.start(*SHAPE, *TWO, "--restarts", 0, faults=SLOW)
    one.until(under_way(one))
    processes = processes_of(one)
    os.kill(read_run(one.out)["pids"]["taskmanagers"][1], signal.SIGKILL)
    ended = one.wait()
    assert ended.code == 3, ended.errors
    assert "taskmanager-1 was killed by SIGKILL" in ended.last_line
    assert_gone(processes)


@pytest.mark.long
def test_rescaling_and_a_run_that_is_killed_leave_nothing_behind(job: Make, long_stream: Input) -> None:
    """One process, two TaskManagers, and one process again; one run is stopped, one is killed, one gets a signal."""
    one = job(long_stream)
    one.start(*SHAPE, "--parallelism", 1, faults=SLOW)
    one.until(under_way(one))
    processes = processes_of(one)
    assert len(processes) == 1, "one subtask needs no TaskManager of its own"
    stopped = one.stop()
    assert (stopped.code, one.wait().code) == (0, 0), stopped.errors
    assert_gone(processes)

    process = one.start("--resume", "latest", *TWO, faults=SLOW)
    one.until(under_way(one))
    processes = processes_of(one)
    process.kill()
    process.wait()
    assert_gone(processes)

    process = one.start("--resume", "latest", *TWO, faults=SLOW)
    one.until(under_way(one))
    processes = processes_of(one)
    process.send_signal(signal.SIGTERM)
    ended = one.wait()
    assert ended.code == 143, ended.errors
    assert "stopped with savepoint" in ended.errors
    assert Path(read_run(one.out)["savepoint"]).is_dir()
    assert_gone(processes)

    result = one.done("--resume", "latest", "--parallelism", 1)
    assert result["events"] == long_stream.count
    assert_as_uninterrupted(one, "--parts", 2, "--hybrid-threshold", 5)
