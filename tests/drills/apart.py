"""Three servers that share no folder with the job, nor with each other, while it is rescaled and processes die.

Two machines are played by two folders: the TaskManagers of each write their tails there, and a server beside them takes
the other's from the other server; the third only reads. None is told of the job's output folder. Meanwhile answers are
taken from all three, and in the end held against the change log, bit by bit.

With `lose` a machine goes for good instead, with its TaskManagers, its tails and its server; what only it had comes
from a server that sees the output folder, and that is started when it is needed.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from freshet.job.dev.local_cluster import ClusterProcess, LocalCluster
from freshet.job.lifecycle.summary import progress
from freshet.job.machine.ports import server_port
from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.operators.output_folders import TABLES_VARIABLE, TAIL
from freshet.operators.sink.tail.layout import TailName
from tests.support.runs.jobs import Job, make_input
from tests.support.runs.judge import Say
from tests.support.serving.server import Judge, Sampler, Server

VERTICES, PARTS = 300, 4
IDS = np.arange(VERTICES) * 7 - 5  # as in the stream
EPOCHS = 12  # that each stage of the drill sees at least
STALE_AFTER = "3s"  # parts tell that they live twice a second, servers four times
PATIENCE_S = 120.0
LOST_S = 2.0
SAMPLE_S = 0.1  # a fifth of an epoch; at 0.04 s servers and samplers took a third of the processor time


@dataclass
class Findings:
    """What came of it."""

    epochs: int = 0
    answers: int = 0
    seen: list[int] = field(default_factory=list)  # epochs that each sampler has seen
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.wrong and self.answers > 0


@dataclass
class Machine:
    """A folder of its own, the TaskManagers that write there, and the server beside them."""

    server: Server
    port: int = 0  # any, until it has one
    task_managers: list[ClusterProcess] = field(default_factory=list)

    @property
    def environ(self) -> dict[str, str]:
        return {TABLES_VARIABLE: str(self.server.tables)}

    def parts(self) -> set[int]:
        """The parts that have a tail here."""
        names = (TailName.parse(path.name) for path in (self.server.tables / TAIL).glob("*.tail"))
        return {name.part for name in names if name is not None}


class Apart:
    """The drill; `run` once."""

    def __init__(self, folder: Path, events: int, say: Say, lose: bool = False) -> None:
        self.folder, self.say, self._loses = folder, say, lose
        self.job = Job(make_input(folder / "in", events, vertices=VERTICES), folder / "job" / "out")
        self.job.out.parent.mkdir(parents=True)
        self.faults = {"slow": {"parser": 300}, "chunk": 50, "lull": 180}
        self.one, self.two, self.reader = (Machine(Server(folder / name / "local")) for name in NAMES)
        self.log = Machine(Server(self.job.out))  # sees the output folder
        self.serving = {"one": self.one, "two": self.two, "reader": self.reader}
        self.found = Findings()
        self.samplers: list[Sampler] = []

    def run(self) -> Findings:
        """Stream, kill, rescale, stream on, and hold everything against the change log."""
        with ExitStack() as stack:
            stack.callback(self.job.end)
            environ = self.job.environ_of_cluster(self.faults)
            cluster = self.cluster = stack.enter_context(LocalCluster(self.folder / "cluster", 0, environ))
            stack.enter_context(self._servers())
            self._stream(cluster)
        return self.found

    def _stream(self, cluster: LocalCluster) -> None:
        shape = (
            "--parts",
            PARTS,
            "--pipeline",
            1,
            "--epoch-events",
            80,
            "--epoch-ms",
            0,
            "--checkpoint-interval",
            "1s",
        )
        self._grow(cluster)
        self.job.start("--cluster", cluster.rest, "--parallelism", 2, *shape, faults=self.faults)
        self._serve()
        self._until_epoch(progress(self.job.out)["epoch"] + EPOCHS)
        self._expect(not self.one.parts() & self.two.parts(), "with two subtasks each machine has its own parts")
        self._expect(bool(self.one.parts()) and bool(self.two.parts()), "both machines have tails")
        if self._loses:
            self._lose_a_machine(cluster)
        else:
            self._kill_a_server()
            self._kill_a_task_manager(cluster)
            self._rescale(cluster)
        self.job.hurry()
        ended = self.job.wait()
        self._expect(ended.code == 0, ended.errors)
        last = int(ended.result["epochs"])
        self._until(lambda: self._all_have(last), alive=False)
        self._judge(last)

    def _rescale(self, cluster: LocalCluster) -> None:
        stopped = self.job.stop()
        self._expect(stopped.code == 0, stopped.errors)
        self.job.wait()
        before = progress(self.job.out)["epoch"]
        self._grow(cluster)
        self.job.start("--cluster", cluster.rest, "--parallelism", 4, "--resume", "latest", faults=self.faults)
        self._until_epoch(before + EPOCHS)
        self.say(f"rescaled from 2 to 4 at epoch {before}; tails of parts {self.one.parts()}, {self.two.parts()}")

    def _lose_a_machine(self, cluster: LocalCluster) -> None:
        """All of it, its tails, too; its TaskManager is replaced on the other one."""
        del self.serving["two"]
        self.two.server.kill()
        time.sleep(LOST_S)  # what the part publishes meanwhile nobody gets
        for process in self.two.task_managers:
            cluster.kill(process)
        self.two.task_managers.clear()
        shutil.rmtree(self.two.server.out)
        self._until(lambda: not self._health(self.one)["ready"] and not self._health(self.reader)["ready"])
        self.say(f"a machine is lost: {self._health(self.one)['reason']}")
        self.serving["log"] = self.log
        self.log.server.start("--from", f"127.0.0.1:{self.one.port}", *self._options(self.log))
        before = progress(self.job.out)["epoch"]
        self.one.task_managers.append(cluster.start_task_manager(environ=self.one.environ))
        self._until_epoch(before + EPOCHS)
        self._until_fresh()
        said = [machine.server.log() for machine in self.serving.values()]
        self._expect(any("going on by the table of" in log for log in said[:2]), "what was lost came from the log")
        self.say(f"all parts are on the other machine: all are fresh, past epoch {before + EPOCHS}")

    def _grow(self, cluster: LocalCluster) -> None:
        """A further TaskManager on each machine."""
        self._replace_dead()
        for machine in (self.one, self.two):
            machine.task_managers.append(cluster.start_task_manager(environ=machine.environ))
        cluster.await_ready()

    @contextmanager
    def _servers(self) -> Iterator[None]:
        try:
            yield
        finally:
            for sampler in self.samplers:
                sampler.stop()
            for machine in (self.one, self.two, self.reader, self.log):
                machine.server.end()

    def _serve(self) -> None:
        """Start the servers, and take answers from each."""
        for machine in (self.one, self.two, self.log):
            machine.port = server_port()
        one, two, log = (f"127.0.0.1:{machine.port}" for machine in (self.one, self.two, self.log))
        more = f",{log}" if self._loses else ""
        for machine, others in ((self.one, two), (self.two, one), (self.reader, f"{one},{two}")):
            machine.server.launch("--from", others + more, *self._options(machine))
        self.job.until_epoch(1)  # the very first run on a machine compiles
        flights = [machine.server.until_ready()["flight"] for machine in (self.one, self.two, self.reader)]
        self.reader.port = int(flights[2].rpartition(":")[2])
        for at, ids in zip([*flights, str(self.two.server.tables)], (IDS[::3], IDS[::5], IDS, IDS), strict=True):
            self.samplers.append(Sampler(at, ids, SAMPLE_S))
        for machine in (self.one, self.two, self.reader):
            self._expect(not machine.server.knows(self.job.out), "no server knows the output folder")

    def _options(self, machine: Machine) -> tuple[str, ...]:
        return "--port", str(machine.port), "--stale-after", STALE_AFTER, "--wait", "10m"

    def _kill_a_server(self) -> None:
        """SIGKILL; the others are stale until it is back, and all go on."""
        self._until_fresh()
        self.two.server.kill()
        began = time.monotonic()
        self._until(lambda: not self._health(self.one)["ready"] and not self._health(self.reader)["ready"])
        self.say(f"a server was killed: the others said that they were stale after {time.monotonic() - began:.1f} s")
        self.two.server.start("--from", f"127.0.0.1:{self.one.port}", *self._options(self.two))
        self._until_fresh()
        self.say("it was started again: all are fresh")

    def _kill_a_task_manager(self, cluster: LocalCluster) -> None:
        killed = self.one.task_managers.pop()
        os.kill(killed.pid, signal.SIGKILL)
        cluster.kill(killed)
        self.one.task_managers.append(cluster.start_task_manager(environ=self.one.environ))
        before = progress(self.job.out)["epoch"]
        self._until(lambda: self._all_have(before + EPOCHS))
        self._until_fresh()
        self.say(f"a TaskManager was killed, and replaced: all are fresh, past epoch {before + EPOCHS}")

    def _until_fresh(self) -> None:
        self._until(lambda: all(self._health(machine)["ready"] for machine in self.serving.values()))

    def _until_epoch(self, epoch: int) -> None:
        """Until all servers have it."""
        self.job.until_epoch(epoch)
        self._until(lambda: self._all_have(epoch))

    def _all_have(self, epoch: int) -> bool:
        return all(self._health(one).get("epoch", 0) >= epoch for one in self.serving.values())

    def _judge(self, last: int) -> None:
        """Hold all rows of all servers, and what was seen on the way, against the change log."""
        tables = {}
        for name, machine in self.serving.items():
            with EmbeddingClient(self._flight(machine), timeout=60) as client:
                tables[name] = client.all()
        for sampler in self.samplers:
            sampler.end()
        judge = Judge(self.job.out)
        expected = judge.at(last, np.unique(judge.log.id))
        for name, table in tables.items():
            found = rows_of(table)
            self._expect(found == expected, f"{name}: {len(found)} rows differ from the {len(expected)} of the log")
        self._expect(bool(judge.log.deleted.any()), "vertices were deleted on the way")
        for sampler in self.samplers:
            try:
                self.found.seen.append(len(judge.approve(sampler)))
            except AssertionError as error:
                self.found.wrong.append(f"{sampler.address}: {str(error)[:300]}")
            self.found.answers += len(sampler.answers)
        self.found.epochs = last
        self._expect(min(self.found.seen, default=0) > EPOCHS / 2, f"epochs that were seen: {self.found.seen}")

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.found.wrong.append(what)

    def _flight(self, machine: Machine) -> str:
        return f"127.0.0.1:{machine.port}"

    def _health(self, machine: Machine) -> dict[str, Any]:
        try:
            with EmbeddingClient(self._flight(machine), timeout=5) as client:
                return dict(client.health())
        except NotReadyError as error:
            return {"ready": False, "reason": str(error)}

    def _until(self, condition: Callable[[], bool], alive: bool = True) -> None:
        def holds() -> bool:
            self._replace_dead()
            return condition()

        self.job.until(holds, PATIENCE_S, alive, every_s=3 * SAMPLE_S)

    def _replace_dead(self) -> None:
        """Start a TaskManager for each that has ended by itself, as some do that lose another one."""
        for machine in (self.one, self.two):
            for process in [one for one in machine.task_managers if not one.is_alive()]:
                self.say(f"  {process.name} has ended by itself; another takes its place")
                self.cluster.kill(process)
                machine.task_managers.remove(process)
                machine.task_managers.append(self.cluster.start_task_manager(environ=machine.environ))


NAMES = ("one", "two", "reader")


def rows_of(table: Any) -> dict[int, tuple[int, bytes]]:
    """As the judge has them: own epoch and bits by id; no id may come twice."""
    ids, epochs = table["id"].to_pylist(), table["epoch"].to_pylist()
    vectors = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(ids), -1)
    assert max(Counter(ids).values()) == 1
    return {id_: (own, row.tobytes()) for id_, own, row in zip(ids, epochs, vectors, strict=True)}
