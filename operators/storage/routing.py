"""Which task gets what: changed rows to the tasks of their replicas, in one pass over the replica sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnn.kernel import kernel
from operators.storage.part_rows import PartRows
from state.prefetch import prefetch

_AHEAD = 8


class Replicas(NamedTuple):
    """The replicas in one task of some vertices: each gets row `row` of those that the task is sent.

    `sent` says which rows these are, each once. Shapes: to (n,) int16; slot, row (n,) int32; sent (m,) int32.
    """

    to: np.ndarray
    slot: np.ndarray
    row: np.ndarray
    sent: np.ndarray


@kernel
def _count(replica: np.ndarray, slots: np.ndarray, task_of: np.ndarray, replicas: np.ndarray, rows: np.ndarray) -> None:
    """Count for each task the replicas that these vertices have there, and the vertices that have some there."""
    n, parts = len(slots), replica.shape[1]
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(replica, np.int64(slots[i + _AHEAD]) * parts)
        last = np.int64(-1)
        for part in range(parts):
            if replica[slots[i], part] >= 0:
                task = np.int64(task_of[part])
                replicas[task] += 1
                if task != last:
                    rows[task] += 1
                    last = task


@kernel
def _fill(
    replica: np.ndarray,
    slots: np.ndarray,
    task_of: np.ndarray,
    at_replica: np.ndarray,
    at_row: np.ndarray,
    first_row: np.ndarray,
    own: int,
    to: np.ndarray,
    slot: np.ndarray,
    row: np.ndarray,
    sent: np.ndarray,
) -> None:
    """Write the replicas, task by task from `at_replica` on, and the rows that each task is sent from `at_row` on.

    The own task has all rows: its replicas say which one of them is theirs.
    """
    parts = replica.shape[1]
    for i in range(len(slots)):
        last = np.int64(-1)
        for part in range(parts):
            there = replica[slots[i], part]
            if there < 0:
                continue
            task = np.int64(task_of[part])
            if task != last:
                sent[at_row[task]] = i
                at_row[task] += 1
                last = task
            k = at_replica[task]
            at_replica[task] += 1
            to[k], slot[k] = part, there
            row[k] = i if task == own else at_row[task] - 1 - first_row[task]


def route_rows(replica: np.ndarray, slots: np.ndarray, at: PartRows) -> list[Replicas]:
    """For each task the replicas there of the vertices in `slots`, in the order of `slots` and then of parts."""
    tasks, task_of = at.tasks.tasks, at.tasks.task_of
    replicas, rows = np.zeros(tasks + 1, np.int64), np.zeros(tasks + 1, np.int64)
    _count(replica, slots, task_of, replicas[1:], rows[1:])
    ends, row_ends = np.cumsum(replicas), np.cumsum(rows)
    n, m = int(ends[-1]), int(row_ends[-1])
    to, slot, row, sent = np.empty(n, np.int16), np.empty(n, np.int32), np.empty(n, np.int32), np.empty(m, np.int32)
    _fill(replica, slots, task_of, ends[:-1].copy(), row_ends[:-1].copy(), row_ends, at.task, to, slot, row, sent)
    found = []
    for task in range(tasks):
        mine = slice(ends[task], ends[task + 1])
        found.append(Replicas(to[mine], slot[mine], row[mine], sent[row_ends[task] : row_ends[task + 1]]))
    return found
