"""Readers of a service while its model is exchanged, rolled back and exchanged again; every answer is judged.

Events come from Kafka at an even rate, into several partitions and one that stays empty; a local job reads a file. A
job serves; another one, with a model of another width and other layers, is begun from its live graph, and takes its
place; then the first one serves again, and then the second. Meanwhile readers ask over Flight, over HTTP and in the
mapped tables. In the end each answer is held against the change log of the job that it names, bit by bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from freshet import EmbeddingClient
from freshet.gnn.kinds.model import load_any_model
from freshet.job.dev.broker import start_broker
from freshet.job.lifecycle.job_state import state_of
from freshet.job.service.generations import Service
from freshet.job.swap.record import Swap
from tests.drills.swap_answers import ReaderProcess
from tests.drills.swap_commands import Commands, SwapCommand
from tests.drills.swap_feed import IDLE, MODELS, RETURNED, Feed, ids_of, make_records, messages_of, save_models
from tests.drills.swap_jobs import Jobs, kill_job, latency_ms, memory_mib, pid_of, positions
from tests.drills.swap_kills import Killer
from tests.drills.swap_oracle import Asked, Oracle, Verdict, counted, first_answers, latencies
from tests.support.kafka.topics import broker_folder, make_topic
from tests.support.runs.jobs import Input, Job, TopicInput
from tests.support.runs.judge import Say
from tests.support.serving.server import Server

LISTS, IDS = 8, 40  # of ids that readers ask for, and how many each has
# Of each way: the seconds between two reads; readers of a table ask for logits.
PACES = {"rows": 0.005, "get": 0.02, "all": 0.5, "http": 0.02, "nearest": 0.2}
WAYS = tuple("flight rows,flight get,flight all,flight nearest,http http,mapped rows,mapped get,mapped all".split(","))
WAYS_FED = "fed get", "fed all"
PATIENCE_S = 300.0


@dataclass(frozen=True)
class SwapCase:
    """What a drill does.

    `by_swap`: by `freshet swap`, not step by step; `rate`: events a second; `seconds`: of each phase in which nothing
    is exchanged; `pace`: how much readers pause; `kills`: SIGKILLs of servers, jobs and commands.
    """

    seconds: float = 20.0
    rate: float = 5_000.0
    local: bool = False
    by_swap: bool = False
    swaps: int = 1
    kinds: int = 1
    workers: int = 1
    fed: bool = False
    kills: int = 0
    pace: float = 1.0
    ways: tuple[str, ...] = WAYS
    vertices: int = 2_000
    partitions: int = 4
    seed: int = 1


@dataclass
class Findings:
    """What came of it: a line for each phase, and the summary."""

    verdict: Verdict
    phases: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)


class Swaps:
    """The drill; `run` once."""

    def __init__(self, case: SwapCase, folder: Path, say: Say) -> None:
        self.case, self.folder, self.say = case, folder, say
        self.kinds = [""] if case.kinds == 1 else list(RETURNED)
        self.service = Service(folder / "V")
        self.servers: dict[str, Server] = {}  # by kind, and of those that feed from them
        self.readers: dict[str, tuple[str, ReaderProcess]] = {}  # by name: kind and process
        self.models = save_models(folder, case.kinds)
        self.records = make_records(case.kinds, 20_000, case.vertices, case.seed)
        self.jobs_begun: list[Job] = []
        self.answers: list[Asked] = []
        self._phases: list[dict[str, Any]] = []
        self._feed: Feed | None = None
        self._commands = Commands(folder / "commands.log", lambda: self.killer.count())
        self._swapping = SwapCommand(folder / "swap.log", lambda: self.killer.count())
        every_s = 6.0 * case.seconds * case.swaps / max(case.kills, 1)
        self.killer = Killer(case.kills, every_s, case.seed, self._victims, say)

    def run(self) -> Findings:
        """Have it all happen, and judge it."""
        with ExitStack() as stack:
            stack.callback(self._end_all)
            jobs = self.jobs = self._jobs(stack)
            job = self._begun(jobs.first(self.models[0]))
            self._commands.run("promote", self.service.folder, job.out)
            self._serve()
            self._read()
            self._phase("before", self.case.seconds)
            self.killer.start()
            stack.callback(self.killer.end)
            for number in range(1, self.case.swaps + 1):
                job = self._swap(jobs, job, number)
            self.killer.end()
            self._until_served(job)
            answers = [
                Asked(name, kind, one.end(), orjson.loads((self.folder / f"asked{kind}.json").read_bytes()))
                for name, (kind, one) in self.readers.items()
            ]
            for server in self.servers.values():
                assert server.stop() == 0, server.log()
            jobs.stop(job)
        return self._judged(answers)

    # -- what runs --------------------------------------------------------------------------------------------------

    def _jobs(self, stack: ExitStack) -> Jobs:
        case = self.case
        if case.local:
            events = self.folder / "events.jsonl"
            lines = [orjson.dumps(one) + b"\n" for one in self.records]
            wanted = int(case.rate * (case.seconds * 4 + 60))
            with events.open("wb") as file:
                for _ in range(1 + wanted // len(lines)):
                    file.writelines(lines)
            return Jobs(self.folder, Input(self.models[0], events, 0), case.rate, True, self._commands)
        broker = stack.enter_context(
            start_broker(stack.enter_context(broker_folder(self.folder)), sasl=False, tls=False)
        )
        make_topic(broker, "events", case.partitions + IDLE)
        self._feed = Feed(broker, "events", messages_of(self.records, case.partitions), case.rate)
        stack.callback(self._feed.end)
        topic = f"kafka://{broker.address}/events"
        given = TopicInput(self.models[0], self.folder, 0, topic=topic)
        return Jobs(self.folder, given, case.rate, False, self._commands)

    def _begun(self, job: Job) -> Job:
        self.jobs_begun.append(job)
        return job

    def _serve(self) -> None:
        for kind in self.kinds:
            of = ("--service", str(self.service.folder), *(("--kind", kind) if kind else ()))
            server = self.servers[kind] = Server(self.service.folder, of=of, kind=kind)
            place = server.start("--workers", str(self.case.workers))
            if self.case.fed:
                fed = self.servers[f"fed {kind}"] = Server(self.folder / f"fed{kind}" / "out")
                fed.tables.mkdir(parents=True)
                fed.start("--from", place["flight"])

    def _read(self) -> None:
        ids, rng = ids_of(self.records), np.random.default_rng(self.case.seed)
        for kind in self.kinds:
            lists = [rng.choice(ids, min(IDS, len(ids)), replace=False).tolist() for _ in range(LISTS)]
            asked = self.folder / f"asked{kind}.json"
            asked.write_bytes(orjson.dumps(lists))
            place = self.servers[kind].until_ready()
            at = {"flight": place["flight"], "http": place["http"], "mapped": self.servers[kind].tables}
            if self.case.fed:
                at["fed"] = self.servers[f"fed {kind}"].until_ready()["flight"]
            for one in (*self.case.ways, *(WAYS_FED if self.case.fed else ())):
                (of, way), name = one.split(), f"{kind} {one}".strip()
                file = self.folder / f"{name.replace(' ', '-')}.arrows"
                process = ReaderProcess(name, way, str(at[of]), asked, file, self.case.pace * PACES[way])
                self.readers[name] = kind, process

    # -- what happens -----------------------------------------------------------------------------------------------

    def _swap(self, jobs: Jobs, old: Job, number: int) -> Job:
        """Exchange the model, roll back, and forward; the job before stops then."""
        seconds, model = self.case.seconds, self.models[number % MODELS]
        with self._during(f"swap {number}") as said:
            if self.case.by_swap:
                self._swapping.begin(self.service, model)
                new = jobs.of_swap(self.service, model)
            else:
                new, said["step_s"] = jobs.successor(old, model, len(self.jobs_begun) + 1)
                said |= self._changed("promote", self.service.folder, new.out)
            self._begun(new)
        self._phase(f"after swap {number}", seconds)
        for what, job in (("back", old), ("again", new)):
            with self._during(f"{what} {number}") as said:
                jobs.let_catch_up(job)
                said |= self._changed("rollback", self.service.folder)
                if self.case.by_swap and what == "back":  # it lets both jobs go on then
                    said["step_s"] = self._swapping.end().get("seconds")
            self._phase(f"after {what} {number}", seconds)
        with self._during(f"stop {number}"), self.killer.lock:
            jobs.stop(old)
        return new

    def _changed(self, *command: object) -> dict[str, Any]:
        """Give a command that makes a generation; a kill may come after it has."""
        before = self.service.current()
        wait = "--wait", f"{PATIENCE_S:g}s"
        return self._commands.run(*command, *wait, is_done=lambda: self.service.current() != before)

    def _victims(self) -> dict[str, Callable[[], None]]:
        """What can be killed now."""
        found: dict[str, Callable[[], None]] = {"server": partial(self._kill_server, self.servers[self.kinds[0]])}
        for name, commands in (("command", self._commands), ("swap", self._swapping)):
            if commands.is_running:
                found[name] = commands.kill
        for name, job in zip(("old", "new"), self.jobs_begun[-2:], strict=False):
            if not self.case.local and not state_of(job.out).is_over:
                found[name] = partial(self.jobs.kill, job)
        return found

    def _kill_server(self, server: Server) -> None:
        place = server.until_ready()
        server.kill()
        ports = [str(place[name]).rpartition(":")[2] for name in ("flight", "http")]
        server.start("--workers", str(self.case.workers), "--port", ports[0], "--http-port", ports[1])

    def _phase(self, name: str, seconds: float) -> None:
        with self._during(name):
            time.sleep(seconds)

    @contextmanager
    def _during(self, name: str) -> Iterator[dict[str, Any]]:
        self.say(name)
        said: dict[str, Any] = {}
        line = {"phase": name, "from_s": time.time()}
        yield said
        line |= {"to_s": time.time(), **said, "mib": self._memory()}
        self._phases.append(line)

    def _memory(self) -> dict[str, dict[str, int]]:
        found = {job.out.name: memory_mib(pid_of(job)) for job in self.jobs_begun}
        for name, server in self.servers.items():
            assert server.process is not None
            found[f"server {name}".strip()] = memory_mib(server.process.pid)
        return {name: mib for name, mib in found.items() if mib}

    def _until_served(self, job: Job) -> None:
        """Send no more events, and wait until all that were sent are in answers."""
        if self._feed is None:
            return
        self._feed.end()
        wanted = {str(partition): end - 1 for partition, end in self._feed.ends.items()}
        for kind in self.kinds:
            with EmbeddingClient(self.servers[kind].tables) as client:
                client.get([0], min_position=wanted, timeout=PATIENCE_S)

    def _end_all(self) -> None:
        for _, reader in self.readers.values():
            reader.kill()
        for server in self.servers.values():
            server.end()
        for commands in (self._commands, self._swapping):
            commands.kill()
        for job in self.jobs_begun:
            job.end()
            kill_job(job.out)
        if self.case.by_swap and (record := Swap(self.service).record()) is not None:
            kill_job(Path(record.out))

    # -- judgement --------------------------------------------------------------------------------------------------

    def oracle(self) -> Oracle:
        """Return a judge of answers, once the jobs have stopped."""
        models = {load_any_model(one).sha256(): one for one in self.models}
        return Oracle(self.service.generations(), models, self.kinds, ids_of(self.records))

    def _judged(self, answers: list[Asked]) -> Findings:
        self.answers, generations, oracle = answers, self.service.generations(), self.oracle()
        for asked in answers:
            oracle.judge(asked, self.killer.spans_s)
        found = Findings(oracle.verdict)
        for text in self.killer.failed:
            found.verdict.wrong += 1
            found.verdict.note(f"killed, and not back: {text}")
        tables = [one.answers for one in answers]
        switches = first_answers(tables)
        last = generations[-1]
        if self._feed is not None:
            for kind in self.kinds:
                covered = positions(last.out, kind)
                lacking = {p: end for p, end in self._feed.ends.items() if covered.get(p, 0) != end}
                if lacking:
                    found.verdict.lost += len(lacking)
                    found.verdict.note(f"{last.job}: covers {covered}, and the topic ends at {self._feed.ends}")
        for line in self._phases:
            found.phases.append(self._line(line))
        by_generation = counted(tables)
        if list(by_generation) != [str(one.generation) for one in generations]:
            found.verdict.wrong += 1
            found.verdict.note(f"generations that were read: {by_generation}, of {len(generations)}")
        found.summary = {
            name: getattr(found.verdict, name)
            for name in ("answers", "wrong", "mixed", "back", "lost", "errors", "errors_apart")
        } | {
            "killed": dict(self.killer.killed),
            "by_generation": by_generation,
            "switch_s": [round(switches[g.generation] - g.since_ms / 1e3, 3) for g in generations[1:]],
            "read_ms": {
                one.name: latencies([one.answers], [*switches.values()][1:]) | {"answers": one.answers.num_rows}
                for one in answers
            },
        }
        return found

    def _line(self, line: dict[str, Any]) -> dict[str, Any]:
        """The line of a phase: what its commands said, and from event to row, of each job in ms."""
        from_s, to_s = line.pop("from_s"), line.pop("to_s")
        found = {**line, "seconds": round(to_s - from_s, 2)}
        if self._feed is not None:
            of = {
                job.out.name: latency_ms(job.out, self.kinds[0], self._feed.sent_ms, from_s, to_s)
                for job in self.jobs_begun
            }
            found["published_ms"] = {name: each for name, each in of.items() if each}
        return found
