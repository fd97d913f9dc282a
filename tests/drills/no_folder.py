"""The drill of a cluster without a shared folder: every process has folders of its own, and dies now and then.

JobManager, TaskManagers and client are machines that see no folder of each other (tests/drills/machines.py). Events
come from a topic and rows go to one; checkpoints, model and image lie on an object store (moto's), the cut log in a
topic. Killed by SIGKILL are TaskManagers, the JobManager and the client, which the same command line starts again
(`--resume auto`). A TaskManager with the Partitioner is stopped (SIGSTOP) until Flink has given it up and the job runs
elsewhere, and let go again. When all events are in, the job is stopped; then:

- the row with the greatest epoch of each vertex in the topic equals that of a run without kills, within rounding, and
  that run equals the oracle (`freshet check`);
- records of one vertex and epoch are the same, bit by bit; with exactly-once there is one;
- the topic of cuts has each epoch once, in order, as far as it is committed;
- `freshet status` called the job running whenever it ran, and has counted each event once.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson

from freshet.files.listing import paths_in
from freshet.job.dev.broker import start_broker
from freshet.job.folder.run_file import read_run
from freshet.operators.epochs.cut_topic import decode_record
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.log_proof import last_recorded
from tests.drills.machines import ApartCluster, Machine, client_environ
from tests.support.kafka.records import parse
from tests.support.kafka.topics import broker_folder, make_topic, read_topic
from tests.support.runs.jobs import FRESHET, ROOT, Job, TopicInput, keys_in_file, make_input, read_log
from tests.support.runs.light_python import python_path
from tests.support.stores.moto_server import KEY_ID, SECRET, moto_server

TASK_MANAGER, JOB_MANAGER, CLIENT, ZOMBIE = "taskmanager", "jobmanager", "client", "zombie"
PARALLELISM, SPARE = 2, 1
INTERVAL_S = 40.0  # in which the events of a kill are fed
PATIENCE_S = 240.0
_SILENT_S = 14.0  # after which Flink has given a process up that it hears nothing of
_TOLERANCE = 1e-4


@dataclass
class Found:
    """What came of it; all zeros is what should come."""

    wrong: int = 0
    missing: int = 0
    duplicates: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    fenced: int = 0  # attempts that ended because another one had taken over
    rows: int = 0
    cuts: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Nothing was wrong."""
        return not (self.wrong or self.missing or self.duplicates) and self.rows > 0

    def note(self, text: str) -> None:
        """Count something that is wrong."""
        self.wrong += 1
        self.notes.append(text)


