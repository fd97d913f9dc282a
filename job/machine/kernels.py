"""Compiles all kernels ahead, in as many processes as help, into the cache that all jobs of this machine share.

What is to be compiled comes from `operators.rehearsal`, a process of its own, which plays small jobs in plain Python. A
file beside the cache, named by a hash of all that the kernels depend on, says that this was done: for all jobs, or for
those of one model, which need a half of the kernels.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gnn.compiled import compiling, ready_stamp
from gnn.kernel_calls import NOTE_VARIABLE, Call, decode, encode, in_turn
from gnn.model import SPEC_FILE
from job.errors import JobFailed
from job.machine.processes import die_with_parent

# One kernel takes a third of the time of all, so that more processes have nothing to do.
_PROCESSES_MAX = 4
_FLAGS = ("-P", "-m")  # the folder that one happens to be in is no place of modules


class Compiled(NamedTuple):
    """What compiling ahead came to."""

    kernels: int  # as Python calls them, by types
    compiled: int  # those that were not in the cache
    seconds: float
    folder: Path | None  # None: there is no folder that one may write to


class Jobs(NamedTuple):
    """The jobs that kernels are to be compiled for: those of a model, in one part or several."""

    model: Path
    several_parts: bool

    @property
    def options(self) -> list[str]:
        """Those of the rehearsal."""
        return ["--model", str(self.model.absolute()), *(["--several-parts"] if self.several_parts else [])]

    def stamp(self, of_all: Path) -> Path:
        """The stamp of these, beside that of all jobs; weights decide nothing."""
        declared = (self.model / SPEC_FILE).read_bytes()
        digest = hashlib.sha256(declared + bytes([self.several_parts])).hexdigest()
        return of_all.with_name(f"{of_all.stem}-{digest[:16]}.ready")


def are_ready(jobs: Jobs | None = None) -> bool:
    """Whether these jobs, or all, find their kernels compiled; also where none are, for debugging."""
    stamp = ready_stamp()
    if not compiling() or (stamp is not None and stamp.exists()):
        return True
    return stamp is not None and jobs is not None and jobs.stamp(stamp).exists()


def progress_line(done: int, total: int) -> str:
    """How far `compile_ahead` is, for people."""
    return f"compiling kernels, once per machine: {f'{done} of {total}' if total else 'finding out which'}"


def compile_ahead(
    progress: Callable[[int, int], None] = lambda done, total: None, jobs: Jobs | None = None
) -> Compiled:
    """Compile for these jobs, or all, what is not in the cache.

    `progress(done, total)` is called now and then, with 0 of 0 at first.

    A second caller waits for the first.
    Raises: JobFailed when one of the processes fails.
    """
    began, stamp = time.monotonic(), ready_stamp()
    with _alone(stamp):
        progress(0, 0)
        with _workers(min(_PROCESSES_MAX, len(os.sched_getaffinity(0)))) as workers:
            calls = deque(in_turn(_rehearsed(jobs)))
            total, done = len(calls), list[bool]()
            threads = [
                threading.Thread(target=_feed, args=(worker, calls, number % 2 == 1, done), daemon=True)
                for number, worker in enumerate(workers)
            ]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                progress(len(done), total)
                threads[0].join(0.1)
                time.sleep(0 if threads[0].is_alive() else 0.1)
        if len(done) < total:
            msg = f"compiling kernels: {len(done)} of {total} done, then a process failed; what went wrong stands above"
            raise JobFailed(msg)
        progress(total, total)
        if stamp is not None:
            (stamp if jobs is None else jobs.stamp(stamp)).touch()
    return Compiled(total, sum(done), time.monotonic() - began, stamp and stamp.parent)


def _rehearsed(jobs: Jobs | None = None) -> list[Call]:
    """The calls of these jobs, or of all shapes of jobs."""
    command = [sys.executable, *_FLAGS, "operators.rehearsal", *(jobs.options if jobs else [])]
    environ = _environ() | {"NUMBA_DISABLE_JIT": "1", NOTE_VARIABLE: "1"}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, preexec_fn=die_with_parent, check=False)
    if done.returncode:
        msg = f"the rehearsal of what is to be compiled ended with {done.returncode}; what went wrong stands above"
        raise JobFailed(msg)
    return [decode(line) for line in done.stdout.splitlines()]


def _environ() -> dict[str, str]:
    """An environment in which Python finds the packages where this process has them."""
    found = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(found)}


@contextmanager
def _workers(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that compile what they read; they end when they read no more."""
    command = [sys.executable, *_FLAGS, "gnn.kernel_calls"]
    workers = [
        subprocess.Popen(
            command, env=_environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent
        )
        for _ in range(count)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _feed(worker: subprocess.Popen[bytes], calls: deque[Call], from_the_end: bool, done: list[bool]) -> None:
    """Have a worker compile one call after the other; returns when none is left or the worker ended."""
    assert worker.stdin is not None and worker.stdout is not None
    while True:
        try:
            call = calls.pop() if from_the_end else calls.popleft()
            worker.stdin.write(encode(call))
            worker.stdin.flush()
        except (IndexError, BrokenPipeError):
            return
        answer = worker.stdout.readline()
        if not answer:
            return
        done.append(answer.strip() == b"1")


@contextmanager
def _alone(stamp: Path | None) -> Iterator[None]:
    """Let one process at a time compile into a cache."""
    if stamp is None:
        yield
        return
    with (stamp.parent / ".warm-up").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
