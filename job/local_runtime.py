"""The local runtime: the same stages in one process, without Flink; durable in a RocksDB folder.

Two threads: one reads, parses and partitions, the other runs the chain of Storages and the Sink. Everything that an
outcome of the Partitioner leads to is committed in one atomic batch, so every commit is what an aligned checkpoint is
for Flink: all operators stand at the same epoch with empty inboxes. A SIGKILL at any moment loses nothing.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gnn.plan import Plan
from job.memory import keep_freed_memory
from operators.factory import Settings, load_plan, make_stage
from operators.messages import Outcome
from operators.network import PARTITIONER, Network, operators_of
from operators.sealing import PartitionerStage
from operators.sink import Sink
from operators.stage import Stage
from state.backends import RocksStore
from state.sweep import Mutations

QUEUED_OUTCOMES = 4
READ_POSITION = "input"  # the entry that says which chunk is under way, and how many of its blocks are journaled


@dataclass(slots=True)
class _Item:
    """What the first thread hands to the second: an outcome, and where the input stands after it."""

    outcome: Outcome
    replay: bool
    chunk: int
    block: int


@dataclass(slots=True)
class StageTimes:
    """Seconds by operator, for the profile."""

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, since: float) -> float:
        """Count the time since then; returns now."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - since
        return now


class LocalRuntime:
    """Runs a bounded job to its end, or until `stop` is called."""

    def __init__(self, settings: Settings, chunks: int, state: Path) -> None:
        self.settings, self.chunks = settings, chunks
        self.plan: Plan = load_plan(settings.model)
        self.times = StageTimes()
        keep_freed_memory()
        self._config = settings.to_dict()
        self._store = RocksStore(state)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._queue: queue.Queue[_Item | None] = queue.Queue(QUEUED_OUTCOMES)

    def stop(self) -> None:
        """Stop after the block under way; the output is complete up to the last epoch committed."""
        self._stop.set()

    def run(self, on_progress: Callable[[], None] = lambda: None) -> None:
        """Process the input from where the state stands.

        Raises: whatever failed in a stage.
        """
        partitioner: PartitionerStage = make_stage(self._config, PARTITIONER, 0)
        entries = dict(self._store.part(PARTITIONER).items())
        chunk, block = map(int, entries.pop(READ_POSITION, b"0 0").split())
        partitioner.restore(entries.items())
        stages: dict[tuple[str, int], Stage] = {}
        for name in operators_of(len(self.plan.layers), self.settings.parts):
            for part in range(self.settings.parts):
                stage = stages[name, part] = make_stage(self._config, name, part)
                stage.restore(self._store.part(stage.name).items())
        consumer = threading.Thread(target=self._consume, args=(stages,), name="freshet-chain", daemon=True)
        consumer.start()
        finished = False
        try:
            for item in self._produce(partitioner, chunk, block):
                self._queue.put(item)
                on_progress()
                if self._failure is not None:
                    break
            finished = True
        finally:
            self._queue.put(None)
            while consumer.is_alive():
                consumer.join(0.2)
                on_progress()
            self._close(partitioner, stages, finished and self._failure is None)
        if self._failure is not None:
            raise self._failure

    def _produce(self, partitioner: PartitionerStage, first: int, done: int) -> Iterator[_Item]:
        """Outcomes of the Partitioner: the replay, then the input."""
        parser = make_stage(self._config, "parser", 0)
        for outcome in partitioner.begin(time.time() * 1e3):
            yield _Item(outcome, True, first, done)
        for number in range(first, self.chunks):
            since = time.perf_counter()
            blocks = parser.parse(number)
            since = self.times.add("parser", since)
            for at, block in enumerate(blocks):
                if number == first and at < done:
                    continue
                if self._stop.is_set():
                    return
                outcome = partitioner.receive(block, time.time() * 1e3)
                since = self.times.add(PARTITIONER, since)
                yield _Item(outcome, False, number, at + 1)
                since = time.perf_counter()
        if not self._stop.is_set():
            yield _Item(partitioner.finish(), False, self.chunks, 0)

    def _consume(self, stages: dict[tuple[str, int], Stage]) -> None:
        """Run the chain for each outcome, and commit."""
        network = Network(stages)
        held: dict[str, Mutations] = {}
        try:
            while (item := self._queue.get()) is not None:
                since = time.perf_counter()
                held.setdefault(PARTITIONER, Mutations()).extend(item.outcome.mutations)
                network.send(PARTITIONER, 0, item.outcome.messages)
                while not network.idle:
                    acted = network.step()
                    if acted is not None:
                        operator, part, outcome = acted
                        held.setdefault(f"{operator}-{part}", Mutations()).extend(outcome.mutations)
                        since = self.times.add(operator, since)
                if not item.replay:
                    # during a replay the state must go on standing at the epoch that it is replayed to
                    held[PARTITIONER].puts.append((READ_POSITION, f"{item.chunk} {item.block}".encode()))
                    self._store.commit(held)
                    held = {}
                    self.times.add("commit", since)
        except BaseException as error:
            self._failure = error
            while self._queue.get() is not None:
                pass

    def _close(self, partitioner: PartitionerStage, stages: dict[tuple[str, int], Stage], complete: bool) -> None:
        partitioner.close()
        for stage in stages.values():
            if isinstance(stage.core, Sink):
                stage.core.close(write=complete)
        self._store.close()