class NoFolder:
    """One run of the drill in a folder; `run` leaves no process behind."""

    def __init__(
        self, folder: Path, seed: int, kills: int, events: int, delivery: str, fenced: bool, say: Callable[[str], None]
    ) -> None:
        self.folder, self.kills, self.events, self.delivery, self.fenced = folder, kills, events, delivery, fenced
        self.say, self.found, self._rng = say, Found(), random.Random(f"no folder {seed}")
        self._seed = seed
        self._client: subprocess.Popen[bytes] | None = None
        self._attempts = 0

    def victims(self) -> list[str]:
        """Whom to kill, in order; without the fence only what a fence is for."""
        if not self.fenced:
            return [ZOMBIE] * self.kills
        found: list[str] = []
        while len(found) < self.kills:
            found += self._rng.sample([TASK_MANAGER, JOB_MANAGER, CLIENT, ZOMBIE], 4)
            found.append(TASK_MANAGER)
        return found[: self.kills]

    def run(self) -> Found:
        """Start everything, kill, let it end, and look at what it left.

        Raises: AssertionError when the job does not get on any more.
        """
        with ExitStack() as stack:
            server = stack.enter_context(moto_server())
            logging.getLogger("werkzeug").setLevel(logging.CRITICAL)  # moto stumbles where files go; Flink asks again
            self.environ = server.environ() | {"PYTHONPATH": python_path(ROOT)}
            data = stack.enter_context(broker_folder(self.folder))
            self.broker = stack.enter_context(start_broker(data, sasl=False, tls=False))
            made = make_input(self.folder / "in", self.events, vertices=800, seed=self._seed)
            (self.folder / "machines").mkdir()
            self.machine = Machine(self.folder / "machines" / "client")
            self.out = self.machine.folder / "out"
            model = (self.folder / "in" / "model").rename(self.machine.folder / "model")
            make_topic(self.broker, "events", 1)
            store = {"s3.endpoint": server.endpoint, "s3.path.style.access": "true"}
            store |= {"s3.access-key": KEY_ID, "s3.secret-key": SECRET}
            count = PARALLELISM + SPARE
            self.cluster = ApartCluster(self.folder / "machines", count, self.environ, store)
            stack.enter_context(self.cluster)
            self._options = self._options_of(model, server.uri, server.options())
            stack.callback(self._end_client)
            self._start()
            self._stream(made.events, stack)
            self._await("the end", lambda: self._status().get("events") == self.events)
            self._stop()
            self._count_fenced()
            self._judge(Job(TopicInput(model, made.events, made.count), self.folder / "twin"))
        return self.found

    def _options_of(self, model: Path, bucket: str, store: list[str]) -> list[str]:
        broker = f"kafka://{self.broker.address}"
        given: list[object] = ["--model", model, "--events", f"{broker}/events", "--out", self.out, "--resume", "auto"]
        given += ["--cluster", self.cluster.rest, "--embeddings-to", f"{broker}/embeddings", "--id-type", "int"]
        given += ["--delivery", self.delivery, "--dead-letters", f"{broker}/dead", "--restarts", 1000]
        given += ["--checkpoint-dir", f"{bucket}/jobs", "--checkpoint-interval", "1s", "--epoch-ms", 5, "--parts", 2]
        given += ["--parallelism", PARALLELISM, "--pipeline", 2, "--coalesce", "50ms"]
        return keys_in_file([*map(str, given), *store], self.machine.folder / "config.yaml")

    # -- what runs --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """The one command line, at first and after every death."""
        command = [FRESHET] if self.fenced else [sys.executable, "-m", "tests.drills.unfenced"]
        self._attempts += 1
        with (self.folder / f"client-{self._attempts}.log").open("wb") as log:
            self._client = subprocess.Popen(
                self.machine.command([*command, "run", *self._options]),
                cwd=self.machine.folder,
                env=client_environ(self.machine, self.environ),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end_client(self) -> None:
        if self._client is not None and self._client.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._client.pid, signal.SIGKILL)
            self._client.wait()

    def _log(self) -> str:
        return (self.folder / f"client-{self._attempts}.log").read_text(errors="replace")[-3000:]

    def _command(self, *words: object) -> subprocess.CompletedProcess[str]:
        command = self.machine.command([FRESHET, *words])
        environ = client_environ(self.machine, self.environ)
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def _status(self) -> dict[str, Any]:
        done = self._command("status", "--json", self.out)
        found: dict[str, Any] = orjson.loads(done.stdout) if done.stdout.strip() else {}
        return found

    def _stream(self, events: Path, stack: ExitStack) -> None:
        """Feed the topic, a piece for each kill, which comes while it is fed."""
        self._await("the start", self._runs)
        lines, victims = events.read_bytes().splitlines(keepends=True), self.victims()
        size = -(-len(lines) // max(1, len(victims)))
        pieces = [lines[at : at + size] for at in range(0, len(lines), size)]
        for number, (piece, victim) in enumerate(zip_longest(pieces, victims), 1):
            producer = self._produce(number, piece or [])
            stack.callback(producer.kill)
            if victim is not None:
                time.sleep(self._rng.uniform(3.0, 8.0))
                self._kill(number, victim)
                self._await("the recovery", self._runs)
            assert producer.wait(PATIENCE_S) == 0, "freshet produce failed"
        self.say("all events are in the topic")

    def _produce(self, number: int, lines: list[bytes]) -> subprocess.Popen[bytes]:
        path = self.folder / f"events-{number}.jsonl"
        path.write_bytes(b"".join(lines))
        command = [FRESHET, "produce", "--events", path, "--to", f"kafka://{self.broker.address}/events"]
        command += ["--rate", max(20, int(len(lines) / INTERVAL_S))]
        with (self.folder / "produce.log").open("ab") as log:
            return subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)

    def _runs(self) -> bool:
        """Whether all operators of the job run."""
        run = read_run(self.out)
        if run.get("state") != "running":
            return False
        with suppress(httpx.HTTPError, ValueError, KeyError):
            vertices = self.cluster.get(f"/jobs/{run['job_id']}")["vertices"]
            return all(one["status"] in ("RUNNING", "FINISHED") for one in vertices)
        return False

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait; whoever has ended is started again, as an orchestrator would."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            for process in self.cluster.replace_dead():
                self.say(f"  {process.name} has ended by itself; another takes its place")
            if self._client is not None and self._client.poll() is not None:
                self.say(f"  the client ended: {self._log().strip().splitlines()[-1][:160]}")
                self._start()
            assert time.monotonic() < deadline, f"{what}: waited in vain\n{self._log()}\n{self.cluster.logs()}"
            time.sleep(0.3)

    def _stop(self) -> None:
        done = self._command("stop", self.out)
        if done.returncode:
            self.found.note(f"freshet stop: {done.stderr.strip().splitlines()[-1:]}")
        assert self._client is not None
        self._client.wait(PATIENCE_S)
        if (state := self._status().get("state")) != "stopped":
            self.found.note(f"status after the stop: {state}")

    # -- kills ------------------------------------------------------------------------------------------------------

    def _kill(self, number: int, victim: str) -> None:
        status = self._status()
        self.say(
            f"kill {number} of {self.kills}: the {victim}, at epoch {status.get('epoch')}, "
            f"{status.get('events')} events, {status.get('state')}"
        )
        if status.get("state") != "running":
            self.found.note(f"status before kill {number}: {status.get('state')}: {status.get('detail')}")
        self.found.killed[victim] += 1
        if victim == TASK_MANAGER:
            self.cluster.kill(self._rng.choice(self.cluster.task_managers))
            self.cluster.start_task_manager()
        elif victim == JOB_MANAGER:
            assert self.cluster.job_manager is not None
            self.cluster.kill(self.cluster.job_manager)
            self.cluster.start_job_manager()
        elif victim == CLIENT:
            self._end_client()
            time.sleep(self._rng.uniform(0.0, 3.0))
            if (state := self._status().get("state")) != "running":
                self.found.note(f"status without a client: {state}")
            self._start()
        else:
            self._let_go_again()

    def _let_go_again(self) -> None:
        """Stop the TaskManager with the Partitioner until the job runs elsewhere, and let it go."""
        name = self._of_partitioner()
        process = next((one for one in self.cluster.task_managers if one.name == name), None)
        if process is None:
            self.say("  nobody has the Partitioner now")
            return
        process.send(signal.SIGSTOP)
        time.sleep(_SILENT_S)
        self._await("the job elsewhere", lambda: self._runs() and self._of_partitioner() not in ("", name))
        time.sleep(self._rng.uniform(2.0, 5.0))
        process.send(signal.SIGCONT)
        time.sleep(4.0)

    def _of_partitioner(self) -> str:
        """The name of the TaskManager that has the Partitioner, "" for none."""
        job = read_run(self.out).get("job_id")
        with suppress(httpx.HTTPError, ValueError, KeyError, StopIteration):
            vertices = self.cluster.get(f"/jobs/{job}")["vertices"]
            vertex = next(one["id"] for one in vertices if one["name"].startswith("partitioner"))
            found = self.cluster.get(f"/jobs/{job}/vertices/{vertex}/taskmanagers")["taskmanagers"]
            return str(found[0]["taskmanager-id"])
        return ""

    def _count_fenced(self) -> None:
        for path in paths_in(self.folder, "machines/*/tmp/freshet-*/python-errors.log"):
            with suppress(FileNotFoundError):  # its process has just ended
                self.found.fenced += path.read_text(errors="replace").count("cut_segments.FencedError")

    # -- judgement --------------------------------------------------------------------------------------------------

    def _judge(self, twin: Job) -> None:
        """Hold the topic against a run without kills."""
        found, job = self.found, read_run(self.out)
        if (epoch := last_recorded(LogFolders(self.out))) > 0:
            found.note(f"the client's folder has a change log up to epoch {epoch}")
        cuts = [name for name in _topics(self.broker.address) if name.startswith("freshet-cuts-")]
        for name in cuts:
            self._check_cuts(name)
        if len(cuts) != 1:
            found.note(f"topics of cuts: {cuts}, expected one for job {job.get('job_id')}")
        given: list[str | Path] = ["--model", twin.given.model, "--events", twin.given.events, "--out", twin.out]
        calm: list[str | Path] = [FRESHET, "run", "--runtime", "local", *given, "--id-type", "int", "--parts", "2"]
        done = subprocess.run(calm, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        check: list[str | Path] = [FRESHET, "check", *given, "--oracle", "own"]
        done = subprocess.run(check, capture_output=True, text=True, check=False)
        self.say(f"freshet check of the run without kills: {done.stdout.strip()}")
        if done.returncode:
            found.note(f"the run without kills is wrong: {done.stderr}")
        self._compare(twin)

    def _check_cuts(self, topic: str) -> None:
        """An epoch has one cut, and cuts come in order."""
        last = 0
        for record in read_topic(self.broker, topic, isolation_level="read_committed")[0]:
            for cut in decode_record(topic, "", record.offset, record.value).cuts:
                self.found.cuts += 1
                if cut.epoch != last + 1:
                    self.found.note(f"the cut of epoch {cut.epoch} follows that of epoch {last}")
                last = cut.epoch

    def _compare(self, twin: Job) -> None:
        found, committed = self.found, self.delivery == "exactly-once"
        level = "read_committed" if committed else "read_uncommitted"
        read = read_topic(self.broker, "embeddings", isolation_level=level)
        records = [record for partition in read.values() for record in partition]
        found.rows = len(records)
        seen: dict[tuple[bytes, int], bytes] = {}
        newest: dict[bytes, tuple[int, np.ndarray | None]] = {}
        for record in records:
            if record.value is None:
                newest[record.key] = (newest.get(record.key, (0, None))[0], None)
                continue
            row = parse(record.value)
            at, bits = (record.key, row["epoch"]), row["embedding"].tobytes()
            found.duplicates += committed and at in seen
            if seen.setdefault(at, bits) != bits:
                found.note(f"vertex {record.key!r} has two rows of epoch {row['epoch']}")
            if row["epoch"] >= newest.get(record.key, (0, None))[0]:
                newest[record.key] = (row["epoch"], row["embedding"])
        log = read_log(twin.out)
        last = {b"%d" % log.id[k]: k for k in range(len(log.id))}
        scale = float(np.abs(log.vector).max())
        for key, k in last.items():
            vector = newest.get(key, (0, None))[1]
            if log.deleted[k]:
                found.wrong += vector is not None
            elif vector is None:
                found.missing += 1
            else:
                found.wrong += bool(np.abs(vector - log.vector[k]).max() > _TOLERANCE * scale)
        found.wrong += sum(row is not None for key, (_, row) in newest.items() if key not in last)


def _topics(address: str) -> list[str]:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        return list(admin.list_topics())
    finally:
        admin.close()
