"""Bytes that operators send, and processor time that they take, an event and an epoch: counted in a miniature job.

Edges of the small graph (miniature.py) are deleted and added again. Its tables are small, so memory is faster than in a
large job; what an event changes does not depend on the size, since the graph has the same edges a vertex.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from freshet.job.size.miniature import (
    GraphSize,
    OperatorBytes,
    epochs_of,
    halvings_of,
    held_of,
    settings_of,
    smaller,
    take,
)
from freshet.operators.dataflow import PARTITIONER, SINK, Dataflow, Place
from freshet.operators.factory import dataflow_of, plan_of, stages_of
from freshet.operators.network import Network
from freshet.operators.outcome import Message, Outcome
from freshet.operators.stage import Stage
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import OP_ADD_EDGE, OP_DEL_EDGE, Events
from freshet.state.task_parts import TaskParts

_ROUNDS, _EMPTY = 12, 20  # epochs of deletions, each followed by one of additions; epochs without events
_EVENTS, _FEW = 1000, 64  # of an epoch; as few as change hardly a row of the small graph twice


_Measured = tuple[dict["Link", float], dict[str, float]]


class Link(NamedTuple):
    """A channel between two operators; with `beside`, of tasks with the same number."""

    sender: str
    receiver: str
    beside: bool


class CountingNetwork(Network):
    """Counts the bytes of blocks by link, and the processor time of operators in seconds."""

    def __init__(self, flow: Dataflow, stages: Mapping[Place, Stage]) -> None:
        super().__init__(flow, stages)
        self.nbytes: dict[Link, int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)
        self.epoch = 0

    def send(self, sender: Place, messages: Iterable[Message]) -> None:
        """Count messages, and put them on their channels."""
        sent = list(messages)
        for one in sent:
            receiver = self._flow.receiver(sender.operator, one.to)
            size = len(one.block) if isinstance(one.block, bytes) else one.block.nbytes
            self.nbytes[Link(sender.operator, receiver, one.task == sender.number)] += size
        super().send(sender, sent)

    def step(self) -> tuple[Place, Outcome] | None:
        """Deliver a block, and count the time of what the receiver does."""
        began, receiver = time.thread_time(), self._waiting[0][1].operator
        done = super().step()
        self.seconds[receiver] += time.thread_time() - began
        return done


@dataclass(frozen=True)
class MeasuredJob:
    """Memory and messages of a job with some tasks for each layer.

    `held` are the bytes of each operator's task in the whole graph. `event` and `epoch` are bytes by link of an event
    that changes an edge, and of an epoch beside its events; `event_s` and `epoch_s` seconds of processor time by
    operator, of all its tasks. `replicas`: rows of a vertex, over all parts.
    """

    held: dict[Place, OperatorBytes]
    event: dict[Link, float]
    epoch: dict[Link, float]
    event_s: dict[str, float]
    epoch_s: dict[str, float]
    replicas: float


def traffic_of(model: Path, shape: GraphSize, tasks: int) -> MeasuredJob:
    """Measure a job whose parts are dealt to that many tasks of each layer; at most one for each part."""
    dealt = TaskParts.dealt(shape.parts, tasks)
    settings = settings_of(model, shape, dealt.counts)
    plan = plan_of(settings)
    halvings = halvings_of(plan, shape)
    core = Partitioner(shape.parts, plan.features, settings.partitioning, dealt)
    flow = dataflow_of(settings, plan)
    network = CountingNetwork(flow, stages_of(settings, plan, [row for row in flow.staged if row.kind != SINK]))
    for stage in network.stages.values():
        stage.restore(*((),) * len(stage.parts))
    graph = list(epochs_of(plan, smaller(shape, halvings)))
    _measured(core, network, graph)
    larger = 1 << halvings
    held = {place: held_of(stage.core.tables, 0, larger) for place, stage in network.stages.items()}
    held[Place(PARTITIONER, 0)] = held_of(core.tables, core.index_bytes, larger)
    last = graph[-1]
    empty = _measured(core, network, [last.slice(0, 0)] * _EMPTY)
    few = _of_events(core, network, _changes(last, max(_FEW, _EVENTS >> halvings)), empty)
    many = _of_events(core, network, _changes(last, _EVENTS), empty)
    merged = sum(few[0].values()) / max(1.0, sum(many[0].values()))  # rows that large epochs change once for twice
    network.close()
    return MeasuredJob(
        held,
        few[0],
        {link: size / _EMPTY for link, size in empty[0].items()},
        {name: spent * max(1.0, merged) for name, spent in many[1].items()},
        {name: spent / _EMPTY for name, spent in empty[1].items()},
        core.stats().replication_factor,
    )


def _of_events(
    core: Partitioner, network: CountingNetwork, epochs: list[Events], empty: _Measured
) -> tuple[dict[Link, float], dict[str, float]]:
    """Return the bytes and seconds of an event, without those that its epoch takes anyway."""
    found, events = _measured(core, network, epochs), max(1, sum(map(len, epochs)))
    share = len(epochs) / _EMPTY
    return (
        {link: max(0.0, size - share * empty[0].get(link, 0.0)) / events for link, size in found[0].items()},
        {name: max(0.0, spent - share * empty[1].get(name, 0.0)) / events for name, spent in found[1].items()},
    )


def _changes(events: Events, each: int) -> list[Events]:
    """Return epochs that delete edges among the events, each followed by one that adds these edges again."""
    rows = np.flatnonzero(events.op == OP_ADD_EDGE)
    found = []
    for k in range(min(_ROUNDS, -(-len(rows) // each))):
        added = events.take(rows[k * each : (k + 1) * each])
        found += [replace(added, op=np.full(len(added), OP_DEL_EDGE, np.uint8)), added]
    return found


def _measured(core: Partitioner, network: CountingNetwork, epochs: list[Events]) -> _Measured:
    """Return the bytes and seconds of these epochs."""
    network.nbytes.clear()
    network.seconds.clear()
    spent = 0.0
    for events in epochs:
        began, inside = time.thread_time(), sum(network.seconds.values())
        network.epoch += 1
        take(core, network, events, network.epoch)
        spent += time.thread_time() - began - (sum(network.seconds.values()) - inside)
    return {link: float(size) for link, size in network.nbytes.items()}, {**network.seconds, PARTITIONER: spent}
