"""Rows go to the tasks of their replicas, each once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from freshet.operators.graph.part_columns import PartColumns
from freshet.operators.graph.routing import route_rows
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts


def columns_of(replica: np.ndarray) -> PartColumns:
    """The same slots, as an operator keeps them."""
    columns = PartColumns(TableSet(), "replica", replica.shape[1])
    columns.rows.reserve(len(replica))
    slots, parts = np.nonzero(replica >= 0)
    columns.put(slots.astype(np.int32), parts.astype(np.int16), replica[slots, parts])
    return columns


@given(st.integers(0, 10_000), st.integers(1, 9) | st.integers(14, 40), st.integers(1, 9), st.integers(0, 12))
def test_each_replica_is_told_which_row_is_its_own(seed: int, parts: int, tasks: int, changed: int) -> None:
    rng = np.random.default_rng(seed)
    dealt = TaskParts.dealt(parts, min(tasks, parts))
    task = int(rng.integers(dealt.tasks))
    replica = rng.integers(-1, 6, (40, parts)).astype(np.int32)
    slots = rng.permutation(40)[:changed].astype(np.int32)
    found = route_rows(columns_of(replica), slots, dealt, task)
    for to, replicas in enumerate(found):
        rows = replicas.row if to == task else replicas.sent[replicas.row]
        told = {
            (int(slots[row]), int(part), int(slot))
            for row, part, slot in zip(rows, replicas.to, replicas.slot, strict=True)
        }
        assert told == {
            (int(slot), part, int(replica[slot, part]))
            for slot in slots
            for part in dealt.parts_of[to]
            if replica[slot, part] >= 0
        }
        assert len(set(replicas.sent.tolist())) == replicas.sent.size, "a row is sent once"
