"""Commands of `freshet`, which are given again where something was killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from freshet.job.service.generations import Service
from freshet.job.swap.record import Swap
from tests.support.runs.jobs import DEADLINE_S, FRESHET, ROOT

TRIES = 30


class Commands:
    """Gives commands of `freshet`, again where something was killed meanwhile."""

    def __init__(self, log: Path, kills: Callable[[], int]) -> None:
        """`kills`: how many there were so far; it returns once what was killed last is back."""
        self._log, self._kills = log, kills
        self.running: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        """Begin a command; it is `running`."""
        command = [str(FRESHET), *map(str, arguments)]
        with self._log.open("ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            self.running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log)
        return self.running

    def run(self, *arguments: object, is_done: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Run a command to its end; its last line, nothing where it was killed, and is done all the same.

        Raises: AssertionError where it fails, and nothing was killed.
        """
        for _ in range(TRIES):
            kills, process = self._kills(), self.start(*arguments)
            stdout, _ = process.communicate(timeout=DEADLINE_S)
            if process.returncode == 0:
                return dict(orjson.loads(stdout.splitlines()[-1]))
            if is_done():
                return {}
            assert self._kills() > kills, f"exit code {process.returncode}: {self.said()}"
            time.sleep(1.0)
        raise AssertionError(f"failed {TRIES} times: {self.said()}")

    def kill(self) -> None:
        """SIGKILL of the one that runs."""
        if self.running is not None and self.running.poll() is None:
            self.running.send_signal(signal.SIGKILL)

    @property
    def is_running(self) -> bool:
        """True if one runs."""
        return self.running is not None and self.running.poll() is None

    def said(self) -> str:
        """The end of what commands have said."""
        return self._log.read_text(errors="replace")[-3000:]


class SwapCommand(Commands):
    """`freshet swap`, which goes on after the promotion until the job before serves again."""

    def begin(self, service: Service, model: Path) -> None:
        """Give the line, and return once the new job serves.

        Raises: AssertionError where it fails, and nothing was killed.
        """
        self._service, before = service, service.current()
        self._line = "swap", service.folder, "--model", model, "--keep", "1h"
        for _ in range(TRIES):
            kills, process = self._kills(), self.start(*self._line)
            while process.poll() is None and service.current() == before:
                time.sleep(0.05)
            if service.current() != before:
                return
            assert self._kills() > kills, f"exit code {process.returncode}: {self.said()}"
        raise AssertionError(f"failed {TRIES} times: {self.said()}")

    def end(self) -> dict[str, Any]:
        """Return what it has printed in the end; nothing where it was killed when all was done."""
        while self.running is not None and Swap(self._service).record() is not None:
            if self.running.poll() is not None:
                assert self.running.returncode == -signal.SIGKILL, self.said()
                self.start(*self._line)
            time.sleep(0.05)
        assert self.running is not None
        stdout, _ = self.running.communicate(timeout=DEADLINE_S)
        return dict(orjson.loads(stdout.splitlines()[-1])) if stdout else {}


def kill_group(pid: int) -> None:
    """SIGKILL of a process and those of its group, until it is gone."""
    os.killpg(pid, signal.SIGKILL)
    await_end(pid)


def await_end(pid: int | None) -> None:
    """Return once a process has ended.

    Raises: AssertionError where it does not.
    """
    deadline = time.monotonic() + DEADLINE_S
    while pid is not None and Path(f"/proc/{pid}/exe").exists():
        assert time.monotonic() < deadline, f"process {pid} does not end"
        time.sleep(0.05)
