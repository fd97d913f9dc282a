"""The Splitter: an epoch's net change as one TOPOLOGY block per task (its columns: state/block_columns.py)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

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
from freshet.state.block_columns import (
    ADDED_EDGES,
    CHANGED_EDGES,
    DELETED_EDGES,
    TOPOLOGY,
    Columns,
    EdgeGroup,
    kind_prefix,
    relation_prefix,
)
from freshet.state.codec import Block, Header, seal
from freshet.state.task_parts import TaskParts, grouped


class _Share(NamedTuple):
    """Records of one group that go to one task; all are of one kind or relation, whose number and prefix these are."""

    task: int
    section: int
    prefix: str
    records: np.ndarray  # of the whole group
    places: np.ndarray | slice
    parts: np.ndarray | None  # that the records of the group go to; None: the task has one part alone

    def column(self, k: int) -> np.ndarray:
        """A column of the records."""
        return self.records[k][self.places]

    def to(self, name: str) -> Columns:
        """The parts that the records go to, as a column, where the task has more than one."""
        if self.parts is None:
            return {}
        return {f"{self.prefix}{name}_to": self.parts[self.places].astype(np.int16)}

    def beside(self, values: np.ndarray) -> np.ndarray:
        """Values of an array that stands beside the records."""
        return values[: self.records.shape[1]][self.places]


class _Splitter:
    """Groups of an epoch's records, each in shares."""

    def __init__(self, change: EpochChange, tasks: TaskParts) -> None:
        self._counts, self._tasks, kinds = change.records.counts, tasks, change.kinds
        self._kinds, self._relations = ([""], [""]) if kinds is None else _prefixes(len(kinds), len(kinds.relations))

    def vertices(self, records: np.ndarray, group: int, by: int = TO) -> list[_Share]:
        """Return the shares of a group of vertices, by the part in column `by`."""
        return self._shares(records[:, : self._counts[group]], self._kinds, by)

    def edges(self, records: np.ndarray, group: int) -> list[_Share]:
        """Return the shares of a group of edges."""
        return self._shares(records[:, : self._counts[group]], self._relations, TO)

    def part_of(self, records: np.ndarray) -> np.ndarray:
        """Return the part that records of vertices go to."""
        return records[TO] if len(self._kinds) == 1 else records[TO] // len(self._kinds)

    def _shares(self, records: np.ndarray, prefixes: list[str], by: int) -> list[_Share]:
        tasks, sections = self._tasks, len(prefixes)
        if sections == 1:
            parts = records[by]
            places = grouped(tasks.task_of[parts], tasks.tasks)
            shares = [(task, 0, where) for task, where in enumerate(places)]
        else:
            parts, section = np.divmod(records[TO], np.int32(sections))
            parts = parts if by == TO else records[by]
            found, number = np.unique(tasks.task_of[parts].astype(np.int64) * sections + section, return_inverse=True)
            places = grouped(number, found.size)
            shares = [(*divmod(of, sections), where) for of, where in zip(found.tolist(), places, strict=True)]
        return [
            _Share(task, k, prefixes[k], records, where, parts if len(tasks.parts_of[task]) > 1 else None)
            for task, k, where in shares
        ]


@lru_cache(maxsize=8)
def _prefixes(kinds: int, relations: int) -> tuple[list[str], list[str]]:
    return [kind_prefix(k) for k in range(kinds)], [relation_prefix(k) for k in range(relations)]


def split(
    change: EpochChange, tasks: TaskParts, ctl: np.ndarray, epoch: int, positions: Mapping[str, np.ndarray]
) -> list[Block]:
    """One block per task, in the order of tasks; each carries `ctl`, the first one `positions`."""
    records, counts = change.records, change.records.counts
    shared: list[Columns] = [{"ctl": ctl} for _ in range(tasks.tasks)]
    shared[0].update(positions)
    splitter = _Splitter(change, tasks)
    _masters(change, splitter, shared)
    if tasks.parts > 1 and counts[[REPLICAS, FREED, SPLIT, WHOLE]].any():
        _replicas(change, splitter, shared)
    for group, found, count in (
        (DELETED_EDGES, records.deleted, DELETED),
        (CHANGED_EDGES, records.reweighted, REWEIGHTED),
        (ADDED_EDGES, records.added, ADDED),
    ):
        if counts[count]:
            for share in splitter.edges(found, count):
                _edges(change, group, share, shared[share.task])
    if counts[FEATURES]:
        for share in splitter.vertices(records.features, FEATURES):
            columns, p = shared[share.task], share.prefix
            columns |= share.to("x0")
            columns[f"{p}x0_slot"] = share.column(SLOT)
            for name, column in change.x.of_kind(share.section, share.column(X_ROW)).columns("x0").items():
                columns[p + name] = column
    # Copies: the records are the core's, and the next epoch overwrites them.
    return [
        seal(Header(TOPOLOGY, epoch, 0, task), {name: column.copy() for name, column in columns.items() if column.size})
        for task, columns in enumerate(shared)
    ]


