"""Compiles all kernels ahead, in several processes, into the cache that all jobs of this machine share.

The list of kernels comes from `operators.rehearsal`, a separate process that runs small jobs in plain Python and
reports each kernel as it calls it. A file beside the cache, named by a hash of everything that the kernels depend on,
records that this was done: for all jobs, or for those of one model, which need a third of the kernels.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

import orjson

from freshet.gnn.model import SPEC_FILE
from freshet.gnn.own.loading import loaded_modules
from freshet.job.errors import JobFailed
from freshet.job.machine.processes import die_with_parent
from freshet.job.machine.python_path import python_environ
from freshet.kernels.compiled import compiling, ready_stamps
from freshet.kernels.kernel_calls import NOTE_VARIABLE, Call, decode, encode, in_turn
from freshet.kernels.user_cache import make_readable

# One kernel takes a third of the time of all, so that more processes have nothing to do.
_PROCESSES_MAX = 4
PYTHON_FLAGS = ("-P", "-m")  # the folder that one happens to be in is no place of modules


class Compiled(NamedTuple):
    """Result of compiling ahead."""

    kernels: int  # as Python calls them, by types
    compiled: int  # those that were not in the cache
    seconds: float
    folder: Path | None  # None: there is no folder that one may write to


class Jobs(NamedTuple):
    """The jobs that kernels are to be compiled for: those of a model, in one part or several.

    `id_kind`: "int" or "string", None for both; `to_topic`: whether embeddings go to a topic; `many_parts`: whether
    there are more than have columns each.
    """

    model: Path
    several_parts: bool
    id_kind: str | None = None
    to_topic: bool = True
    many_parts: bool = False

    @property
    def options(self) -> list[str]:
        """Options of the rehearsal."""
        several = ["--several-parts"] * self.several_parts + ["--many-parts"] * self.many_parts
        ids = ["--ids", self.id_kind] if self.id_kind else []
        layers = [word for name in loaded_modules() for word in ("--layers", name)]
        to = [] if self.to_topic else ["--no-topic"]
        return ["--model", str(self.model.absolute()), *several, *ids, *to, *layers]

    def stamp(self, of_all: Path) -> Path:
        """The stamp of these, beside that of all jobs; weights and answers of checks decide nothing."""
        declared = orjson.loads((self.model / SPEC_FILE).read_bytes())
        declared.pop("checks", None)
        digest = hashlib.sha256(orjson.dumps(declared) + str(self[1:]).encode()).hexdigest()
        return of_all.with_name(f"{of_all.stem}-{digest[:16]}.ready")

    @property
    def wider(self) -> list[Jobs]:
        """These jobs, and those that need all that these do, and more."""
        every = product({self.id_kind, None}, {self.to_topic, True}, {self.many_parts, self.several_parts})
        return [self._replace(id_kind=kind, to_topic=topic, many_parts=many) for kind, topic, many in every]


def are_ready(jobs: Jobs | None = None) -> bool:
    """Return whether the kernels of these jobs, or of all, are compiled; True if compilation is off, for debugging."""
    if not compiling():
        return True
    of_all = ready_stamps().every
    of_jobs = [one.stamp(stamp) for stamp in of_all for one in (jobs.wider if jobs is not None else [])]
    return any(stamp.exists() for stamp in (*of_all, *of_jobs))


def progress_line(done: int, total: int) -> str:
    """Return the progress of `compile_ahead`, for people."""
    return f"compiling kernels, once per machine: {f'{done} of {total}' if total else 'finding out which'}"


def compile_ahead(
    progress: Callable[[int, int], None] = lambda done, total: None, jobs: Jobs | None = None
) -> Compiled:
    """Compile the kernels of these jobs, or of all, that are not in the cache.

    `progress(done, total)` is called now and then, with 0 of 0 at first.

    A second caller waits for the first.
    Raises: JobFailed when one of the processes fails.
    """
    began, stamp = time.monotonic(), ready_stamps().own
    with _alone(stamp):
        progress(0, 0)
        with _workers(min(_PROCESSES_MAX, len(os.sched_getaffinity(0)))) as workers:
            calls, done = _Calls(rehearsed_calls(jobs)), list[bool]()
            threads = [
                threading.Thread(target=_feed, args=(worker, calls, number % 2 == 1, done), daemon=True)
                for number, worker in enumerate(workers)
            ]
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                progress(len(done), calls.total)
                threads[0].join(0.1)
                time.sleep(0 if threads[0].is_alive() else 0.1)
        total = calls.total
        if calls.failure is not None:
            raise calls.failure
        if len(done) < total:
            msg = f"compiling kernels: {len(done)} of {total} done, then a process failed; what went wrong stands above"
            raise JobFailed(msg)
        progress(total, total)
        if stamp is not None:
            done_stamp = stamp if jobs is None else jobs.stamp(stamp)
            done_stamp.touch()
            make_readable(done_stamp)
    return Compiled(total, sum(done), time.monotonic() - began, stamp and stamp.parent)


class _Calls:
    """The calls that are to be compiled, as they come; `failure` says why no more came."""

    def __init__(self, coming: Iterable[Call]) -> None:
        self.total = 0
        self.failure: Exception | None = None
        self._waiting: list[Call] = []
        self._changed, self._ended = threading.Condition(), False
        threading.Thread(target=self._gather, args=(coming,), daemon=True).start()

    def take(self, from_the_end: bool) -> Call | None:
        """The first or last of those that wait (see `in_turn`); None when no more will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if not self._waiting:
                return None
            self._waiting = in_turn(self._waiting)
            return self._waiting.pop(-1 if from_the_end else 0)

    def _gather(self, coming: Iterable[Call]) -> None:
        try:
            for call in coming:
                with self._changed:
                    self._waiting.append(call)
                    self.total += 1
                    self._changed.notify_all()
        except Exception as error:  # of any kind: else those that wait would wait on
            self.failure = error
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def rehearsed_calls(jobs: Jobs | None = None) -> Iterator[Call]:
    """The calls of these jobs, or of all shapes of jobs, as a rehearsal comes upon them.

    Raises: JobFailed when it fails.
    """
    command = [sys.executable, *PYTHON_FLAGS, "freshet.operators.rehearsal", *(jobs.options if jobs else [])]
    environ = python_environ() | {"NUMBA_DISABLE_JIT": "1", NOTE_VARIABLE: "1"}
    process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
    assert process.stdout is not None
    yield from map(decode, process.stdout)
    if process.wait():
        msg = f"listing the kernels to compile failed (exit {process.returncode}); see the error above"
        raise JobFailed(msg)


@contextmanager
def _workers(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that compile what they read; they end when they read no more."""
    command = [sys.executable, *PYTHON_FLAGS, "freshet.kernels.kernel_calls"]
    workers = [
        subprocess.Popen(
            command, env=python_environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent
        )
        for _ in range(count)
    ]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def _feed(worker: subprocess.Popen[bytes], calls: _Calls, from_the_end: bool, done: list[bool]) -> None:
    """Have a worker compile one call after the other; returns when no more come or the worker ended."""
    assert worker.stdin is not None and worker.stdout is not None
    while (call := calls.take(from_the_end)) is not None:
        try:
            worker.stdin.write(encode(call))
            worker.stdin.flush()
        except BrokenPipeError:
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
