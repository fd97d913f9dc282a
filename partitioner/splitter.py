"""The Splitter: an epoch's net change as one TOPOLOGY block per task (its columns: state/block_columns.py)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from freshet.partitioner import net_change as net
from freshet.partitioner.ids import STRING, Ids
from freshet.partitioner.net_change import EpochChange, Records
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
from freshet.state.codec import Block, Header
from freshet.state.task_parts import TaskParts, grouped

Places = np.ndarray | slice
_ALL = slice(None)
_FEW = 256  # records, that one copy of all columns is quicker for
_EDGE_NAMES = {group.name: group.names for group in (DELETED_EDGES, CHANGED_EDGES, ADDED_EDGES)}
_Share = tuple[int, int, str, Places]  # task, kind or relation, its prefix, and where its records are
_Names = tuple[np.ndarray, np.ndarray]  # offsets and bytes


class _Group:
    """The records of one group in shares: each goes to one task, and is of one kind or relation."""

    def __init__(self, records: np.ndarray, tasks: TaskParts, prefixes: list[str], by: int) -> None:
        """`by`: the column with the part whose task gets a record."""
        self.records, self._tasks = records, tasks
        self.shares: list[_Share] = []
        if not records.shape[1]:
            return
        if len(prefixes) == 1:
            self._parts = records[by]
            if tasks.tasks == 1:
                self.shares = [(0, 0, prefixes[0], _ALL)]
                return
            places = grouped(tasks.task_of[self._parts], tasks.tasks)
            prefix = prefixes[0]
            self.shares = [
                (task, 0, prefix, at) for task, at in enumerate(places) if not isinstance(at, np.ndarray) or at.size
            ]
            return
        section, parts = np.divmod(records[net.TO], np.int32(tasks.parts))
        self._parts, count = parts if by == net.TO else records[by], len(prefixes)
        found, number = np.unique(tasks.task_of[self._parts].astype(np.int64) * count + section, return_inverse=True)
        each = zip(found.tolist(), grouped(number, found.size), strict=True)
        self.shares = [(of // count, of % count, prefixes[of % count], at) for of, at in each]

    def to(self, name: str, task: int, at: Places) -> Columns:
        """The parts that a share's records go to, as a column, where the task has more than one."""
        if len(self._tasks.parts_of[task]) == 1:
            return {}
        return {f"{name}_to": self._parts[at].astype(np.int16)}


class _Splitter:
    """The columns of each task, which groups of an epoch's records are added to."""

    def __init__(self, change: EpochChange, tasks: TaskParts, shared: list[Columns]) -> None:
        self.counts, self._tasks, self._shared, kinds = change.records.counts.tolist(), tasks, shared, change.kinds
        self._kinds, self._relations = ([""], [""]) if kinds is None else _prefixes(len(kinds), len(kinds.relations))

    def vertices(self, group: int, records: np.ndarray, by: int = net.TO) -> _Group:
        """Return a group of vertices."""
        return _Group(_own(records[:, : self.counts[group]]), self._tasks, self._kinds, by)

    def edges(self, group: int, records: np.ndarray) -> _Group:
        """Return a group of edges, or of what vertices have of a relation."""
        return _Group(_own(records[:, : self.counts[group]]), self._tasks, self._relations, net.TO)

    def add(self, name: str, of: _Group, columns: Mapping[str, int | np.ndarray], names: _Names | None = None) -> None:
        """Add a group: columns of its records, and arrays that stand beside them; `names` are those of new masters."""
        records, count = of.records, of.records.shape[1]
        for task, _, p, at in of.shares:
            out = self._shared[task]
            out |= of.to(p + name, task, at)
            for column, one in columns.items():
                value = records[one] if isinstance(one, int) else one[:count]
                out[p + column] = value if at is _ALL else value[at]
            if names is not None:
                out[p + "m_off"], out[p + "m_name"] = _names_of(names, np.arange(count)[at])

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
    records = change.records
    shared: list[Columns] = [{"ctl": ctl} for _ in range(tasks.tasks)]
    shared[0].update(positions)
    splitter = _Splitter(change, tasks, shared)
    counts = splitter.counts
    _masters(change, splitter)
    if tasks.parts > 1 and any(counts[group] for group in (net.REPLICAS, net.FREED, net.SPLIT, net.WHOLE)):
        _replicas(records, splitter)
    for group, found, count in (
        (DELETED_EDGES, records.deleted, net.DELETED),
        (CHANGED_EDGES, records.reweighted, net.REWEIGHTED),
        (ADDED_EDGES, records.added, net.ADDED),
    ):
        if counts[count]:
            edges = splitter.edges(count, found)
            for share in edges.shares:
                _edges(change, group, edges, share, shared[share[0]])
    if counts[net.FEATURES]:
        features = splitter.vertices(net.FEATURES, records.features)
        for task, kind, p, at in features.shares:
            if change.kinds is not None and not change.kinds.widths[kind]:  # such vertices have none
                continue
            columns = shared[task]
            columns |= features.to(p + "x0", task, at)
            columns[p + "x0_slot"] = features.records[net.SLOT][at]
            for name, column in change.x.of_kind(kind, features.records[net.X_ROW][at]).columns("x0").items():
                columns[p + name] = column
    return [Block(Header(TOPOLOGY, epoch, 0, task), _copied(columns)) for task, columns in enumerate(shared)]


