"""The TaskManagers of an embedded job: processes of one slot each, since one Python process has one interpreter lock.

Their JobManager is in the process that PyFlink talks to (`start_job_manager`). They come up while that one does.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from freshet.job.errors import JobFailed
from freshet.job.flink.errors import root_cause_of_text
from freshet.job.flink.java_command import end_java, last_line, start_java
from freshet.job.flink.job_spec import RESTART_INTERVAL_S, JobSpec
from freshet.job.flink.options import Memory, memory_of_worker
from freshet.job.machine.java import prepare_environment

_MAIN = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_CONFIG = "config.yaml"


@dataclass(frozen=True)
class _TaskManager:
    name: str
    process: subprocess.Popen[bytes]
    logged_before: int  # bytes of its log that are of an earlier run


class TaskManagers:
    """One TaskManager for each subtask of a job, from `start` to `stop`.

    Invariant: they end with this object, with this process, and with the thread that called `start`; until then there
    are as many as at first, if `replace_dead` is called again and again.
    """

    def __init__(
        self,
        spec: JobSpec,
        options: Mapping[str, str],
        clock: Any = time.monotonic,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing runs yet; `options` are those of the job and of its cluster (`flink_options`).

        `environ` is added to the environment of each.
        """
        self._environ = dict(environ or {})
        self._count, self._logs, self._folder = spec.parallelism, spec.logs, spec.tmp
        self._memory: Memory = memory_of_worker(spec)
        self._options, self._clock = dict(options), clock
        self._deaths_max = spec.restarts
        self._deaths: deque[float] = deque()
        self._running: list[_TaskManager] = []
        self._started = 0

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [one.process.pid for one in self._running]

    def start(self) -> None:
        """Start them; they look for their JobManager until it is there."""
        prepare_environment()
        config = self._folder / "conf" / _CONFIG
        config.parent.mkdir(parents=True, exist_ok=True)
        config.touch(0o600)  # further options may hold secrets
        config.write_text(yaml.safe_dump(self._options, width=10_000), encoding="utf-8")
        self._running = [self._launch() for _ in range(self._count)]

    def replace_dead(self) -> list[str]:
        """Start a new one for each that has ended by itself; returns which, and how.

        Raises: JobFailed when more have ended than the job may restart after.
        """
        ended = [one for one in self._running if one.process.poll() is not None]
        for one in ended:
            self._forget(one)
            self._count_death(one)
            self._running.append(self._launch())
        return [f"{one.name} {_how(one.process)}" for one in ended]

    def stop(self) -> None:
        """Kill them all."""
        for one in self._running:
            one.process.kill()
        for one in list(self._running):
            self._forget(one)

    def _launch(self) -> _TaskManager:
        name = f"taskmanager-{self._started}"
        self._started += 1
        scratch = self._scratch(name)
        scratch.mkdir(parents=True)
        arguments = ["--configDir", str(self._folder / "conf")]
        for key, value in {"taskmanager.resource-id": name, "io.tmp.dirs": str(scratch)}.items():
            arguments += ["-D", f"{key}={value}"]
        log = self._log(name)
        logged = log.stat().st_size if log.is_file() else 0
        process = start_java(
            [_MAIN, *arguments],
            self._memory.heap_mb,
            log,
            self._output(name),
            scratch,
            {**os.environ, **self._environ},
            [f"-XX:MaxDirectMemorySize={self._memory.direct_mb}m"],
        )
        return _TaskManager(name, process, logged)

    def _forget(self, one: _TaskManager) -> None:
        end_java(one.process)
        self._running.remove(one)
        shutil.rmtree(self._scratch(one.name), ignore_errors=True)  # its RocksDB

    def _count_death(self, one: _TaskManager) -> None:
        now = self._clock()
        self._deaths.append(now)
        while self._deaths[0] <= now - RESTART_INTERVAL_S:
            self._deaths.popleft()
        if len(self._deaths) > self._deaths_max:
            said = self._last_words(one)
            times = f", as {len(self._deaths) - 1} before it" if len(self._deaths) > 1 else ""
            msg = f"{one.name} {_how(one.process)}{times} (see {self._logs}); it said last: {said or 'nothing'}"
            raise JobFailed(msg)

    def _last_words(self, one: _TaskManager) -> str:
        """The cause that it has logged, else the last line of its output."""
        log = self._log(one.name)
        logged = log.read_bytes()[one.logged_before :].decode(errors="replace") if log.is_file() else ""
        return root_cause_of_text(logged) if "\nCaused by: " in logged else last_line(self._output(one.name))

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _scratch(self, name: str) -> Path:
        return self._folder / name

    def _output(self, name: str) -> Path:
        return self._logs / f"{name}-java.log"


def start_job_manager(options: Mapping[str, str]) -> None:
    """Start a JobManager in the process that PyFlink talks to, which ends if it does; needs the gateway.

    Raises: py4j.protocol.Py4JJavaError when it does not come up.
    """
    from pyflink.common import Configuration
    from pyflink.java_gateway import get_gateway

    config = Configuration()
    for key, value in options.items():
        config.set_string(key, value)
    entrypoints = get_gateway().jvm.org.apache.flink.runtime.entrypoint
    entrypoints.StandaloneSessionClusterEntrypoint(config._j_configuration).startCluster()


def _how(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended by itself (exit {code})"
