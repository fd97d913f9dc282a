"""Processes of this machine, their signals, and the end of this one."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import psutil

_POLL_S = 0.02
_PR_SET_PDEATHSIG = 1
_FAILED = 1  # what Python itself ends with after an exception
_NOT_FLUSHED = 120  # the same, where standard output could not be written
STOPS = (signal.SIGINT, signal.SIGTERM)  # by which a job is stopped
Handler = Callable[[int, FrameType | None], object]


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


def run_as_process(main: Callable[[], int | None]) -> NoReturn:
    """Run the program of this process, and end it with the program's exit code.

    Exit functions that are registered from here on run as ever. After them the process ends at once. Destructors of
    libraries do not run: those of Arrow abort a process now and then while one of its threads still reads ahead
    (apache/arrow#34314), after all results are written.

    Raises:
        SystemExit: always, with the exit code.
    """
    code = [_FAILED]
    atexit.register(lambda: _leave(code[0]))
    try:
        code[0] = main() or 0
    except SystemExit as ending:
        code[0] = _code_of(ending)
    sys.exit(code[0])


def _code_of(ending: SystemExit) -> int:
    if ending.code is None or isinstance(ending.code, int):
        return ending.code or 0
    print(ending.code, file=sys.stderr)
    return _FAILED


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads any more, or it is closed
            code = code or _NOT_FLUSHED
    os._exit(code & 0xFF)


@contextmanager
def handled(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Have the handler called at these signals, and the former ones again afterwards."""
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        _set(previous)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in a list instead of dying of them; a second one kills as usual."""
    caught: list[int] = []
    previous = {number: signal.getsignal(number) for number in STOPS}

    def catch(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        _set(previous)

    with handled(catch, *STOPS):
        yield caught


def _set(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
