"""TaskManagers of an embedded job: how many, with how much memory, and what happens when they die."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from freshet.job.errors import JobFailed, UsageError
from freshet.job.flink import task_managers
from freshet.job.flink.job_spec import RESTART_INTERVAL_S, JobSpec
from freshet.job.flink.options import client_heap_mb, flink_options, job_options, memory_of_worker
from freshet.job.flink.task_managers import TaskManagers


def spec(out: Path, parallelism: int, **fields: Any) -> JobSpec:
    return JobSpec(out=str(out), parts=max(parallelism, 4), parallelism=parallelism, **{"layers": 1, **fields})


class Machine:
    """Stands for Java: processes that wait, with what they were told."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.commands: list[list[str]] = []

    def start(self, main: Sequence[str], heap_mb: int, log: Path, output: Path, *_: object) -> subprocess.Popen[bytes]:
        self.commands.append([*main, str(heap_mb), str(log)])
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("what it did\nwhat went wrong\n")
        return subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(task_managers, "start_java", made.start)
    return made


@pytest.fixture
def managers(machine: Machine, tmp_path: Path) -> Iterator[Callable[[int], TaskManagers]]:
    made: list[TaskManagers] = []

    def make(restarts: int) -> TaskManagers:
        job = spec(tmp_path, 2, restarts=restarts)
        made.append(TaskManagers(job, flink_options(job), lambda: machine.now_s))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()


def kill(managers: TaskManagers, k: int) -> None:
    process = managers._running[k].process
    process.kill()
    process.wait()


def test_each_has_a_name_a_log_and_a_scratch_folder(
    managers: Callable[[int], TaskManagers], machine: Machine, tmp_path: Path
) -> None:
    started = managers(3)
    assert len(set(started.pids)) == 2
    for number, command in enumerate(machine.commands):
        name, scratch = f"taskmanager-{number}", tmp_path / "tmp" / f"taskmanager-{number}"
        assert {f"taskmanager.resource-id={name}", f"io.tmp.dirs={scratch}"} < set(command)
        assert command[-2:] == ["1024", str(tmp_path / "logs" / f"{name}.log")]
        assert scratch.is_dir()
    config = tmp_path / "tmp" / "conf" / "config.yaml"
    assert yaml.safe_load(config.read_text())["taskmanager.numberOfTaskSlots"] == "1"
    assert config.stat().st_mode & 0o077 == 0, "options may hold secrets"


def test_the_dead_are_replaced_and_their_files_removed(managers: Callable[[int], TaskManagers], tmp_path: Path) -> None:
    started = managers(3)
    first, second = started.pids
    assert started.replace_dead() == []
    kill(started, 0)
    assert started.replace_dead() == ["taskmanager-0 was killed by SIGKILL"]
    assert first not in started.pids and second in started.pids and len(started.pids) == 2
    assert not (tmp_path / "tmp" / "taskmanager-0").exists()
    assert (tmp_path / "tmp" / "taskmanager-2").is_dir()
    running = [one.process for one in started._running]
    started.stop()
    assert started.pids == []
    assert [process.returncode for process in running] == [-signal.SIGKILL] * 2


def test_more_deaths_than_restarts_are_too_many(managers: Callable[[int], TaskManagers], machine: Machine) -> None:
    started = managers(2)
    for now_s in (1.0, 2.0):
        machine.now_s = now_s
        kill(started, 0)
        assert len(started.replace_dead()) == 1
    machine.now_s = 1.0 + RESTART_INTERVAL_S  # the first is forgotten
    kill(started, 0)
    assert len(started.replace_dead()) == 1
    kill(started, 1)
    with pytest.raises(JobFailed, match=r"was killed by SIGKILL, as 2 before it \(see .*\); .*: what went wrong"):
        started.replace_dead()


def test_what_a_dead_one_logged_is_told(managers: Callable[[int], TaskManagers], tmp_path: Path) -> None:
    started = managers(0)
    log = tmp_path / "logs" / "taskmanager-1.log"
    log.write_text("ERROR\n\tat a.B.c\nCaused by: java.lang.X: outer\nCaused by: java.lang.IOException: disk full\n")
    kill(started, 1)
    with pytest.raises(JobFailed, match=r"it said last: disk full$"):
        started.replace_dead()


def test_only_several_subtasks_of_an_embedded_job_need_them(tmp_path: Path) -> None:
    assert spec(tmp_path, 2).starts_task_managers
    assert not spec(tmp_path, 1).starts_task_managers
    assert not spec(tmp_path, 2, cluster="example:8081").starts_task_managers
    options = flink_options(spec(tmp_path, 3))
    assert options["execution.target"] == "remote"
    assert options["taskmanager.numberOfTaskSlots"] == "1"
    hosts = {
        value for key, value in options.items() if key.endswith((".address", "bind-host", "bind-address", ".host"))
    }
    assert hosts == {"127.0.0.1"}
    assert not any(key.startswith(("taskmanager.", "jobmanager.", "rest.")) for key in job_options(spec(tmp_path, 3)))


@pytest.mark.parametrize(
    ("parallelism", "machine_mb", "expected"),
    [
        (1, 64_000, (2048, 512, 256)),
        (1, 4_000, (1232, 512, 256)),
        (1, 700, (256, 512, 256)),
        (2, 64_000, (1024, 256, 128)),
        (8, 64_000, (512, 64, 128)),
        (8, 8_000, (308, 64, 128)),
        (8, 4_000, (256, 64, 128)),
    ],
)
def test_memory_is_shared_out(
    tmp_path: Path, parallelism: int, machine_mb: int, expected: tuple[int, int, int]
) -> None:
    job = spec(tmp_path, parallelism)
    memory = memory_of_worker(job, machine_mb)
    assert (memory.heap_mb, memory.managed_mb, memory.network_mb) == expected
    assert memory_of_worker(spec(tmp_path, parallelism, managed_mb=4096), machine_mb).managed_mb == 4096 // parallelism


def test_the_client_needs_less_where_others_do_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for machine_gib, heap_mb in ((64, 2048), (4, 2048 - 768)):
        monkeypatch.setattr("freshet.job.flink.options.total_memory", lambda gib=machine_gib: gib << 30)
        assert [client_heap_mb(spec(tmp_path, count)) for count in (1, 2)] == [heap_mb, 1024]


def test_deep_models_get_buffers_for_all_their_stages(tmp_path: Path) -> None:
    """Three subtasks of 16 layers ask for more than the 88 MB that four layers are content with."""
    networks = [
        memory_of_worker(spec(tmp_path, 3, network_mb=64, layers=layers), 64_000).network_mb for layers in (4, 5, 16)
    ]
    assert networks == [88, 176, 352]


def test_a_machine_that_has_no_memory_for_them_is_named(tmp_path: Path) -> None:
    job = spec(tmp_path, 4, layers=64)
    assert memory_of_worker(job, 8_000).network_mb == 1536
    with pytest.raises(UsageError, match="--parallelism 4: the network buffers of 64 convs take 1,536 MB for each"):
        memory_of_worker(job, 6_000)
