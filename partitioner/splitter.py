"""The Splitter: an epoch's net change as one TOPOLOGY block per task (its columns: state/block_columns.py)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from freshet.partitioner.events import STRING, Ids
from freshet.partitioner.net_change import (
    ADDED,
    BORN,
    CONTEXTS,
    DEAD,
    DEGREES,
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

Places = np.ndarray | slice
_Share = tuple[int, int, str, Places]  # task, kind or relation, its prefix, and where its records are


class _Group:
    """The records of one group in shares: each goes to one task, and is of one kind or relation."""

    def __init__(self, records: np.ndarray, tasks: TaskParts, prefixes: list[str], by: int) -> None:
        """`by`: the column with the part whose task gets a record."""
        self._records, self._tasks = records, tasks
        self.shares: list[_Share] = []
        if not records.shape[1]:
            return
        if len(prefixes) == 1:
            self._parts = records[by]
            places = grouped(tasks.task_of[self._parts], tasks.tasks)
            prefix = prefixes[0]
            self.shares = [
                (task, 0, prefix, at) for task, at in enumerate(places) if not isinstance(at, np.ndarray) or at.size
            ]
            return
        section, parts = np.divmod(records[TO], np.int32(tasks.parts))
        self._parts, count = parts if by == TO else records[by], len(prefixes)
        found, number = np.unique(tasks.task_of[self._parts].astype(np.int64) * count + section, return_inverse=True)
        each = zip(found.tolist(), grouped(number, found.size), strict=True)
        self.shares = [(of // count, of % count, prefixes[of % count], at) for of, at in each]

    def column(self, k: int, at: Places) -> np.ndarray:
        """A column of a share's records."""
        return self._records[k][at]

    def to(self, name: str, task: int, at: Places) -> Columns:
        """The parts that a share's records go to, as a column, where the task has more than one."""
        if len(self._tasks.parts_of[task]) == 1:
            return {}
        return {f"{name}_to": self._parts[at].astype(np.int16)}

    def beside(self, values: np.ndarray, at: Places) -> np.ndarray:
        """A share of an array that stands beside the records."""
        return values[: self._records.shape[1]][at]


class _Splitter:
    """Groups of an epoch's records."""

    def __init__(self, change: EpochChange, tasks: TaskParts) -> None:
        self._counts, self._tasks, kinds = change.records.counts, tasks, change.kinds
        self._kinds, self._relations = ([""], [""]) if kinds is None else _prefixes(len(kinds), len(kinds.relations))

    def vertices(self, records: np.ndarray, group: int, by: int = TO) -> _Group:
        """Return a group of vertices."""
        return _Group(records[:, : self._counts[group]], self._tasks, self._kinds, by)

    def edges(self, records: np.ndarray, group: int) -> _Group:
        """Return a group of edges, or of what vertices have of a relation."""
        return _Group(records[:, : self._counts[group]], self._tasks, self._relations, TO)

    def part_of(self, to: np.ndarray) -> np.ndarray:
        """Return the parts that records of vertices go to, from their column TO."""
        return to if len(self._kinds) == 1 else to % self._tasks.parts


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
            edges = splitter.edges(found, count)
            for share in edges.shares:
                _edges(change, group, edges, share, shared[share[0]])
    if counts[FEATURES]:
        features = splitter.vertices(records.features, FEATURES)
        for task, kind, p, at in features.shares:
            if change.kinds is not None and not change.kinds.widths[kind]:  # such vertices have none
                continue
            columns = shared[task]
            columns |= features.to(p + "x0", task, at)
            columns[p + "x0_slot"] = features.column(SLOT, at)
            for name, column in change.x.of_kind(kind, features.column(X_ROW, at)).columns("x0").items():
                columns[p + name] = column
    # Copies: the records are the core's, and the next epoch overwrites them.
    return [
        seal(Header(TOPOLOGY, epoch, 0, task), {name: column.copy() for name, column in columns.items() if column.size})
        for task, columns in enumerate(shared)
    ]


