"""Runs the real stages of a job under a seeded schedule: any order of delivery across channels, barriers, crashes.

Channels are first in, first out, as Flink's are; which one delivers next is drawn from the seed. A checkpoint is the
one Flink takes: a barrier follows the data through every channel, an operator holds back the inputs whose barrier has
come until all have, then copies its keyed state. A crash drops everything but the last complete checkpoint, the cut
log, and what readers have seen; a restore reads the input again from the checkpoint's positions, in other blocks and,
where it comes from several partitions, in another order between them. An attempt may also be thought dead and go on for
a while beside the next one: it may fail, but what it shows to readers must be right.

The partitions of a topic may have readers, whose number changes with each attempt. Then blocks wait in the channel of
their reader, and a barrier begins at one reader after the other.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from freshet.gnn.any_plan import AnyPlan
from freshet.operators.dataflow import PARSER, PARTITIONER, SINK, Operator, Place, topic_parser
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.journal import journaled_blocks
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.epochs.under_way import UnderWay
from freshet.operators.factory import dataflow_of, make_core, make_partitioner, stages_of
from freshet.operators.inbox import INBOX_BYTES
from freshet.operators.outcome import Outcome
from freshet.operators.settings import Settings
from freshet.operators.telemetry.level import AnyLevel
from freshet.partitioner.events import Events
from freshet.state.codec import Block
from freshet.state.task_parts import TaskParts
from tests.support.simulation.dict_backend import DictBackend
from tests.support.simulation.lanes import lanes_of
from tests.support.simulation.survivors import Checkpoint, Checkpoints, Id, RecordingSink, Rows
from tests.support.stages.checked import check_stages

check_stages()

BARRIER = None
_PARTITIONER = Place(PARTITIONER, 0)
_OLD_STEPS_MAX = 300
# What each attempt has of its own.
_OF_AN_ATTEMPT = (
    *("_flow", "_channels", "_waiting", "_blocked", "_barrier_at", "_at_barrier", "_backends"),
    *("_positions", "_partitioner", "_stages", "_under_way", "_ended", "_reader_of", "_before_barrier"),
)


@dataclass
class Faults:
    """What a schedule brings: the chance of each per step, and how often at most.

    `feed` is the chance that input is read while blocks are under way: the lower, the fewer epochs are in flight.
    `inbox_bytes` is what may wait in each stage's memory before blocks go to its file. `linger` is the chance of each
    crash that the attempt is only thought dead.
    """

    barrier: float = 0.03
    tick: float = 0.1
    crashes: int = 1
    crash: float = 0.01
    feed: float = 0.2
    inbox_bytes: int = INBOX_BYTES
    linger: float = 0.0


@dataclass
class _Old:
    """An attempt that was thought dead: what it has, and how many steps it will still take."""

    own: dict[str, Any]
    steps: int


def _drawn_tasks(rng: random.Random, parts: int, layers: int) -> int | list[int]:
    """Return a number of tasks for all layers, or one for each."""
    return rng.randint(1, parts) if rng.random() < 0.5 else [rng.randint(1, parts) for _ in range(layers)]


def _dealt(settings: Settings, tasks: int | list[int]) -> Settings:
    """Deal the parts to tasks, alike in all layers or by layer from 1 on; the raw features have those of layer 1."""
    counts = [TaskParts.dealt(settings.parts, count).counts for count in ([tasks] if isinstance(tasks, int) else tasks)]
    return replace(settings, tasks=counts[0], layer_tasks=() if isinstance(tasks, int) else (counts[0], *counts))


class Simulation:
    """One job over an input of events, run by a seed.

    `seen` holds, by sink part and epoch, the rows that readers have seen; `checkpoint` is what a crash falls back to.
    To be set before `run`: `tasks` (to how many the parts are dealt in an attempt, or by layer), `make_sink` (another
    core for the Sink of some parts), `readers` (how many the topic has in an attempt; 0: each lane comes to the
    Partitioner by itself), `appears` (by lane, the step at which it is there), `on_stage` (called with each stage
    before it is restored), `before_restore` (called after each crash; `lingers`: the attempt before goes on).
    """

    def __init__(
        self, settings: Settings, plan: AnyPlan, events: Events, log: CutLog, seed: int, faults: Faults
    ) -> None:
        self.settings, self.plan, self.events, self.log, self.faults = settings, plan, events, log, faults
        self.random = random.Random(seed)
        layouts = random.Random(f"layouts {seed}")  # of its own: a schedule does not depend on it
        self.tasks: Callable[[], int | list[int]] = partial(_drawn_tasks, layouts, settings.parts, len(plan.layers))
        self.readers: Callable[[], int] = lambda: 0
        self.appears: dict[int, int] = {}
        self.steps = 0
        self.seen: dict[int, dict[int, Rows]] = {part: {} for part in range(settings.parts)}
        self._id_names: dict[int, Id] = {}
        self.crashes = self.lingered = 0
        self.lingers = self._is_old = False
        self._old: list[_Old] = []
        self._ended = False
        self._partitioner: PartitionerStage
        self.aside_bytes: dict[str, int] = {}  # by level, the most that waited in one stage's file
        self.on_stage: Callable[[Any], None] = lambda stage: None
        self.before_restore: Callable[[], None] = lambda: None
        self.make_sink: Callable[[range], Any] = lambda parts: RecordingSink(self.seen, self._id_names, parts)
        self.lanes = list(lanes_of(events, settings.topics).values())
        self.checkpoint = Checkpoint((0,) * len(self.lanes))
        self.checkpoints = Checkpoints()
        self._clock_ms = 0.0

    def run(self) -> None:
        """Run to the end of the input, through all crashes."""
        while not self._attempt():
            self.lingers = self.faults.linger > 0 and self.random.random() < self.faults.linger
            if self.lingers:
                own = {name: getattr(self, name) for name in _OF_AN_ATTEMPT}
                self._old.append(_Old(own, self.random.randint(1, _OLD_STEPS_MAX)))
                self.lingered += 1
            else:
                self.close_attempt(write=self.random.random() < 0.3)  # a stop, which writes what is buffered, or a kill
            self.crashes += 1
            self.before_restore()
        while self._old:
            self._go_on(self._old[0])
        self.close_attempt(write=True)

    # -- one attempt ----------------------------------------------------------------------------------------------

    def _attempt(self) -> bool:
        """From the last checkpoint to the end (True) or to a crash (False)."""
        self._start()
        faults, rng = self.faults, self.random
        while not self._ended or self._waiting:
            if self.crashes < faults.crashes and rng.random() < faults.crash:
                return False
            if self._old and rng.random() < 0.5:
                self._go_on(rng.choice(self._old))
            self._step()
        return True

    def _step(self) -> None:
        """Perhaps a tick and a barrier, then a delivery, some input, or the end of it."""
        faults, rng = self.faults, self.random
        self.steps += 1
        if rng.random() < faults.tick:
            self._clock_ms += rng.choice([1, 5, 30])
            self._do(_PARTITIONER, self._partitioner.tick(self._clock_ms))
        if not self._is_old and self._barrier_at is None and rng.random() < faults.barrier:
            self._begin_checkpoint()
        if self._before_barrier and rng.random() < 0.3:
            self._begin_barrier()
        if self._waiting and (self._ended or rng.random() >= faults.feed):
            self._deliver()
        elif left := self._left():
            self._feed(left[0] if len(left) == 1 else rng.choice(left))
        elif self._before_barrier:
            self._begin_barrier()
        elif any(to == _PARTITIONER for _, to in self._waiting):
            self._deliver()
        elif not self._ended:
            self._do(_PARTITIONER, self._partitioner.finish())
            self._ended = True

    def _left(self) -> list[int]:
        """The lanes with events to read, of those that are there; if these have none, all."""
        left = [k for k, lane in enumerate(self.lanes) if self._positions[k] < len(lane)]
        return [k for k in left if self.steps >= self.appears.get(k, 0)] or left

    def _go_on(self, old: _Old) -> None:
        """A step of an attempt that was thought dead; an error, but none of what readers see, is the end of it."""
        with self._as(old):
            try:
                self._step()
                old.steps -= 1
                if old.steps > 0 and (self._waiting or not self._ended):
                    return
                self.close_attempt(write=self.random.random() < 0.3)
            except AssertionError:
                raise
            except Exception:
                self._close_failed()
        self._old.remove(old)

    def _close_failed(self) -> None:
        try:
            self.close_attempt(write=False)
        except AssertionError:
            raise
        except Exception:
            pass  # it is dead

    @contextmanager
    def _as(self, old: _Old) -> Iterator[None]:
        """Act as an attempt that was thought dead."""
        own = {name: getattr(self, name) for name in _OF_AN_ATTEMPT}
        vars(self).update(old.own)
        self._is_old = True
        try:
            yield
        finally:
            old.own = {name: getattr(self, name) for name in _OF_AN_ATTEMPT}
            vars(self).update(own)
            self._is_old = False

    def _start(self) -> None:
        # every attempt deals the parts to other tasks, as a job does that is resumed with another parallelism
        readers = self.readers()
        by_topic = (readers,) * len(self.settings.topics) if readers else ()
        settings = replace(_dealt(self.settings, self.tasks()), readers=by_topic)
        self._reader_of = [self._drawn_reader(lane, readers) for lane in self.lanes] if readers else []
        self._before_barrier: list[Place] = []  # readers where the newest barrier has not begun
        self._flow = dataflow_of(settings, self.plan)
        self._channels: dict[tuple[Place, Place], deque[Block | bytes | None]] = {}
        self._waiting: list[tuple[Place, Place]] = []
        self._blocked: dict[Place, set[Place]] = {}
        self._barrier_at: Checkpoint | None = None
        self._at_barrier: set[Place] = set()
        self._ended = False
        self.checkpoints.abort()
        self._backends: dict[Place, DictBackend] = {}
        self._positions = list(self.checkpoint.positions)
        self._partitioner = make_partitioner(settings, self.plan, self.log)
        self._restore(_PARTITIONER, self._partitioner)
        self._under_way = UnderWay()
        self._under_way.expect(place.number for place in self._flow[SINK].places)
        self._partitioner.watch(self._under_way)
        self._stages = stages_of(settings, self.plan, core_of=self.core_of, inbox_bytes=self.faults.inbox_bytes)
        for place, stage in self._stages.items():
            self._restore(place, stage)
        for outcome in self._partitioner.begin(self._clock_ms):
            self._do(_PARTITIONER, outcome)

    def _drawn_reader(self, lane: Events, readers: int) -> Place:
        if lane.end_source not in self.settings.topics:
            return Place(PARSER, 0)
        return Place(topic_parser(lane.end_source), self.random.randrange(readers))

    def core_of(self, settings: Settings, plan: AnyPlan, row: Operator, task: int) -> Any:
        """The core of an operator's task; the Sink's is what the test made of it."""
        parts = settings.task_parts.of(row.name).parts_of[task]
        return self.make_sink(parts) if row.kind == SINK else make_core(settings, plan, row, task)

    def close_attempt(self, write: bool) -> None:
        held: list[Mapping[str, AnyLevel]] = [stage.levels for stage in self._stages.values()]
        for levels in (self._partitioner.levels, *held):
            for name, level in levels.items():
                if name.endswith("_file_bytes"):
                    self.aside_bytes[name] = max(self.aside_bytes.get(name, 0), level.peak)
        self._partitioner.lanes.close()
        for stage in self._stages.values():
            stage.inbox.close()
            stage.core.close(write=write)

    def _restore(self, place: Place, stage: Any) -> None:
        states = [Place(place.operator, part) for part in getattr(stage, "parts", (0,))]
        for state in states:
            self._backends[state] = DictBackend(self.checkpoint.states.get(state))
        self.on_stage(stage)
        stage.restore(*(self._backends[state].items() for state in states))

    def _feed(self, k: int) -> None:
        """Some events of lane `k`: whole messages, in a block or two, between which no barrier comes."""
        lane, begin = self.lanes[k], self._positions[k]
        end = min(begin + self.random.randint(1, 2 * self.settings.sealing.epoch_events), len(lane))
        while end < len(lane) and lane.position[end] == lane.position[end - 1]:
            end += 1
        self._positions[k] = end
        self._clock_ms += self.random.choice([0, 1, 5])
        middle = self.random.randint(begin, end) if len(self.lanes) > 1 else begin
        for first, last in ((begin, middle), (middle, end)):
            if first < last:
                block = lane.slice(first, last).encode()
                if self._reader_of:
                    self._put(self._reader_of[k], _PARTITIONER, block)
                else:
                    self._do(_PARTITIONER, self._partitioner.receive(block, self._clock_ms))

    def _do(self, place: Place, outcome: Outcome) -> None:
        """Apply the state changes of an outcome, and put its messages on their channels."""
        for part, mutations in outcome.mutations.items():
            self._backends[Place(place.operator, part)].apply(mutations.puts, mutations.deletes)
        for message in outcome.messages:
            to = Place(self._flow.receiver(place.operator, message.to), message.task)
            self._put(place, to, message.encoded().block)

    def _put(self, sender: Place, to: Place, item: Block | bytes | None) -> None:
        queue = self._channels.setdefault((sender, to), deque())
        if not queue:
            self._waiting.append((sender, to))
        queue.append(item)

    def _deliver(self) -> None:
        """One item of a drawn channel that is not held back by a barrier."""
        ready = [channel for channel in self._waiting if channel[0] not in self._blocked.get(channel[1], ())]
        if not ready:  # all wait for a barrier that has not begun everywhere
            self._begin_barrier()
            return
        channel = sender, to = ready[self.random.randrange(len(ready))]
        queue = self._channels[channel]
        item = queue.popleft()
        if not queue:
            self._waiting.remove(channel)
        if item is BARRIER:
            self._blocked.setdefault(to, set()).add(sender)
            if len(self._blocked[to]) == len(self._senders(to)):
                self.take_snapshot(to)
                self._blocked[to] = set()
            return
        if to == _PARTITIONER:
            assert isinstance(item, bytes)
            self._do(to, self._partitioner.receive(item, self._clock_ms))
            return
        stage = self._stages[to]
        blocks = stage.offer(item)
        if blocks is not None:
            self._do(to, stage.act(blocks))
            if to.operator == SINK:
                self._under_way.note_applied(to.number, stage.epoch)

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def _begin_checkpoint(self) -> None:
        self.checkpoints.begin()
        self._barrier_at, self._at_barrier = Checkpoint(tuple(self._positions)), set()
        if self._reader_of:
            self._before_barrier = self._senders(_PARTITIONER)
        else:
            self.take_snapshot(_PARTITIONER)

    def _begin_barrier(self) -> None:
        """The barrier at a drawn reader: what it has read up to now is before it."""
        reader = self._before_barrier.pop(self.random.randrange(len(self._before_barrier)))
        checkpoint = self._barrier_at
        assert checkpoint is not None
        now = zip(self._reader_of, self._positions, checkpoint.positions, strict=True)
        checkpoint.positions = tuple(at if mine == reader else before for mine, at, before in now)
        self._put(reader, _PARTITIONER, BARRIER)

    def take_snapshot(self, place: Place) -> None:
        """Copy the keyed state of a place, and send the barrier on."""
        checkpoint = self._barrier_at
        assert checkpoint is not None
        parts = (0,) if place == _PARTITIONER else self._stages[place].parts
        for state in (Place(place.operator, part) for part in parts):
            checkpoint.states[state] = dict(self._backends[state].entries)
        self._at_barrier.add(place)
        journal = sum(len(block) for _, _, block in journaled_blocks(checkpoint.states.get(_PARTITIONER, {})))
        if place == _PARTITIONER and journal != self._partitioner.levels["journal_bytes"].now:
            msg = f"{journal} bytes are journaled, counted are {self._partitioner.levels['journal_bytes']}"
            raise AssertionError(msg)
        if place != _PARTITIONER and self._stages[place].waiting:
            msg = f"{place}: {self._stages[place].waiting} blocks wait at an aligned barrier"
            raise AssertionError(msg)
        for to in self._receivers(place):
            self._put(place, to, BARRIER)
        if len(self._at_barrier) == 1 + len(self._stages) and not self._is_old:  # nobody waits for that one
            self.checkpoint, self._barrier_at = checkpoint, None
            self.checkpoints.complete()

    def _receivers(self, place: Place) -> list[Place]:
        return [to for name in self._flow[place.operator].receivers.values() for to in self._flow[name].places]

    def _senders(self, place: Place) -> list[Place]:
        return [sender for row in self._flow.senders(place.operator) for sender in row.places]

    def rows(self) -> dict[int, Rows]:
        """All rows by epoch, of all sink parts together."""
        merged: dict[int, Rows] = {}
        for part in self.seen.values():
            for epoch, rows in part.items():
                merged.setdefault(epoch, {}).update(rows)
        return merged


def embeddings_after(rows: dict[int, Rows], epoch: int) -> dict[Id, np.ndarray]:
    """The embedding of every live vertex after an epoch."""
    state: Rows = {}
    for number in sorted(rows):
        if number <= epoch:
            state.update(rows[number])
    return {key: np.frombuffer(row, np.float32) for key, row in state.items() if row is not None}
