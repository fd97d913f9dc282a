"""A Flink cluster of several processes on this machine, run by the scripts of the installed PyFlink package.

A JobManager and TaskManagers of one slot each (one Python process has one GIL), on the loopback address. Each process
can be killed and started again, which is what the tests of recovery do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from freshet.job.dev.flink_home import make_folders
from freshet.job.errors import JobFailed
from freshet.job.flink.options import LOOPBACK, loopback_options
from freshet.job.machine.java import flink_home, prepare_environment
from freshet.job.machine.ports import server_port
from freshet.job.machine.processes import Process, began_s
from freshet.job.machine.python_path import python_environ

JOB_MANAGER, TASK_MANAGER = "jobmanager", "taskmanager"
START_TIMEOUT_S = 120.0

_SHOWN_BYTES = 3000
# As Flink's Kubernetes operator starts a Python program.
_PYTHON_DRIVER = "org.apache.flink.client.python.PythonDriver"
_PYTHON_PROGRAM = "--job-classname", _PYTHON_DRIVER, "-pyclientexec", sys.executable, "-py"


@dataclass(slots=True)
class ClusterProcess(Process):
    """One process of a cluster, this program's child or not; `slots` is 0 for the JobManager."""

    name: str
    slots: int


class LocalCluster:
    """A JobManager and TaskManagers; a context manager that leaves no process behind.

    Args:
        folder: for configuration, logs and temporary files; made by `start`, kept by `stop`.
        task_managers: how many `start` starts, of one slot each.
        environ: added to the environment of all processes.
        options: Flink options that win over those set here.
        port: of the REST interface; 0 takes a free one.
        program: of a cluster in application mode, a Python file and its arguments, which its JobManager runs.
        jars: further ones on the class path of all processes.
    """

    def __init__(
        self,
        folder: Path,
        task_managers: int = 1,
        environ: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        port: int = 0,
        program: Sequence[str] = (),
        jars: Sequence[Path] = (),
    ) -> None:
        self._program, self._jars = list(program), list(jars)
        self.folder = folder.absolute()
        self.home = flink_home()
        self._rest_port = server_port(port)
        self.rest = f"{LOOPBACK}:{self._rest_port}"
        self.job_manager: ClusterProcess | None = None
        self.task_managers: list[ClusterProcess] = []
        self.environ = {**os.environ, **(environ or {})}
        self._first, self._options = task_managers, dict(options or {})
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._started = 0

    def start(self) -> LocalCluster:
        """Start all processes, and return when their slots are there.

        Raises: JobFailed with the end of the logs when they do not come up.
        """
        self._configure()
        try:
            self.start_job_manager(wait=False)
            for _ in range(self._first):
                self.start_task_manager()
            self.await_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill every process that is left; jobs that still run end with them, their checkpoints stay."""
        for process in self._processes():
            self.kill(process)

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_job_manager(self, wait: bool = True) -> ClusterProcess:
        """Start the JobManager on the ports of the cluster; TaskManagers that outlived the last one join it.

        Without high availability it knows no jobs of before: resume them from a retained checkpoint.
        """
        self.job_manager = self._launch(JOB_MANAGER, 0)
        if wait:
            self.await_ready()
        return self.job_manager

    def start_task_manager(self, slots: int = 1, environ: Mapping[str, str] | None = None) -> ClusterProcess:
        """Start one more TaskManager; `await_ready` waits until it has registered. `environ`: of this one besides."""
        process = self._launch(TASK_MANAGER, slots, "-D", f"taskmanager.numberOfTaskSlots={slots}", environ=environ)
        self.task_managers.append(process)
        return process

    def kill(self, process: ClusterProcess) -> None:
        """End one process by SIGKILL, as a crash would; it is not in `task_managers` any more."""
        process.send(signal.SIGKILL)
        child = self._children.pop(process.pid, None)
        if child:
            child.wait()
        if process is self.job_manager:
            self.job_manager = None
        self.task_managers = [one for one in self.task_managers if one is not process]

    def replace_dead(self) -> list[ClusterProcess]:
        """Start a TaskManager for each that has ended by itself, as an orchestrator would; returns those that ended.

        Flink ends one for good when its clean-up after a lost peer fails (a fatal error in an exception handler).
        """
        dead = [process for process in self.task_managers if not process.is_alive()]
        for process in dead:
            self.kill(process)
            self.start_task_manager(process.slots)
        return dead

    @property
    def slots(self) -> int:
        """Slots of the TaskManagers that run."""
        return sum(process.slots for process in self.task_managers)

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when the JobManager answers and knows just the TaskManagers that run, with their slots, none killed.

        Raises: JobFailed when a process has ended, or it takes too long.
        """
        expected = {process.name for process in self.task_managers}
        deadline, seen = time.monotonic() + timeout_s, "no answer"
        while time.monotonic() < deadline:
            dead = [process.name for process in self._processes() if not process.is_alive()]
            if dead:
                msg = f"the Flink cluster at {self.rest}: {', '.join(dead)} ended by itself\n{self.logs()}"
                raise JobFailed(msg)
            with suppress(httpx.HTTPError, ValueError, KeyError):  # errors while it starts
                slots = {each["id"]: each["slotsNumber"] for each in self.get("/taskmanagers")["taskmanagers"]}
                if slots.keys() == expected and all(slots.values()):  # one reports its slots after it has registered
                    return
                seen = f"the TaskManagers with slots {dict(sorted(slots.items()))}"
            time.sleep(0.1)
        msg = (
            f"the Flink cluster at {self.rest}: got {seen} after {timeout_s:.0f} s, expected {sorted(expected)}\n"
            f"{self.logs()}"
        )
        raise JobFailed(msg)

    def get(self, path: str) -> Any:
        """Return an answer of the REST interface."""
        return httpx.get(f"http://{self.rest}/v1{path}", timeout=60, trust_env=False).json()

    def flink_run(self, *arguments: object, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """`flink run`, until the job has ended."""
        command = [str(self.home / "bin" / "flink"), "run", "-m", self.rest, *map(str, arguments)]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=timeout_s, check=False)

    def logs(self) -> str:
        """Return the end of what each process said."""
        files = sorted((self.folder / "log").glob("*.out"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-_SHOWN_BYTES:]}" for path in files)

    def _processes(self) -> list[ClusterProcess]:
        return [*([self.job_manager] if self.job_manager else []), *self.task_managers]

    def _configure(self) -> None:
        prepare_environment(self.environ)
        self.environ |= python_environ(self.environ)
        self.environ |= make_folders(self.folder, loopback_options(self._rest_port) | self._options)
        for jar in self._jars:
            (self.folder / "lib" / jar.name).symlink_to(jar)

    def _launch(
        self, role: str, slots: int, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> ClusterProcess:
        name = f"{role}-{self._started}"
        self._started += 1
        if role == TASK_MANAGER:
            arguments = (*arguments, "-D", f"taskmanager.resource-id={name}")
        # The script becomes the Java process; a session of its own keeps Ctrl-C of a terminal away from it.
        with (self.folder / "log" / f"{name}.out").open("wb") as log:
            if role == JOB_MANAGER and self._program:
                role, arguments = "standalone-job", (*_PYTHON_PROGRAM, *self._program)
            command = [str(self.home / "bin" / f"{role}.sh"), "start-foreground", *arguments]
            child = subprocess.Popen(
                command,
                env={**self.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[child.pid] = child
        return ClusterProcess(child.pid, began_s(child.pid), name, slots)
