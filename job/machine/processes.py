"""Processes of this machine, children of this program or not: recognised, signalled, waited for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from dataclasses import dataclass

import psutil

_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Process:
    """A process by its number and when it began: numbers are given out again. None: nobody noted when it began."""

    pid: int
    began_s: float | None

    def is_alive(self) -> bool:
        """True if it runs: not ended, no zombie, and its number not reused since."""
        try:
            process = psutil.Process(self.pid)
            same = self.began_s is None or abs(process.create_time() - self.began_s) < 1.0
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens when it has ended."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def await_end(self, timeout_s: float) -> bool:
        """Wait until it has ended; whether it has, in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            is_late = time.monotonic() >= deadline  # before the look: much may come between it and the time
            if not self.is_alive():
                return True
            if is_late:
                return False
            time.sleep(_POLL_S)


def began_s(pid: int | None = None) -> float:
    """Return the start time of a process (this one), to the hundredth of a second since 1970, as in `Process`."""
    return round(psutil.Process(pid).create_time(), 2)


def die_with_parent(by: signal.Signals = signal.SIGKILL) -> None:
    """Let a child, before exec, end by this signal when the thread that started it ends; only on Linux."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by)


def allow_many_files() -> None:
    """Have this process and its children open as many files at once as the system lets them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