def _edges(change: EpochChange, group: EdgeGroup, share: _Share, columns: Columns) -> None:
    """Columns of edges that were added, changed or deleted."""
    p, width = share.prefix, None
    src, dst, *values = group.names
    if change.kinds is not None:
        width = change.kinds.relations[share.section].edge_width
        if not width and group is CHANGED_EDGES and change.attr is not None:
            share = _with_new_values(share, len(values))
    columns |= share.to(group.name)
    columns[p + src], columns[p + dst] = share.column(SLOT), share.column(DST_SLOT)
    for k, name in enumerate(values, EDGE_VALUES):
        columns[p + name] = share.column(k).view(np.float32)
    if change.attr is not None and width != 0:
        columns[p + group.type] = share.column(EDGE_VALUES + len(values))
        if group.has_attr:
            attr = change.attr[share.column(EDGE_VALUES + len(values) + 1)]
            columns[p + group.attr] = attr if width is None else attr[:, :width]


def _with_new_values(share: _Share, values: int) -> _Share:
    """Return changed edges without those that were only added again, as they have no attributes that may differ."""
    old = [share.records[k].view(np.float32) for k in range(EDGE_VALUES, EDGE_VALUES + values // 2)]
    new = [share.records[k].view(np.float32) for k in range(EDGE_VALUES + values // 2, EDGE_VALUES + values)]
    differ = np.any([one != other for one, other in zip(old, new, strict=True)], axis=0)
    every = np.arange(len(differ))[share.places]
    return share._replace(places=every[differ[every]])


def _masters(change: EpochChange, splitter: _Splitter, shared: list[Columns]) -> None:
    """Columns of new masters, of those that go, and of those with a new context."""
    records, counts = change.records, change.records.counts
    for share in splitter.vertices(records.born, BORN) if counts[BORN] else ():
        columns, p = shared[share.task], share.prefix
        columns |= share.to("m")
        columns[f"{p}m_slot"] = share.column(SLOT)
        columns[f"{p}m_key"] = share.beside(records.born_keys)
        if change.names is not None:
            rows = np.arange(int(counts[BORN]))
            columns[f"{p}m_off"], columns[f"{p}m_name"] = _names_of(change.names, share.beside(rows))
    for share in splitter.vertices(records.dead, DEAD) if counts[DEAD] else ():
        columns, p = shared[share.task], share.prefix
        columns |= share.to("d")
        columns[f"{p}d_slot"] = share.column(SLOT)
        columns[f"{p}d_key"] = share.beside(records.dead_keys)
    for share in splitter.vertices(records.contexts, CONTEXTS) if counts[CONTEXTS] else ():
        columns, p = shared[share.task], share.prefix
        columns |= share.to("c")
        columns[f"{p}c_slot"] = share.column(SLOT)
        columns[f"{p}c_count"] = share.column(IN_EDGES)
        columns[f"{p}c_degree"] = share.beside(records.degrees)
        columns[f"{p}c_loop"] = share.column(LOOP_WEIGHT).view(np.float32)
        if len(records.out_degrees):
            columns[f"{p}c_out_count"] = share.column(OUT_EDGES)
            columns[f"{p}c_out_degree"] = share.beside(records.out_degrees)


def _replicas(change: EpochChange, splitter: _Splitter, shared: list[Columns]) -> None:
    """Columns of replicas, where they are and at their masters, and of masters that become split or whole."""
    records = change.records
    for share in splitter.vertices(records.replicas, REPLICAS):
        columns, p = shared[share.task], share.prefix
        columns |= share.to("r")
        columns[f"{p}r_slot"] = share.column(SLOT)
        columns[f"{p}r_part"] = share.column(HOME_PART).astype(np.int16)
        columns[f"{p}r_home"] = share.column(HOME_SLOT)
    for share in splitter.vertices(records.replicas, REPLICAS, by=HOME_PART):
        columns, p = shared[share.task], share.prefix
        columns |= share.to("ra")
        columns[f"{p}ra_slot"] = share.column(HOME_SLOT)
        columns[f"{p}ra_part"] = share.beside(splitter.part_of(share.records)).astype(np.int16)
        columns[f"{p}ra_rslot"] = share.column(SLOT)
    for share in splitter.vertices(records.retired, RETIRED):
        columns, p = shared[share.task], share.prefix
        columns |= share.to("rd")
        columns[f"{p}rd_slot"] = share.column(SLOT)
        columns[f"{p}rd_part"] = share.column(REPLICA_PART).astype(np.int16)
    for name, group, found in (("f", FREED, records.freed), ("s", SPLIT, records.split), ("u", WHOLE, records.whole)):
        for share in splitter.vertices(found, group):
            shared[share.task] |= share.to(name)
            shared[share.task][f"{share.prefix}{name}_slot"] = share.column(SLOT)


def _names_of(names: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and bytes of some of the names."""
    offsets, data = names
    if rows.size == offsets.size - 1:
        return names
    if not rows.size:
        return offsets[:0], data[:0]
    some = Ids(STRING, offsets=offsets, data=data).take(rows)
    return some.offsets, some.data
