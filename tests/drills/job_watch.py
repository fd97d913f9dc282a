"""Watches a running job from outside: its memory, and whether Flink has restarted it."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import psutil

from freshet.job.folder.run_file import read_run

_EVERY_S = 0.5
# What Flink's JobManager writes when a job's state changes.
_SWITCH = re.compile(rb"Job \S+ \(\w+\) switched from state (\w+) to (\w+)")


class JobWatch(threading.Thread):
    """Looks twice a second, from `with` on to its end.

    Units: peak_bytes: the most that all processes of the job had in memory (RSS) at one time.
    """

    def __init__(self, pid: int, out: Path) -> None:
        super().__init__(daemon=True)
        self._pid, self._out = pid, out
        self._done = threading.Event()
        self.peak_bytes = 0
        self.asked = 0  # how often Flink has answered
        self.restarts = 0

    def run(self) -> None:
        while not self._done.wait(_EVERY_S):
            self.peak_bytes = max(self.peak_bytes, resident_bytes(self._pid))
            self._ask()

    def _ask(self) -> None:
        run = read_run(self._out)
        if "rest" not in run:
            return
        # Flink gathers its metrics every ten seconds; failures are told at once
        with suppress(httpx.HTTPError, ValueError, KeyError):
            job = f"http://{run['rest']}/jobs/{run['job_id']}"
            found = _get(f"{job}/metrics?get=numRestarts")
            failures = _get(f"{job}/exceptions")["exceptionHistory"]["entries"]
            restarts = max([int(float(one["value"])) for one in found], default=0)
            self.restarts = max(self.restarts, restarts, len(failures))
            self.asked += 1

    def __enter__(self) -> JobWatch:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._done.set()
        self.join()


def _get(address: str) -> Any:
    return httpx.get(address, timeout=60.0, trust_env=False).raise_for_status().json()


def resident_bytes(pid: int) -> int:
    """The memory of a process and all that it has started; 0 when it is gone."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                total += one.memory_info().rss
    return total


def states_in_log(logs: Path) -> list[str]:
    """The states that a job went through, by the log of its JobManager: CREATED, RUNNING, FINISHED in a quiet life."""
    text = b"".join(path.read_bytes() for path in sorted(logs.glob("flink.log*"), reverse=True))
    switches = [(before.decode(), after.decode()) for before, after in _SWITCH.findall(text)]
    return [before for before, _ in switches[:1]] + [after for _, after in switches]
