"""The Splitter: an epoch's net change as one TOPOLOGY block per task (its columns: state/block_columns.py)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from freshet.partitioner.events import STRING, Ids
from freshet.partitioner.net_change import (
    ADDED,
    BORN,
    CONTEXTS,
    DEAD,
    DELETED,
    DST_SLOT,
    EDGE_VALUES,
    FEATURES,
    FREED,
    HOME_PART,
    HOME_SLOT,
    IN_EDGES,
    LOOP_WEIGHT,
    OUT_EDGES,
    REPLICA_PART,
    REPLICAS,
    RETIRED,
    REWEIGHTED,
    SLOT,
    SPLIT,
    TO,
    WHOLE,
    X_ROW,
    EpochChange,
)
from freshet.state.block_columns import ADDED_EDGES, CHANGED_EDGES, DELETED_EDGES, TOPOLOGY, Columns
from freshet.state.codec import Block, Header, seal
from freshet.state.task_parts import TaskParts, grouped


class _Group:
    """The records of one group, by task."""

    def __init__(self, records: np.ndarray, count: int, tasks: TaskParts, by: int = TO) -> None:
        self._records = records[:, :count]
        self._tasks, self._by = tasks, by
        self._places = grouped(tasks.task_of[self._records[by]], tasks.tasks)

    def column(self, k: int, task: int) -> np.ndarray:
        """A column of the task's records."""
        return self._records[k][self._places[task]]

    def to(self, name: str, task: int) -> Columns:
        """The parts that the task's records go to, as a column, where the task has more than one."""
        if len(self._tasks.parts_of[task]) == 1:
            return {}
        return {f"{name}_to": self.column(self._by, task).astype(np.int16)}

    def beside(self, values: np.ndarray, task: int) -> np.ndarray:
        """The task's share of an array that stands beside the records."""
        return values[: self._records.shape[1]][self._places[task]]


def split(
    change: EpochChange, tasks: TaskParts, ctl: np.ndarray, epoch: int, positions: Mapping[str, np.ndarray]
) -> list[Block]:
    """One block per task, in the order of tasks; each carries `ctl`, the first one `positions`."""
    records, counts = change.records, change.records.counts
    shared: list[Columns] = [{"ctl": ctl} for _ in range(tasks.tasks)]
    shared[0].update(positions)
    _masters(change, tasks, shared)
    if tasks.parts > 1 and counts[[REPLICAS, FREED, SPLIT, WHOLE]].any():
        _replicas(change, tasks, shared)
    for group, found, count in (
        (DELETED_EDGES, records.deleted, DELETED),
        (CHANGED_EDGES, records.reweighted, REWEIGHTED),
        (ADDED_EDGES, records.added, ADDED),
    ):
        if counts[count]:
            edges = _Group(found, int(counts[count]), tasks)
            src, dst, *values = group.names
            for task, columns in enumerate(shared):
                columns |= edges.to(group.name, task)
                columns[src], columns[dst] = edges.column(SLOT, task), edges.column(DST_SLOT, task)
                for k, name in enumerate(values, EDGE_VALUES):
                    columns[name] = edges.column(k, task).view(np.float32)
                if change.attr is not None:
                    columns[group.type] = edges.column(EDGE_VALUES + len(values), task)
                    if group.has_attr:
                        columns[group.attr] = change.attr[edges.column(EDGE_VALUES + len(values) + 1, task)]
    if counts[FEATURES]:
        features = _Group(records.features, int(counts[FEATURES]), tasks)
        for task, columns in enumerate(shared):
            columns |= features.to("x0", task)
            columns["x0_slot"] = features.column(SLOT, task)
            columns |= change.x.take(features.column(X_ROW, task)).columns("x0")
    # Copies: the records are the core's, and the next epoch overwrites them.
    return [
        seal(Header(TOPOLOGY, epoch, 0, task), {name: column.copy() for name, column in columns.items() if column.size})
        for task, columns in enumerate(shared)
    ]


def _masters(change: EpochChange, tasks: TaskParts, shared: list[Columns]) -> None:
    """Columns of new masters, of those that go, and of those with a new context."""
    records, counts = change.records, change.records.counts
    if counts[BORN]:
        born = _Group(records.born, int(counts[BORN]), tasks)
        for task, columns in enumerate(shared):
            columns |= born.to("m", task)
            columns["m_slot"] = born.column(SLOT, task)
            columns["m_key"] = born.beside(records.born_keys, task)
            if change.names is not None:
                rows = np.arange(int(counts[BORN]))
                columns["m_off"], columns["m_name"] = _names_of(change.names, born.beside(rows, task))
    if counts[DEAD]:
        dead = _Group(records.dead, int(counts[DEAD]), tasks)
        for task, columns in enumerate(shared):
            columns |= dead.to("d", task)
            columns["d_slot"] = dead.column(SLOT, task)
            columns["d_key"] = dead.beside(records.dead_keys, task)
    if counts[CONTEXTS]:
        contexts = _Group(records.contexts, int(counts[CONTEXTS]), tasks)
        for task, columns in enumerate(shared):
            columns |= contexts.to("c", task)
            columns["c_slot"] = contexts.column(SLOT, task)
            columns["c_count"] = contexts.column(IN_EDGES, task)
            columns["c_degree"] = contexts.beside(records.degrees, task)
            columns["c_loop"] = contexts.column(LOOP_WEIGHT, task).view(np.float32)
            if len(records.out_degrees):
                columns["c_out_count"] = contexts.column(OUT_EDGES, task)
                columns["c_out_degree"] = contexts.beside(records.out_degrees, task)


def _replicas(change: EpochChange, tasks: TaskParts, shared: list[Columns]) -> None:
    """Columns of replicas, where they are and at their masters, and of masters that become split or whole."""
    records, counts = change.records, change.records.counts
    here, at_master = (_Group(records.replicas, int(counts[REPLICAS]), tasks, by) for by in (TO, HOME_PART))
    freed = _Group(records.freed, int(counts[FREED]), tasks)
    retired = _Group(records.retired, int(counts[RETIRED]), tasks)
    becoming_split = _Group(records.split, int(counts[SPLIT]), tasks)
    becoming_whole = _Group(records.whole, int(counts[WHOLE]), tasks)
    for task, columns in enumerate(shared):
        columns |= here.to("r", task)
        columns["r_slot"] = here.column(SLOT, task)
        columns["r_part"] = here.column(HOME_PART, task).astype(np.int16)
        columns["r_home"] = here.column(HOME_SLOT, task)
        columns |= at_master.to("ra", task)
        columns["ra_slot"] = at_master.column(HOME_SLOT, task)
        columns["ra_part"] = at_master.column(TO, task).astype(np.int16)
        columns["ra_rslot"] = at_master.column(SLOT, task)
        columns |= retired.to("rd", task)
        columns["rd_slot"] = retired.column(SLOT, task)
        columns["rd_part"] = retired.column(REPLICA_PART, task).astype(np.int16)
        for name, group in (("f", freed), ("s", becoming_split), ("u", becoming_whole)):
            columns |= group.to(name, task)
            columns[f"{name}_slot"] = group.column(SLOT, task)


def _names_of(names: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and bytes of some of the names."""
    offsets, data = names
    if rows.size == offsets.size - 1:
        return names
    if not rows.size:
        return offsets[:0], data[:0]
    some = Ids(STRING, offsets=offsets, data=data).take(rows)
    return some.offsets, some.data
