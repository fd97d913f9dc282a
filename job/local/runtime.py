"""The local runtime: the same stages in one process, without Flink; durable in a RocksDB folder.

A pipeline of threads: one reads, parses and partitions, one runs each layer's operators, one publishes and commits.
Everything that an outcome of the Partitioner leads to is committed in one atomic batch, so every commit is what an
aligned checkpoint is for Flink: all operators stand at the same epoch with empty inboxes. A SIGKILL at any moment loses
nothing.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from freshet.job.local.malloc import keep_freed_memory
from freshet.job.local.sealed_store import SealedStore
from freshet.operators.dataflow import PARSER, PARTITIONER, SINK, Place
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.flush_intervals import monotonic_ms
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.epochs.retention import Commits
from freshet.operators.epochs.under_way import UnderWay
from freshet.operators.factory import dataflow_of, make_stage, plan_of
from freshet.operators.network import Network
from freshet.operators.outcome import Message, Outcome
from freshet.operators.parser.stages import ParserStage
from freshet.operators.settings import Settings
from freshet.operators.stage import Stage
from freshet.operators.telemetry.profile import Profile, forget_profiles
from freshet.operators.telemetry.sum_report import SumReport, all_sums
from freshet.operators.warm_up import warm_up
from freshet.state.entries import SomeEntries
from freshet.state.sweep import Mutations

QUEUED = 1  # outcomes between two threads; each of a block, which is some epochs
# Shorter, and threads that have no kernel under way take the interpreter lock from each other all the time.
SWITCH_INTERVAL_S = 2e-4
READ_POSITION = "input"  # the entry that says which chunk is under way, and how many of its blocks are journaled


COMMIT = "commit"  # counted like an operator: the write of all state changes of an outcome
_PARTITIONER = Place(PARTITIONER, 0)


@dataclass(slots=True)
class Work:
    """An outcome of the Partitioner on its way through the pipeline, and where the input stands after it."""

    messages: list[tuple[Place, Message]]
    mutations: dict[str, Mutations]
    replay: bool
    chunk: int
    block: int

    @staticmethod
    def of(outcome: Outcome, replay: bool, chunk: int, block: int) -> Work:
        """Return the work that an outcome of the Partitioner begins."""
        messages = [(_PARTITIONER, message) for message in outcome.messages]
        return Work(messages, {PARTITIONER: outcome.only}, replay, chunk, block)


@dataclass(slots=True)
class StageTimes:
    """Seconds by operator, for the profile; every name is counted by one thread."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, since: float) -> float:
        """Count the time since then; returns now."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - since
        return now


class Pipeline:
    """Threads in a row with bounded queues between them; None ends them, and a failure drains what comes after it."""

    def __init__(self, steps: list[Callable[[Work], None]]) -> None:
        self.failure: BaseException | None = None
        self._queues: list[queue.Queue[Work | None]] = [queue.Queue(QUEUED) for _ in steps]
        self._threads = []
        for k, step in enumerate(steps):
            following = self._queues[k + 1] if k + 1 < len(steps) else None
            thread = threading.Thread(target=self._run, args=(step, self._queues[k], following), daemon=True)
            self._threads.append(thread)
            thread.start()

    def put(self, work: Work) -> None:
        """Hand over work; waits while the first thread is behind."""
        self._queues[0].put(work)

    def finish(self, on_progress: Callable[[], None]) -> None:
        """Let all work go through."""
        self._queues[0].put(None)
        while any(thread.is_alive() for thread in self._threads):
            self._threads[-1].join(0.1)
            on_progress()

    def _run(
        self, step: Callable[[Work], None], source: queue.Queue[Work | None], following: queue.Queue[Work | None] | None
    ) -> None:
        while (work := source.get()) is not None:
            if self.failure is not None:
                continue
            try:
                step(work)
            except BaseException as error:
                self.failure = error
                continue
            if following is not None:
                following.put(work)
        if following is not None:
            following.put(None)


def _sums_of(stages: Mapping[Place, Stage]) -> dict[str, SumReport]:
    """Return the reports on the sums of each layer, over all parts."""
    found: dict[str, list[SumReport | None]] = {}
    for place, stage in stages.items():
        found.setdefault(place.operator, []).append(stage.sums)
    return {name: together for name, reports in found.items() if (together := all_sums(reports)) is not None}


class LocalRuntime:
    """Runs a bounded job to its end, or until `stop` is called."""

    def __init__(self, settings: Settings, chunks: int, state: Path) -> None:
        if not settings.memory.budget_bytes:
            keep_freed_memory()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        # Whatever is in one process acts as one task: cost follows the change, not the parts.
        settings = replace(settings, tasks=(settings.parts,))
        self.settings, self.chunks = settings, chunks
        self.flow = dataflow_of(settings, plan_of(settings))
        self.times = StageTimes()
        self._config = settings.to_dict()
        self._state = state
        self.memory_bytes: dict[str, int] = {}  # by operator and part, at the end
        self.sums: dict[str, SumReport] = {}  # by layer, at the end
        self._held: dict[str, Mutations] = {}
        self._commits, self._uncommitted = Commits(), 0
        self._under_way = UnderWay()
        self._stop = threading.Event()
        self._finished = False
        self._profiles: dict[str, Profile] = {}

    def stop(self) -> None:
        """Stop after the block under way; the output is complete up to the last epoch committed."""
        self._stop.set()

    def run(
        self, on_progress: Callable[[], None] = lambda: None, on_restore: Callable[[str], None] = lambda _: None
    ) -> bool:
        """Process the input from where the state stands; returns whether it came to its end.

        `on_restore` is called with a line for people whenever the tables of another operator are about to be read.
        Raises: whatever failed in a stage.
        """
        self._on_restore = on_restore
        out = Path(self.settings.out)
        forget_profiles(out)
        for name in (PARSER, PARTITIONER, *(row.name for row in self.flow.staged), COMMIT):
            self._profiles[name] = Profile(out, name, 0)
        return self._run(self._watched(on_progress))

    def _watched(self, on_progress: Callable[[], None]) -> Callable[[], None]:
        def watch() -> None:
            self._write_profiles()
            on_progress()

        return watch

    def _write_profiles(self, *, last: bool = False) -> None:
        for name, profile in self._profiles.items():
            profile.stage = self.times.seconds.get(name, 0.0)
            if last:
                profile.loads.end()
                profile.write()
            else:
                profile.write_if_changed()

    def _run(self, on_progress: Callable[[], None]) -> bool:
        self._store = SealedStore(self._state, self.settings.memory.budget_bytes)
        warm_up(self._config)
        partitioner: PartitionerStage = make_stage(self._config, PARTITIONER, 0)
        assert isinstance(partitioner.log, CutLog)
        partitioner.log.retention = self._commits
        entries = self._store.entries(PARTITIONER)
        chunk, block = map(int, entries.get(READ_POSITION, b"0 0").split())
        self._note_restore(PARTITIONER, 0)
        partitioner.restore(SomeEntries(entries, lambda key: key != READ_POSITION))
        self._under_way.expect(place.number for place in self.flow[SINK].places)
        partitioner.watch(self._under_way)
        stages = self._stages()
        self._profiles[PARTITIONER].stages[0] = partitioner
        for place, stage in stages.items():
            self._profiles[place.operator].stages[place.number] = stage
        pipeline = Pipeline(self._segments(stages))
        try:
            for work in self._produce(partitioner, chunk, block):
                self._commits.begin()
                pipeline.put(work)
                on_progress()
                if pipeline.failure is not None:
                    break
        except BaseException as error:
            pipeline.failure = pipeline.failure or error
            raise
        finally:
            pipeline.finish(on_progress)
            self.memory_bytes = {stage.name: stage.memory_bytes for stage in stages.values()}
            self.memory_bytes[str(_PARTITIONER)] = partitioner.memory_bytes
            self.sums = _sums_of(stages)
            self._write_profiles(last=True)
            partitioner.close()
            for stage in stages.values():
                stage.close()
            self._store.close()
        if pipeline.failure is not None:
            raise pipeline.failure
        return self._finished

    def _stages(self) -> dict[Place, Stage]:
        """The stages after the Partitioner, restored."""
        stages: dict[Place, Stage] = {}
        for number, row in enumerate(self.flow.staged):
            self._note_restore(row.name, number + 1)
            for place in row.places:
                stage = stages[place] = make_stage(self._config, *place)
                stage.restore(*(self._store.entries(str(Place(row.name, part))) for part in stage.parts))
        return stages

    def _note_restore(self, name: str, done: int) -> None:
        self._on_restore(f"reading the tables of {name}, {done + 1} of {len(self.flow.staged) + 1} operators")

    def _segments(self, stages: dict[Place, Stage]) -> list[Callable[[Work], None]]:
        """A step for each layer, the first with Storage 0 as well, and one for the Sink and the commit.

        More threads would only wait for the interpreter lock.
        """
        flow = self.flow
        segments: dict[int, dict[Place, Stage]] = {}
        for place, stage in stages.items():
            row = flow[place.operator]
            segments.setdefault(len(flow) if row.kind == SINK else max(1, row.layer), {})[place] = stage
        *layers, sink = (Network(flow, segment) for segment in segments.values())
        return [*(partial(self._act, network) for network in layers), partial(self._publish, sink)]

    def _produce(self, partitioner: PartitionerStage, first: int, done: int) -> Iterator[Work]:
        """Outcomes of the Partitioner: the replay, then the input."""
        for outcome in partitioner.begin(monotonic_ms()):
            yield Work.of(outcome, True, first, done)
        with closing(make_stage(self._config, PARSER, 0)) as parser:
            yield from self._parsed(parser, partitioner, first, done)
        if not self._stop.is_set():
            yield Work.of(partitioner.finish(), False, self.chunks, 0)
            self._finished = True

    def _parsed(self, parser: ParserStage, partitioner: PartitionerStage, first: int, done: int) -> Iterator[Work]:
        """Outcomes of the input."""
        for number in range(first, self.chunks):
            since = time.perf_counter()
            blocks = list(parser.parsed(number))
            since = self.times.add(PARSER, since)
            for at, block in enumerate(blocks):
                if number == first and at < done:
                    continue
                if self._stop.is_set():
                    return
                outcome = partitioner.receive(parser.taken(block), monotonic_ms())
                since = self.times.add(PARTITIONER, since)
                yield Work.of(outcome, False, number, at + 1)
                since = time.perf_counter()

    def _act(self, network: Network, work: Work) -> None:
        """Take the work through the operators of one segment."""
        since = time.perf_counter()
        for sender, message in work.messages:
            network.send(sender, [message])
        while not network.idle:
            acted = network.step()
            if acted is not None:
                place, outcome = acted
                for part, mutations in outcome.mutations.items():
                    name = str(Place(place.operator, part))
                    work.mutations.setdefault(name, Mutations()).extend(mutations)
                since = self.times.add(place.operator, since)
                if place.operator == SINK:
                    self._under_way.note_applied(place.number, network.stages[place].epoch)
        work.messages, network.outside = network.outside, []

    def _publish(self, network: Network, work: Work) -> None:
        """The Sink, and then the commit."""
        self._act(network, work)
        self._commit(work)

    def _commit(self, work: Work) -> None:
        """Make the state changes durable; during a replay the state must go on standing at the epoch it replays to."""
        since = time.perf_counter()
        for name, mutations in work.mutations.items():
            self._held.setdefault(name, Mutations()).extend(mutations)
        self._uncommitted += 1
        if work.replay:
            return
        self._held[PARTITIONER].puts.append((READ_POSITION, f"{work.chunk} {work.block}".encode()))
        self._store.commit(self._held)
        self._held = {}
        self._commits.commit(self._uncommitted)
        self._uncommitted = 0
        self.times.add(COMMIT, since)
