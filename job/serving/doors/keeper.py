"""Keeps the workers of a server alive: one that ends, however that happens, is started again on the same port."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from freshet.job.console import say
from freshet.job.machine.python_path import python_environ
from freshet.job.serving.doors.tokens import GivenToken
from freshet.job.serving.doors.worker import READY, WorkerSettings

_POLL_S = 0.05
_END_S = 5.0
_AGAIN_S = 0.5  # between a worker's end and the next one, and twice as long after each one that did not become ready
_AGAIN_MAX_S = 30.0


class Keeper:
    """The workers beside the process that keeps the table, numbered from 1."""

    def __init__(
        self,
        work: WorkerSettings,
        changed: Callable[[list[int]], None],
        ended: Callable[[int], None] = lambda number: None,
        tokens: Callable[[], tuple[GivenToken, ...]] = tuple,
    ) -> None:
        """`work` is common to all, except the number; `changed` is called with the processes when they change.

        `ended` is called with the number of a worker that has ended, before the next one starts; `tokens` gives those
        that hold then.
        """
        self._work, self._changed, self._ended, self._tokens = work, changed, ended, tokens
        self._numbers = range(1, len(work.doors.flight_ports))
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshet-workers", daemon=True)

    def start(self) -> None:
        """Start them; they end when this process does."""
        self._thread.start()

    def stop(self) -> None:
        """End them."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(2 * _END_S)

    def _run(self) -> None:
        due, tries = dict.fromkeys(self._numbers, 0.0), dict.fromkeys(self._numbers, 0)
        while not self._stop.wait(_POLL_S):
            for number in self._numbers:
                process = self._running.get(number)
                if process is not None and process.poll() is not None:
                    was_ready = process.stdout is not None and process.stdout.read() == READY
                    tries[number] = 0 if was_ready else tries[number] + 1
                    wait_s = min(_AGAIN_S * 2 ** tries[number], _AGAIN_MAX_S)
                    say(
                        f"worker {number} ended with {process.returncode}; it is started again in {wait_s:g} s",
                        "warning",
                    )
                    due[number] = time.monotonic() + wait_s
                    self._ended(number)
                    del self._running[number]
                elif process is None and time.monotonic() >= due[number]:
                    try:
                        self._running[number] = self._started(number)
                    except OSError as error:  # no memory, say
                        due[number] = time.monotonic() + _AGAIN_MAX_S
                        say(f"worker {number} can't be started: {error}; again in {_AGAIN_MAX_S:g} s", "warning")
                    self._changed([one.pid for _, one in sorted(self._running.items())])
        self._end()

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        # Without a function before exec: gRPC's threads run here.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "freshet.job.serving.doors.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=python_environ(),
            pass_fds=[fd for fd in (self._work.budget, self._work.history) if fd is not None],
            start_new_session=True,  # Ctrl-C is for this process, which ends it then
        )
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            doors = replace(self._work.doors, tokens=self._tokens())
            process.stdin.write(replace(self._work, number=number, doors=doors).dump())
            process.stdin.close()
        return process

    def _end(self) -> None:
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + _END_S
        for process in self._running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
