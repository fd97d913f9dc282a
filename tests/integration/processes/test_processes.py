"""Processes that are known by number and beginning, and handlers of signals that last as long as their block."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from freshet.job.machine import processes
from freshet.job.machine.processes import Process, began_s, handled, stop_signals


def test_a_process_is_known_again_signalled_and_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        process = Process(child.pid, began_s(child.pid))
        assert process.is_alive()
        assert Process(child.pid, None).is_alive(), "when it began was not noted"
        assert not Process(child.pid, process.began_s - 60).is_alive(), "another one that had the number before"
        assert not process.await_end(0.0)
        process.send(signal.SIGKILL)
        assert process.await_end(60.0), "a zombie, which nobody has waited for, has ended"
    assert not process.is_alive()
    process.send(signal.SIGKILL)


def test_one_that_ends_as_this_one_stands_still_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [0.0], iter([True, False])

    def look(_: Process) -> bool:
        now[0] += 60.0
        return next(looks)

    monkeypatch.setattr(Process, "is_alive", look)
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None))
    assert Process(1, None).await_end(20.0)


def test_handlers_are_as_before_after_their_block() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []
    with handled(lambda number, _: seen.append(number), signal.SIGTERM):
        os.kill(os.getpid(), signal.SIGTERM)
    assert seen == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_first_signal_stops_and_the_second_kills() -> None:
    # A shell starts what it puts in the background with SIGINT ignored.
    with handled(signal.default_int_handler, signal.SIGINT), stop_signals() as caught:
        os.kill(os.getpid(), signal.SIGINT)
        assert caught == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
