"""Degrees over out-edges: sent of both ends of a changed edge where layers read them, else not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.schema import Features

FIRST = [("add_edge", 0, 1, 2.0), ("add_edge", 0, 2, 0.5), ("add_edge", 1, 0, 4.0), ("add_edge", 0, 0, 8.0)]


def contexts_of(partitioner: Partitioner, *rows: tuple[Any, ...]) -> dict[int, tuple[int, float]]:
    change = partitioner.partition(events_of(rows, Features(1)))
    block = partitioner.split(change, np.zeros(8, np.int64), 1)[0]
    columns = (block.get(name).tolist() for name in ("c_slot", "c_out_count", "c_out_degree"))
    return {slot: (count, degree) for slot, count, degree in zip(*columns, strict=True)}


def test_they_follow_every_change_and_leave_self_loops_out() -> None:
    partitioner = Partitioner(1, Features(1), PartitionerConfig(out_degrees=True))
    assert contexts_of(partitioner, *FIRST) == {0: (2, 2.5), 1: (1, 4.0), 2: (0, 0.0)}
    assert contexts_of(partitioner, ("add_edge", 0, 2, 1.5)) == {0: (2, 3.5), 2: (0, 0.0)}
    assert contexts_of(partitioner, ("del_edge", 0, 1)) == {0: (1, 1.5), 1: (1, 4.0)}
    assert contexts_of(partitioner, ("del_vertex", 2)) == {0: (0, 0.0)}
    assert contexts_of(partitioner, ("add_edge", 1, 0, 4.0)) == {}


@pytest.mark.parametrize("name", ["c_out_count", "c_out_degree"])
def test_they_are_not_sent_where_no_layer_reads_them(name: str) -> None:
    partitioner = Partitioner(1, Features(1), PartitionerConfig())
    change = partitioner.partition(events_of(FIRST, Features(1)))
    block = partitioner.split(change, np.zeros(8, np.int64), 1)[0]
    assert name not in block.columns and sorted(block.get("c_slot").tolist()) == [0, 1, 2]