def _own(records: np.ndarray) -> np.ndarray:
    """Return few records in a copy, whose rows are read-only columns; `_copied` copies each column of many."""
    if records.shape[1] > _FEW:
        return records
    own = records.copy()
    own.setflags(write=False)
    return own


def _copied(columns: Columns) -> Columns:
    """Return columns as `codec.seal` has them; those that somebody may still write to are copied."""
    found: Columns = {}
    for name, column in columns.items():
        if column.size:
            flags = column.flags
            if flags.writeable or not flags.c_contiguous:
                column = column.copy()
                column.setflags(write=False)
            found[name] = column
    return found


def _edges(change: EpochChange, group: EdgeGroup, edges: _Group, share: _Share, columns: Columns) -> None:
    """Columns of edges that were added, changed or deleted."""
    task, relation, p, at = share
    src, dst, *values = _EDGE_NAMES[group.name]
    width = None
    if change.kinds is not None:
        width = change.kinds.relations[relation].edge_width
        if not width and group is CHANGED_EDGES and change.attr is not None:
            at = _with_new_values(edges, at, len(values) // 2)
    columns |= edges.to(p + group.name, task, at)
    records = edges.records if at is _ALL else edges.records[:, at]
    columns[p + src], columns[p + dst], real = records[net.SLOT], records[net.DST_SLOT], records.view(np.float32)
    for k, name in enumerate(values, net.EDGE_VALUES):
        columns[p + name] = real[k]
    if change.keyed:
        columns[p + group.row] = records[net.EDGE_VALUES + len(values)]
    if change.attr is not None and width != 0:
        if not change.keyed:
            columns[p + group.type] = records[net.EDGE_VALUES + len(values)]
        if group.has_attr:
            attr = change.attr[records[net.EDGE_VALUES + len(values) + 1]]
            columns[p + group.attr] = attr if width is None else attr[:, :width]


def _with_new_values(edges: _Group, at: Places, values: int) -> np.ndarray:
    """Return the changed ones of these edges, without those that were only added again: they have no attributes."""
    old, new = (
        [edges.records[k][at].view(np.float32) for k in range(first, first + values)]
        for first in (net.EDGE_VALUES, net.EDGE_VALUES + values)
    )
    differ = np.any([one != other for one, other in zip(old, new, strict=True)], axis=0)
    places: np.ndarray = np.flatnonzero(differ) if isinstance(at, slice) else at[differ]
    return places


def _masters(change: EpochChange, to: _Splitter) -> None:
    """Add new masters, those that go, and those with a new context."""
    of, counts = change.records, to.counts
    if counts[net.BORN]:
        to.add("m", to.vertices(net.BORN, of.born), {"m_slot": net.SLOT, "m_key": of.born_keys}, change.names)
    if counts[net.DEAD]:
        to.add("d", to.vertices(net.DEAD, of.dead), {"d_slot": net.SLOT, "d_key": of.dead_keys})
    if counts[net.CONTEXTS]:
        contexts = _context(of.contexts, of.degrees)
        if len(of.out_degrees):
            contexts |= {"c_out_count": net.OUT_EDGES, "c_out_degree": of.out_degrees}
        to.add("c", to.vertices(net.CONTEXTS, of.contexts), contexts)
    if counts[net.DEGREES]:
        to.add("c", to.edges(net.DEGREES, of.degrees_in), _context(of.degrees_in, of.sums_in))


def _context(records: np.ndarray, degrees: np.ndarray) -> dict[str, int | np.ndarray]:
    """Columns of the in-edges of vertices."""
    loops = records[net.LOOP_WEIGHT].view(np.float32)
    return {"c_slot": net.SLOT, "c_count": net.IN_EDGES, "c_degree": degrees, "c_loop": loops}


def _replicas(of: Records, to: _Splitter) -> None:
    """Add replicas, where they are and at their masters, and masters that become split or whole."""
    here, there = (to.vertices(net.REPLICAS, of.replicas, by) for by in (net.TO, net.HOME_PART))
    home, part = (one.astype(np.int16) for one in (here.records[net.HOME_PART], to.part_of(here.records[net.TO])))
    to.add("r", here, {"r_slot": net.SLOT, "r_part": home, "r_home": net.HOME_SLOT})
    to.add("ra", there, {"ra_slot": net.HOME_SLOT, "ra_part": part, "ra_rslot": net.SLOT})
    ended = to.vertices(net.RETIRED, of.retired)
    to.add("rd", ended, {"rd_slot": net.SLOT, "rd_part": ended.records[net.REPLICA_PART].astype(np.int16)})
    for name, group, found in (("f", net.FREED, of.freed), ("s", net.SPLIT, of.split), ("u", net.WHOLE, of.whole)):
        to.add(name, to.vertices(group, found), {f"{name}_slot": net.SLOT})


def _names_of(names: _Names, rows: np.ndarray) -> _Names:
    """Offsets and bytes of some of the names."""
    offsets, data = names
    if rows.size == offsets.size - 1:
        return names
    if not rows.size:
        return offsets[:0], data[:0]
    some = Ids(STRING, offsets=offsets, data=data).take(rows)
    return some.offsets, some.data
