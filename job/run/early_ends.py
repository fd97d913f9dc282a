"""Ends of a run that come before its job does: by a signal, by a failure, or amid an epoch that takes long.

In the local runtime what is not committed can be dropped at any moment: `--resume` computes it again, to the same bits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from freshet.job.console import say
from freshet.job.errors import one_line
from freshet.job.folder import run_file
from freshet.job.machine.processes import STOPS, handled
from freshet.log_lines import log_at_once

PATIENCE_S = 10.0  # as long as `docker stop` waits
AT_ONCE_S = 1.0  # most stops are over by then
_POLL_S = 0.1


@contextmanager
def ended_by_signals(out: Path) -> Iterator[None]:
    """End the process at SIGINT or SIGTERM, from the handler itself; while the job runs, at the second one.

    An exception does not work: raised inside a callback of native code (numba has some) it is lost, or worse. Either
    nothing has begun that needs an orderly end, or the user wants none: --resume repairs half-written files.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        how = "stopped before anything was made; start it again"
        if _is_of_this_process(out):
            how = "ended at once"
            if _is_not_submitted(run_file.read_run(out)):
                had_begun = run_file.record_no_start(out)
                how = "stopped before the job started again" if had_begun else "stopped before the first epoch"
            how = f"{how}; go on with --resume latest (--out {out})"
        log_at_once(how)
        os._exit(128 + number)

    with handled(leave, *STOPS):
        yield


@contextmanager
def failure_noted(out: Path) -> Iterator[None]:
    """Have `run.json` say that a run has failed which ends before its job does."""
    try:
        yield
    except Exception as error:
        if _is_of_this_process(out) and _is_not_submitted(run_file.read_run(out)):
            with suppress(OSError):  # a full disk may be the cause, which must be reported
                run_file.update_run(out, state=run_file.FAILED, error=one_line(error), ended_ms=int(time.time() * 1e3))
        raise


def _is_not_submitted(run: dict[str, Any]) -> bool:
    """Return whether a run is still starting, and no cluster may have its job yet."""
    submitted = run.get("cluster") and run.get("started_ms", 0) / 1e3 > (run.get("client_began_s") or 0)
    return bool(run.get("state") == run_file.STARTING and not submitted)


def _is_of_this_process(out: Path) -> bool:
    return bool(run_file.read_run(out).get("pids", {}).get("client") == os.getpid())


@contextmanager
def bounded_stop(caught: list[int], drop: Callable[[int], None]) -> Iterator[None]:
    """Have the block end soon after the first signal is in `caught`, or `drop` called with it on another thread.

    `drop` ends the process: a kernel that is at work can't be ended otherwise.
    """
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(caught, drop, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(caught: list[int], drop: Callable[[int], None], done: threading.Event) -> None:
    """Wait for a signal, report it if the end takes longer, and finally drop the remaining work."""
    while not caught:
        if done.wait(_POLL_S):
            return
    if done.wait(AT_ONCE_S):
        return
    say(f"stopping: the epochs under way have {PATIENCE_S:.0f} s to end; another signal ends the process at once")
    if not done.wait(PATIENCE_S):
        drop(caught[0])
