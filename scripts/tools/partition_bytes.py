"""Bytes that a model's operators send each other under a partitioner, counted while they run on the stream."""

from __future__ import annotations

from pathlib import Path

from freshet.job.size.traffic import CountingNetwork, Link
from freshet.operators.control import control_values
from freshet.operators.dataflow import PARTITIONER, SINK, STORAGE, Place
from freshet.operators.factory import dataflow_of, load_plan, stages_of
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.net_change import EpochChange


class Layers:
    """The Storages and tails of a model without the Sink, each part in a task of its own.

    Units: `nbytes` are those of all epochs but a snapshot's. Rows for the Sink are the same with every partitioner, and
    are left out.
    """

    def __init__(self, model: Path, parts: int, partitioning: PartitionerConfig) -> None:
        settings, plan = Settings(str(model), "", parts, partitioning), load_plan(str(model))
        flow = dataflow_of(settings, plan)
        rows = [row for row in flow.staged if row.kind != SINK]
        self._network = CountingNetwork(flow, stages_of(settings, plan, rows, epoch=-1))
        self._epoch = self.nbytes = 0

    def take(self, core: Partitioner, change: EpochChange, *, snapshot: bool) -> None:
        """Have what an epoch changes go through the layers."""
        network = self._network
        blocks = core.split(change, control_values(vertices=core.vertices), self._epoch)
        messages = [Message(STORAGE, task, self._epoch, block) for task, block in enumerate(blocks)]
        network.send(Place(PARTITIONER, 0), messages)
        while not network.idle:
            network.step()
        network.outside.clear()
        self._epoch += 1
        if not snapshot:
            self.nbytes += sum(size for link, size in network.nbytes.items() if _leaves_part(link))
        network.nbytes.clear()


def _leaves_part(link: Link) -> bool:
    return link.receiver != SINK and (link.sender == PARTITIONER or not link.beside)
