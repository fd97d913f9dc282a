"""Bytes that a model's operators send each other under a partitioner, counted while they run on the stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from freshet.operators.control import control_values
from freshet.operators.dataflow import PARTITIONER, SINK, STORAGE, Dataflow, Place
from freshet.operators.factory import dataflow_of, load_plan, stages_of
from freshet.operators.network import Network
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.operators.stage import Stage
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.net_change import EpochChange


class _Counting(Network):
    """Counts the bytes of blocks that leave a part: those of the Partitioner, and those for another part."""

    def __init__(self, flow: Dataflow, stages: Mapping[Place, Stage]) -> None:
        super().__init__(flow, stages)
        self.nbytes = 0

    def send(self, sender: Place, messages: Iterable[Message]) -> None:
        sent = list(messages)
        for one in sent:
            if one.to != SINK and (sender.operator == PARTITIONER or one.task != sender.number):
                self.nbytes += len(one.block) if isinstance(one.block, bytes) else one.block.nbytes
        super().send(sender, sent)


class Layers:
    """The Storages and tails of a model without the Sink, each part in a task of its own.

    Units: `nbytes` are those of all epochs but a snapshot's. Rows for the Sink are the same with every partitioner, and
    are left out.
    """

    def __init__(self, model: Path, parts: int, partitioning: PartitionerConfig) -> None:
        settings, plan = Settings(str(model), "", parts, partitioning), load_plan(str(model))
        flow = dataflow_of(settings, plan)
        rows = [row for row in flow.staged if row.kind != SINK]
        self._network = _Counting(flow, stages_of(settings, plan, rows, epoch=-1))
        self._epoch = 0

    def take(self, core: Partitioner, change: EpochChange, *, snapshot: bool) -> None:
        """Have what an epoch changes go through the layers."""
        network, before = self._network, self._network.nbytes
        blocks = core.split(change, control_values(vertices=core.vertices), self._epoch)
        messages = [Message(STORAGE, task, self._epoch, block) for task, block in enumerate(blocks)]
        network.send(Place(PARTITIONER, 0), messages)
        while not network.idle:
            network.step()
        network.outside.clear()
        self._epoch += 1
        if snapshot:
            network.nbytes = before

    @property
    def nbytes(self) -> int:
        """Bytes that have left a part so far."""
        return self._network.nbytes
