"""The Splitter: an epoch's net change as one TOPOLOGY block per part (its columns: state/block_columns.py)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from partitioner.events import STRING, Ids
from partitioner.net_change import (
    ADDED,
    BORN,
    CONTEXTS,
    DEAD,
    DELETED,
    DST_SLOT,
    EDGE_WEIGHT,
    FEATURES,
    FREED,
    HOME_PART,
    HOME_SLOT,
    IN_EDGES,
    LOOP_WEIGHT,
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
from state.block_columns import TOPOLOGY, Columns
from state.codec import Block, Header, seal


class _Group:
    """The records of one group, by part."""

    def __init__(self, records: np.ndarray, count: int, parts: int, by: int = TO) -> None:
        self._records = records[:, :count]
        self._count = count
        self._order: np.ndarray | None = None
        if parts > 1 and count:
            to = self._records[by].astype(np.int16)
            self._order = np.argsort(to, kind="stable")
            self._ends = np.cumsum(np.bincount(to, minlength=parts)).tolist()
            self._records = self._records[:, self._order]

    def rows(self, part: int) -> slice:
        """Where the part's records stand."""
        if self._order is None:
            return slice(0, self._count)
        return slice(self._ends[part - 1] if part else 0, self._ends[part])

    def column(self, k: int, part: int) -> np.ndarray:
        """A column of the part's records."""
        return self._records[k, self.rows(part)]

    def beside(self, values: np.ndarray, part: int) -> np.ndarray:
        """The part's share of an array that stands beside the records."""
        if self._order is None:
            return values[: self._count]
        return values[self._order[self.rows(part)]]


def split(
    change: EpochChange, parts: int, ctl: np.ndarray, epoch: int, positions: Mapping[str, np.ndarray]
) -> list[Block]:
    """One block per part, in the order of parts; each carries `ctl`, the first one `positions`."""
    records, counts = change.records, change.records.counts
    shared: list[Columns] = [{"ctl": ctl} for _ in range(parts)]
    shared[0].update(positions)
    _masters(change, shared)
    if parts > 1 and counts[[REPLICAS, FREED, SPLIT, WHOLE]].any():
        _replicas(change, shared)
    for name, found, group, weights in (
        ("del", records.deleted, DELETED, ("w",)),
        ("rew", records.reweighted, REWEIGHTED, ("old", "new")),
        ("add", records.added, ADDED, ("w",)),
    ):
        if counts[group]:
            edges = _Group(found, int(counts[group]), parts)
            for part, columns in enumerate(shared):
                columns[f"{name}_src"] = edges.column(SLOT, part)
                columns[f"{name}_dst"] = edges.column(DST_SLOT, part)
                for k, suffix in enumerate(weights, EDGE_WEIGHT):
                    columns[f"{name}_{suffix}"] = edges.column(k, part).view(np.float32)
    if counts[FEATURES]:
        features = _Group(records.features, int(counts[FEATURES]), parts)
        for part, columns in enumerate(shared):
            columns["x0_slot"] = features.column(SLOT, part)
            columns["x0"] = _features_of(change.x, features.column(X_ROW, part))
    # Copies: the records are the core's, and the next epoch overwrites them.
    return [
        seal(Header(TOPOLOGY, epoch, 0, part), {name: column.copy() for name, column in columns.items() if column.size})
        for part, columns in enumerate(shared)
    ]


def _masters(change: EpochChange, shared: list[Columns]) -> None:
    """Columns of new masters, of those that go, and of those with a new context."""
    records, counts, parts = change.records, change.records.counts, len(shared)
    if counts[BORN]:
        born = _Group(records.born, int(counts[BORN]), parts)
        for part, columns in enumerate(shared):
            columns["m_slot"] = born.column(SLOT, part)
            columns["m_key"] = born.beside(records.born_keys, part)
            if change.names is not None:
                rows = np.arange(int(counts[BORN]))
                columns["m_off"], columns["m_name"] = _names_of(change.names, born.beside(rows, part))
    if counts[DEAD]:
        dead = _Group(records.dead, int(counts[DEAD]), parts)
        for part, columns in enumerate(shared):
            columns["d_slot"] = dead.column(SLOT, part)
            columns["d_key"] = dead.beside(records.dead_keys, part)
    if counts[CONTEXTS]:
        contexts = _Group(records.contexts, int(counts[CONTEXTS]), parts)
        for part, columns in enumerate(shared):
            columns["c_slot"] = contexts.column(SLOT, part)
            columns["c_count"] = contexts.column(IN_EDGES, part)
            columns["c_degree"] = contexts.beside(records.degrees, part)
            columns["c_loop"] = contexts.column(LOOP_WEIGHT, part).view(np.float32)


def _replicas(change: EpochChange, shared: list[Columns]) -> None:
    """Columns of replicas, where they are and at their masters, and of masters that become split or whole."""
    records, counts, parts = change.records, change.records.counts, len(shared)
    here, at_master = (_Group(records.replicas, int(counts[REPLICAS]), parts, by) for by in (TO, HOME_PART))
    freed = _Group(records.freed, int(counts[FREED]), parts)
    retired = _Group(records.retired, int(counts[RETIRED]), parts)
    becoming_split = _Group(records.split, int(counts[SPLIT]), parts)
    becoming_whole = _Group(records.whole, int(counts[WHOLE]), parts)
    for part, columns in enumerate(shared):
        columns["r_slot"] = here.column(SLOT, part)
        columns["r_part"] = here.column(HOME_PART, part).astype(np.int16)
        columns["r_home"] = here.column(HOME_SLOT, part)
        columns["ra_slot"] = at_master.column(HOME_SLOT, part)
        columns["ra_part"] = at_master.column(TO, part).astype(np.int16)
        columns["ra_rslot"] = at_master.column(SLOT, part)
        columns["f_slot"] = freed.column(SLOT, part)
        columns["rd_slot"] = retired.column(SLOT, part)
        columns["rd_part"] = retired.column(REPLICA_PART, part).astype(np.int16)
        columns["s_slot"] = becoming_split.column(SLOT, part)
        columns["u_slot"] = becoming_whole.column(SLOT, part)


def _features_of(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """These rows of x, zeros for negative ones; consecutive rows as a view."""
    if not rows.size:
        return x[:0]
    first = int(rows[0])
    if first >= 0 and int(rows[-1]) - first == rows.size - 1 and (np.diff(rows) == 1).all():
        return x[first : first + rows.size]
    zeros = rows < 0
    if not zeros.any():
        return x[rows]
    taken = np.zeros((rows.size, x.shape[1]), np.float32)
    taken[~zeros] = x[rows[~zeros]]
    return taken


def _names_of(names: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and bytes of some of the names."""
    offsets, data = names
    if rows.size == offsets.size - 1:
        return names
    if not rows.size:
        return offsets[:0], data[:0]
    some = Ids(STRING, offsets=offsets, data=data).take(rows)
    return some.offsets, some.data
