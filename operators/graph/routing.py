"""Receivers of data: changed rows go to the tasks of their replicas, partial synopses to those of their masters."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch
from freshet.operators.graph.part_columns import (
    PartColumns,
    PartsRead,
    cells_of,
    first_cell,
    number_in,
    part_in,
    prefetch_cells,
)
from freshet.operators.graph.part_rows import PartRows
from freshet.state.adjacency import Data, ListsRead
from freshet.state.task_parts import TaskParts

_AHEAD = 8


class Replicas(NamedTuple):
    """The replicas in one task of some vertices: each gets row `row` of those that the task is sent.

    `sent` says which rows these are, each once. Shapes: to (n,) int16; slot, row (n,) int32; sent (m,) int32.
    """

    to: np.ndarray
    slot: np.ndarray
    row: np.ndarray
    sent: np.ndarray


@inner
def _as_columns(dense: np.ndarray) -> PartsRead:
    return PartsRead(Data(dense), ListsRead(Data(dense), Data(dense.reshape(-1)), 0, 0, 0), False)


@inner
def _as_lists(lists: ListsRead) -> PartsRead:
    return PartsRead(Data(lists.head.data), lists, True)


def _parts_of(form: np.ndarray | ListsRead) -> PartsRead:
    """Columns or lists, in a kernel that reads nothing else: compiled for each, and handed nothing of the other."""
    return _as_columns(form) if isinstance(form, np.ndarray) else _as_lists(form)


@overload(_parts_of, jit_options={"forceinline": True})
def _typed_parts_of(form: Any) -> Any:
    read = _as_columns if isinstance(form, types.Array) else _as_lists

    def parts(form: Any) -> Any:
        return read(form)

    return parts


@kernel
def _count(
    form: np.ndarray | ListsRead, slots: np.ndarray, task_of: np.ndarray, replicas: np.ndarray, rows: np.ndarray
) -> None:
    """Count for each task the replicas that these vertices have there, and the vertices that have some there."""
    replica = _parts_of(form)
    for i in range(len(slots)):
        prefetch_cells(replica, slots, i)
        first, last = first_cell(replica, slots[i]), np.int64(-1)
        for k in range(cells_of(replica, slots[i])):
            if number_in(replica, slots[i], first, k) >= 0:
                task = np.int64(task_of[part_in(replica, first, k)])
                replicas[task] += 1
                if task != last:
                    rows[task] += 1
                    last = task


@kernel
def _fill(
    form: np.ndarray | ListsRead,
    slots: np.ndarray,
    task_of: np.ndarray,
    at_replica: np.ndarray,
    at_row: np.ndarray,
    first_row: np.ndarray,
    own: int,
    out: Replicas,
) -> None:
    """Write the replicas, task by task from `at_replica` on, and the rows that each task is sent from `at_row` on.

    The own task has all rows: its replicas say which one of them is theirs.
    """
    replica = _parts_of(form)
    for i in range(len(slots)):
        first, last = first_cell(replica, slots[i]), np.int64(-1)
        for cell in range(cells_of(replica, slots[i])):
            there = number_in(replica, slots[i], first, cell)
            if there < 0:
                continue
            part = part_in(replica, first, cell)
            task = np.int64(task_of[part])
            if task != last:
                out.sent[at_row[task]] = i
                at_row[task] += 1
                last = task
            k = at_replica[task]
            at_replica[task] += 1
            out.to[k], out.slot[k] = part, there
            out.row[k] = i if task == own else at_row[task] - 1 - first_row[task]


def route_rows(replica: PartColumns, slots: np.ndarray, to: TaskParts, own: int) -> list[Replicas]:
    """Return, for each task, the replicas there of the vertices in `slots`, in the order of `slots`, then of parts.

    `own` is the task that has all rows anyway; -1 for none.
    """
    tasks, task_of = to.tasks, to.task_of
    replicas, rows = np.zeros(tasks + 1, np.int64), np.zeros(tasks + 1, np.int64)
    _count(replica.form, slots, task_of, replicas[1:], rows[1:])
    ends, row_ends = np.cumsum(replicas), np.cumsum(rows)
    n, m = int(ends[-1]), int(row_ends[-1])
    out = Replicas(np.empty(n, np.int16), np.empty(n, np.int32), np.empty(n, np.int32), np.empty(m, np.int32))
    into = ends[:-1].copy(), row_ends[:-1].copy(), row_ends, own, out
    _fill(replica.form, slots, task_of, *into)
    found = []
    for task in range(tasks):
        mine = slice(ends[task], ends[task + 1])
        found.append(
            Replicas(out.to[mine], out.slot[mine], out.row[mine], out.sent[row_ends[task] : row_ends[task + 1]])
        )
    return found


class Partials(NamedTuple):
    """Partial synopses by the task of their master: those for task t are from `ends[t]` to `ends[t + 1]`.

    Shapes: rows (n,) int32, where the synopses lie; source, to (n,) int16, the parts of synopsis and master; slot (n,)
    int32, the master's.
    """

    rows: np.ndarray
    source: np.ndarray
    to: np.ndarray
    slot: np.ndarray
    ends: np.ndarray


@kernel
def _find_masters(
    rows: np.ndarray,
    flags: np.ndarray,
    split: int,
    home: np.ndarray,
    first: int,
    shift: int,
    task_of: np.ndarray,
    to: np.ndarray,
    slot: np.ndarray,
    ends: np.ndarray,
) -> None:
    """Write each row's master, -1 for those without a partial, and count the rows for each task in `ends[1:]`."""
    n, below = len(rows), (1 << shift) - 1
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(flags, np.int64(rows[i + _AHEAD]))
            prefetch(home, np.int64(rows[i + _AHEAD]) * 2)
        row = rows[i]
        if flags[row] == 0:  # a replica, or nothing any more
            to[i], slot[i] = home[row, 0], home[row, 1]
        elif flags[row] == split:
            to[i], slot[i] = first + (row >> shift), row & below
        else:
            to[i] = -1
        if to[i] >= 0:
            ends[1 + task_of[to[i]]] += 1


@kernel
def _deal_partials(
    rows: np.ndarray,
    first: int,
    shift: int,
    task_of: np.ndarray,
    to: np.ndarray,
    slot: np.ndarray,
    at: np.ndarray,
    dealt: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """Write those rows that have a master in the order of tasks, from `at` on."""
    for i in range(len(rows)):
        if to[i] < 0:
            continue
        task = task_of[to[i]]
        k = at[task]
        at[task] += 1
        dealt[0][k], dealt[1][k], dealt[2][k], dealt[3][k] = rows[i], first + (rows[i] >> shift), to[i], slot[i]


def route_partials(rows: np.ndarray, flags: np.ndarray, split: int, home: np.ndarray, at: PartRows) -> Partials:
    """The partial synopses among these rows: of masters whose flags are `split`, and of replicas.

    Shapes: flags (rows of the tables,) uint8; home (rows of the tables, 2) int32, part and slot of a replica's master.
    """
    tasks, n = at.tasks, len(rows)
    to, slot = np.empty(n, np.int16), np.empty(n, np.int32)
    ends = np.zeros(tasks.tasks + 1, np.int64)
    _find_masters(rows, flags, split, home, at.first, at.shift, tasks.task_of, to, slot, ends)
    ends = np.cumsum(ends)
    m = int(ends[-1])
    dealt = np.empty(m, np.int32), np.empty(m, np.int16), np.empty(m, np.int16), np.empty(m, np.int32)
    _deal_partials(rows, at.first, at.shift, tasks.task_of, to, slot, ends[:-1].copy(), dealt)
    return Partials(*dealt, ends)