def _edges(change: EpochChange, group: EdgeGroup, edges: _Group, share: _Share, columns: Columns) -> None:
    """Columns of edges that were added, changed or deleted."""
    task, relation, p, at = share
    src, dst, *values = group.names
    width = None
    if change.kinds is not None:
        width = change.kinds.relations[relation].edge_width
        if not width and group is CHANGED_EDGES and change.attr is not None:
            at = _with_new_values(edges, at, len(values) // 2)
    columns |= edges.to(p + group.name, task, at)
    columns[p + src], columns[p + dst] = edges.column(SLOT, at), edges.column(DST_SLOT, at)
    for k, name in enumerate(values, EDGE_VALUES):
        columns[p + name] = edges.column(k, at).view(np.float32)
    if change.attr is not None and width != 0:
        columns[p + group.type] = edges.column(EDGE_VALUES + len(values), at)
        if group.has_attr:
            attr = change.attr[edges.column(EDGE_VALUES + len(values) + 1, at)]
            columns[p + group.attr] = attr if width is None else attr[:, :width]


def _with_new_values(edges: _Group, at: Places, values: int) -> np.ndarray:
    """Return the changed ones of these edges, without those that were only added again: they have no attributes."""
    old, new = (
        [edges.column(k, at).view(np.float32) for k in range(first, first + values)]
        for first in (EDGE_VALUES, EDGE_VALUES + values)
    )
    differ = np.any([one != other for one, other in zip(old, new, strict=True)], axis=0)
    places: np.ndarray = np.flatnonzero(differ) if isinstance(at, slice) else at[differ]
    return places


def _masters(change: EpochChange, splitter: _Splitter, shared: list[Columns]) -> None:
    """Columns of new masters, of those that go, and of those with a new context."""
    records, counts = change.records, change.records.counts
    if counts[BORN]:
        born = splitter.vertices(records.born, BORN)
        for task, _, p, at in born.shares:
            columns = shared[task]
            columns |= born.to(p + "m", task, at)
            columns[p + "m_slot"] = born.column(SLOT, at)
            columns[p + "m_key"] = born.beside(records.born_keys, at)
            if change.names is not None:
                rows = np.arange(int(counts[BORN]))
                columns[p + "m_off"], columns[p + "m_name"] = _names_of(change.names, born.beside(rows, at))
    if counts[DEAD]:
        dead = splitter.vertices(records.dead, DEAD)
        for task, _, p, at in dead.shares:
            columns = shared[task]
            columns |= dead.to(p + "d", task, at)
            columns[p + "d_slot"] = dead.column(SLOT, at)
            columns[p + "d_key"] = dead.beside(records.dead_keys, at)
    if counts[CONTEXTS]:
        contexts = splitter.vertices(records.contexts, CONTEXTS)
        for task, _, p, at in contexts.shares:
            columns = shared[task]
            columns |= contexts.to(p + "c", task, at) | _context(contexts, records.degrees, at, p)
            if len(records.out_degrees):
                columns[p + "c_out_count"] = contexts.column(OUT_EDGES, at)
                columns[p + "c_out_degree"] = contexts.beside(records.out_degrees, at)
    if counts[DEGREES]:
        degrees = splitter.edges(records.degrees_in, DEGREES)
        for task, _, p, at in degrees.shares:
            shared[task] |= degrees.to(p + "c", task, at) | _context(degrees, records.sums_in, at, p)


def _context(of: _Group, degrees: np.ndarray, at: Places, p: str) -> Columns:
    """Columns of the in-edges of a share's vertices."""
    return {
        p + "c_slot": of.column(SLOT, at),
        p + "c_count": of.column(IN_EDGES, at),
        p + "c_degree": of.beside(degrees, at),
        p + "c_loop": of.column(LOOP_WEIGHT, at).view(np.float32),
    }


def _replicas(change: EpochChange, splitter: _Splitter, shared: list[Columns]) -> None:
    """Columns of replicas, where they are and at their masters, and of masters that become split or whole."""
    records = change.records
    here = splitter.vertices(records.replicas, REPLICAS)
    for task, _, p, at in here.shares:
        columns = shared[task]
        columns |= here.to(p + "r", task, at)
        columns[p + "r_slot"] = here.column(SLOT, at)
        columns[p + "r_part"] = here.column(HOME_PART, at).astype(np.int16)
        columns[p + "r_home"] = here.column(HOME_SLOT, at)
    at_master = splitter.vertices(records.replicas, REPLICAS, by=HOME_PART)
    for task, _, p, at in at_master.shares:
        columns = shared[task]
        columns |= at_master.to(p + "ra", task, at)
        columns[p + "ra_slot"] = at_master.column(HOME_SLOT, at)
        columns[p + "ra_part"] = splitter.part_of(at_master.column(TO, at)).astype(np.int16)
        columns[p + "ra_rslot"] = at_master.column(SLOT, at)
    retired = splitter.vertices(records.retired, RETIRED)
    for task, _, p, at in retired.shares:
        columns = shared[task]
        columns |= retired.to(p + "rd", task, at)
        columns[p + "rd_slot"] = retired.column(SLOT, at)
        columns[p + "rd_part"] = retired.column(REPLICA_PART, at).astype(np.int16)
    for name, group, found in (("f", FREED, records.freed), ("s", SPLIT, records.split), ("u", WHOLE, records.whole)):
        some = splitter.vertices(found, group)
        for task, _, p, at in some.shares:
            shared[task] |= some.to(p + name, task, at)
            shared[task][f"{p}{name}_slot"] = some.column(SLOT, at)


def _names_of(names: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and bytes of some of the names."""
    offsets, data = names
    if rows.size == offsets.size - 1:
        return names
    if not rows.size:
        return offsets[:0], data[:0]
    some = Ids(STRING, offsets=offsets, data=data).take(rows)
    return some.offsets, some.data
