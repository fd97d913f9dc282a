"""The kill test: a job on a cluster of processes, fed and read through Kafka, while its processes die one by one.

A stream goes into a topic of four partitions at an even pace. Every few seconds a process is killed by SIGKILL: a
TaskManager (another takes its place), the JobManager (the job is resumed from its newest checkpoint), or the broker
(started again on its folder). With several readers of the topic, each resume has another number of them, and half-way
the topic gets a partition more. When all events are in, the job is stopped, and what it left must be what it would have
been without a kill:

- the final embeddings in OUT equal the oracle's (`freshet check`, which follows the order that OUT/epochs records);
- each vertex's last record in the output topic is its last row in OUT, bit by bit, or a tombstone where it is gone;
- what an epoch held once it was visible, it still holds;
- no (id, epoch) comes twice in OUT, nor, in exactly-once mode, in the topic for those who read what is committed.

What is killed when is drawn from the seed; how far the job is at that moment is up to the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.job.dev.broker import start_broker
from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.errors import EXIT_FAILED, JobFailed
from freshet.job.flink.checkpoints import complete_states
from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import progress
from tests.support.kafka.topics import add_partitions, broker_folder, count_messages, make_topic
from tests.support.runs.jobs import FRESHET, ROOT, Job, TopicInput, make_input, read_log
from tests.support.runs.judge import Delivery, Outcome, check_count, check_embeddings, check_topic
from tests.support.runs.light_python import python_path

TASK_MANAGER, JOB_MANAGER, BROKER = "taskmanager", "jobmanager", "broker"
BREAKS = ("offset", "page", "cut")
PARTITIONS, READERS_MAX, PARALLELISM = 4, 3, 2
MESSAGES = (("--batch", 1), ("--batch", 20), ("--batch", 7, "--format", "arrow"))
INTERVAL_S = 14.0  # of the stream, per kill: about what a kill and the recovery take
PATIENCE_S = 240.0

Place = tuple[str, int]  # files of one kind and sink part, epoch


@dataclass(frozen=True)
class Case:
    """What is drawn from a seed, and what is asked for."""

    seed: int
    kills: int
    events: int
    delivery: Delivery
    broken: str = ""
    readers: int = 1  # of the topic, at first

    def readers_of(self, attempt: int) -> int:
        """Return the number of readers of an attempt: with several at first, another one at each resume."""
        several = [self.readers, *(one for one in range(READERS_MAX, 0, -1) if one != self.readers)]
        return several[attempt % len(several)] if self.readers > 1 else 1

    def task_managers(self) -> int:
        """Return how many the job needs: of the first group as many as it has readers."""
        subtasks = PARALLELISM // self.shape()["pipeline"]
        return PARALLELISM - subtasks + max(subtasks, *(self.readers_of(k) for k in range(READERS_MAX)))

    def victims(self) -> list[str]:
        """Whom to kill, in order: TaskManagers twice as often as the others, but each at least once in three."""
        rng = random.Random(f"victims {self.seed}")
        found: list[str] = []
        while len(found) < self.kills:
            found += rng.sample([TASK_MANAGER, JOB_MANAGER, BROKER], 3)
            found.append(TASK_MANAGER)
        return found[: self.kills]

    def shape(self) -> dict[str, Any]:
        """The options of the job."""
        rng = random.Random(f"shape {self.seed}")
        return {
            "parts": rng.choice([2, 3, 4]),
            "parallelism": PARALLELISM,
            "partitioner": rng.choice(["hybrid", "hybrid", "hdrf", "locality", "hash"]),
            "hybrid-threshold": rng.choice([5, 20, 1000]),
            "epoch-events": rng.choice([100, 300, 1000]),
            "epoch-ms": rng.choice([5, 20, 50]),
            "state-backend": rng.choice(["rocksdb", "rocksdb", "hashmap"]),
            "checkpoint-interval": rng.choice(["500ms", "1s", "2s"]),
            "coalesce": rng.choice(["50ms", "500ms"]),
            "pipeline": rng.choice([1, 2]),
        }


class Torture:
    """One run of a case in a folder of its own; `run` leaves no process behind."""

    def __init__(self, case: Case, folder: Path, say: Callable[[str], None]) -> None:
        self.case, self.folder, self.say = case, folder, say
        self.killed: Counter[str] = Counter()
        self.resumed = self.replaced = 0
        self._rng = random.Random(f"delays {case.seed}")
        self._seen: dict[Place, bytes] = {}
        self._changed: set[Place] = set()

    def run(self) -> Outcome:
        """Start everything, kill, let it end, and look at what it left.

        Raises: JobFailed, AssertionError when the job does not get on any more.
        """
        case = self.case
        with ExitStack() as stack:
            data = stack.enter_context(broker_folder(self.folder))
            self.broker = start_broker(data, sasl=False, tls=False)
            stack.callback(lambda: self.broker.stop())
            given = self.given = self._input()
            environ = {"PYTHONPATH": python_path(ROOT), "FRESHET_FAULTS": json.dumps(self._faults())}
            self.cluster = stack.enter_context(
                LocalCluster(self.folder / "cluster", case.task_managers(), environ=environ)
            )
            self.job = Job(given, self.folder / "out", {"PYTHONPATH": python_path(ROOT)})
            stack.callback(self.job.end)
            make_topic(self.broker, "events", PARTITIONS)
            self._start("--id-type", "int")
            self._await("the start", lambda: "rest" in read_run(self.job.out))
            lines = given.events.read_bytes().splitlines(keepends=True)
            middle = len(lines) // 2 if case.readers > 1 else 0
            self.say(f"seed {case.seed}: {case.events:,} events, {case.shape()}")
            victims = list(enumerate(case.victims(), 1))
            if middle:
                self._stream(lines[:middle], victims[: case.kills // 2], stack)
                add_partitions(self.broker, "events", PARTITIONS + 1)
                self.say(f"the topic has {PARTITIONS + 1} partitions")
            self._stream(lines[middle:-1], victims[case.kills // 2 if middle else 0 :], stack)
            # What a lost attempt has taken in says nothing of the last one: only that one sees the last event.
            assert self._produce(lines[-1:], 1e6).wait(PATIENCE_S) == 0, "freshet produce failed"
            self.say("all events are in the topic")
            self._await("the end", lambda: self._taken() >= case.events)
            stopped = self.job.stop()
            assert stopped.code == 0, stopped.errors
            self.job.wait()
            return self._judge()

    def _stream(self, lines: list[bytes], victims: list[tuple[int, str]], stack: ExitStack) -> None:
        """Stream lines into the topic, and kill these meanwhile; a producer that finds no broker at first gives up."""
        before = count_messages(self.broker, "events")
        producer = self._produce(lines, len(lines) / (max(len(victims), 1) * INTERVAL_S))
        stack.callback(producer.kill)
        self._await("the first messages", lambda: count_messages(self.broker, "events") > before)
        for number, victim in victims:
            self._kill(number, victim)
        assert producer.wait(PATIENCE_S + len(lines) / 100) == 0, "freshet produce failed"

    # -- what runs --------------------------------------------------------------------------------------------------

    def _input(self) -> TopicInput:
        made = make_input(self.folder / "in", self.case.events, vertices=1500, seed=self.case.seed)
        return TopicInput(made.model, made.events, made.count, topic=f"kafka://{self.broker.address}/events")

    def _faults(self) -> dict[str, Any]:
        broken = {"broken": self.case.broken} if self.case.broken else {}
        return broken | ({"discovery": "5000"} if self.case.readers > 1 else {})

    def _start(self, *more: object) -> None:
        shape = [text for name, value in self.case.shape().items() for text in (f"--{name}", value)]
        topic = f"kafka://{self.broker.address}/embeddings"
        out = ("--embeddings-to", topic, "--delivery", self.case.delivery, "--cluster", self.cluster.rest)
        readers = self.case.readers_of(self.resumed)
        if self.case.readers > 1:
            self.say(f"  {readers} readers")
            shape += ["--readers", readers]
        self.job.start(*shape, *out, "--restarts", 1000, *more, faults=self._faults() or None)

    def _produce(self, lines: list[bytes], rate: float) -> subprocess.Popen[bytes]:
        path = self.folder / f"{len(lines)}.jsonl"
        path.write_bytes(b"".join(lines))
        command = [FRESHET, "produce", "--events", path, "--to", self.given.topic]
        command += ["--rate", max(200, int(rate)), *self._rng.choice(MESSAGES)]
        log = (self.folder / "produce.log").open("wb")
        return subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, env=dict(os.environ))

    # -- kills ------------------------------------------------------------------------------------------------------

    def _kill(self, number: int, victim: str) -> None:
        """Kill one process: mostly after a checkpoint or two since the last kill, else while the job recovers."""
        for _ in range(self._rng.choice([0, 1, 1, 2, 3])):
            self._await_checkpoint()
        time.sleep(self._rng.uniform(0.1, 3.0))
        self._remember()
        before = progress(self.job.out)
        at = f"at epoch {before['epoch']}, {before['events']:,} events"
        self.say(f"kill {number} of {self.case.kills}: the {victim}, {at}")
        self.killed[victim] += 1
        if victim == TASK_MANAGER:
            self.cluster.kill(self._rng.choice(self.cluster.task_managers))
            self.cluster.start_task_manager()
        elif victim == BROKER:
            self.broker.kill()
            time.sleep(self._rng.uniform(0.0, 2.0))
            self.broker = start_broker(self.broker.data)
        else:
            assert self.cluster.job_manager is not None
            self.cluster.kill(self.cluster.job_manager)
            self.cluster.start_job_manager(wait=False)
            self._await_cluster()
            self._resume_after(self.job.processes[-1].wait(PATIENCE_S))

    def _resume_after(self, code: int) -> None:
        assert code == EXIT_FAILED, f"the run ended with {code}\n{self.job.log()[-3000:]}"
        self.resumed += 1
        self.say(f"  the run ended: {self.job.log().strip().splitlines()[-1][:200]}")
        self._start("--resume", "latest")

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait; a job that has given up is resumed, as its user would do."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self._replace_dead()
            code = self.job.processes[-1].poll()
            if code is not None:
                self._resume_after(code)
            assert time.monotonic() < deadline, f"{what}: waited in vain\n{self.job.log()[-3000:]}"
            time.sleep(0.1)

    def _replace_dead(self) -> bool:
        """Start others for TaskManagers that have ended by themselves; whether there were any."""
        dead = self.cluster.replace_dead()
        for process in dead:
            self.say(f"  {process.name} has ended by itself; another takes its place")
            self.replaced += 1
        return bool(dead)

    def _await_cluster(self) -> None:
        """Wait for all processes; the loss of the JobManager may have ended one of them."""
        while True:
            try:
                return self.cluster.await_ready()
            except JobFailed:
                if not self._replace_dead():
                    raise

    def _await_checkpoint(self) -> None:
        since = time.time()

        def newer() -> bool:
            states = complete_states(self.job.out / "checkpoints")
            with suppress(FileNotFoundError):  # one was replaced by the next while we looked
                return any((state / "_metadata").stat().st_mtime > since for state in states)
            return True

        self._await("a checkpoint", newer)

    def _taken(self) -> int:
        figures = progress(self.job.out)
        return int(figures["events"])

    # -- judgement --------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """What is visible now must stay as it is."""
        now = visible(self.job.out)
        self._changed |= {place for place, digest in self._seen.items() if now.get(place) != digest}
        self._seen |= now

    def _judge(self) -> Outcome:
        outcome = Outcome()
        log = read_log(self.job.out)
        self._remember()
        if self._changed:
            outcome.wrong += len(self._changed)
            outcome.notes.append(f"epochs that changed after they were visible: {sorted(self._changed)[:5]}")
        check_embeddings(self.job, outcome, self.say)
        check_count(self.job.out, self.case.events, outcome)
        check_topic(self.broker, log, self.case.delivery, outcome, self.say)
        return outcome


def visible(out: Path) -> dict[Place, bytes]:
    """A digest of what each visible epoch holds: of its rows by sink part, and of the input that it covers.

    A sink part's files become visible by themselves, so an epoch may be there in one part and not yet in another.
    """
    found: dict[Place, bytes] = {}
    for name in ("embeddings", "epochs"):
        for file in sorted((out / name).glob("[!._]*.parquet")):
            with suppress(FileNotFoundError):  # a longer one is taking its place
                found |= {(file.stem.rpartition("-")[0], epoch): digest for epoch, digest in _digests(file)}
    return found


def _digests(file: Path) -> Iterator[tuple[int, bytes]]:
    """The rows of an epoch stand together, and an attempt writes them as the one before did."""
    table = pq.read_table(pa.BufferReader(file.read_bytes()))  # of one file: another may take its place amid a read
    epochs = table["epoch"].to_numpy()
    starts = np.flatnonzero(np.diff(epochs, prepend=-1)).tolist()
    columns = [_values(table[name]) for name in table.column_names]
    for begin, end in pairwise([*starts, len(epochs)]):
        digest = hashlib.sha256()
        for column in columns:
            digest.update(column[begin:end].tobytes())
        yield int(epochs[begin]), digest.digest()


def _values(column: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_fixed_size_list(column.type):
        return column.combine_chunks().flatten().to_numpy().reshape(len(column), -1)
    # The bytes of a row must not depend on others of its file: on the longest text, or on whether a number is missing.
    if pa.types.is_string(column.type):
        return np.array([zlib.crc32(repr(text).encode()) for text in column.to_pylist()], np.int64)
    return (column.fill_null(-1) if pa.types.is_integer(column.type) else column).to_numpy()


def line(case: Case, torture: Torture, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The JSON line of a run."""
    figures = {"wrong": outcome.wrong, "missing": outcome.missing, "duplicates": outcome.duplicates}
    given = {name: value for name, value in asdict(case).items() if value}
    how = {
        "killed": dict(torture.killed),
        "resumed": torture.resumed,
        "replaced": torture.replaced,
        "seconds": round(seconds, 1),
    }
    return {**given, **figures, **how}
