"""The Splitter: an epoch's net change as one TOPOLOGY block per part (its columns: state/block_columns.py)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from partitioner.net_change import (
    BORN,
    CONTEXT,
    DEAD,
    DELETED,
    FEATURES,
    FREED,
    NEW,
    REPLICA,
    RETIRED,
    REWEIGHTED,
    SPLIT,
    WHOLE,
    EpochChange,
)
from state.block_columns import TOPOLOGY, Columns
from state.codec import Block, Header, seal


class _Group:
    """The records of one group, by part."""

    def __init__(self, records: np.ndarray, count: int, parts: int, by: int = 0) -> None:
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
    n, out = change.out.n, change.out
    shared: list[Columns] = [{"ctl": ctl} for _ in range(parts)]
    shared[0].update(positions)
    _masters(change, shared)
    if parts > 1 and (n[REPLICA] or n[FREED] or n[SPLIT] or n[WHOLE]):
        _replicas(change, shared)
    for name, records, group, weights in (
        ("del", out.gone, DELETED, ("w",)),
        ("rew", out.rew, REWEIGHTED, ("old", "new")),
        ("add", out.add, NEW, ("w",)),
    ):
        if n[group]:
            edges = _Group(records, int(n[group]), parts)
            for part, columns in enumerate(shared):
                columns[f"{name}_src"] = edges.column(1, part)
                columns[f"{name}_dst"] = edges.column(2, part)
                for k, suffix in enumerate(weights):
                    columns[f"{name}_{suffix}"] = edges.column(3 + k, part).view(np.float32)
    if n[FEATURES]:
        features = _Group(out.x0, int(n[FEATURES]), parts)
        for part, columns in enumerate(shared):
            columns["x0_slot"] = features.column(1, part)
            columns["x0"] = _take_rows(change.x, features.column(2, part))
    # Copies: the records are the core's, and the next epoch overwrites them.
    return [
        seal(Header(TOPOLOGY, epoch, 0, part), {name: column.copy() for name, column in columns.items() if column.size})
        for part, columns in enumerate(shared)
    ]


def _masters(change: EpochChange, shared: list[Columns]) -> None:
    n, out, parts = change.out.n, change.out, len(shared)
    if n[BORN]:
        born = _Group(out.m, int(n[BORN]), parts)
        for part, columns in enumerate(shared):
            columns["m_slot"] = born.column(1, part)
            columns["m_key"] = born.beside(out.m_key, part)
            if change.names is not None:
                rows = np.arange(int(n[BORN]))
                columns["m_off"], columns["m_name"] = _take_names(change.names, born.beside(rows, part))
    if n[DEAD]:
        dead = _Group(out.d, int(n[DEAD]), parts)
        for part, columns in enumerate(shared):
            columns["d_slot"] = dead.column(1, part)
            columns["d_key"] = dead.beside(out.d_key, part)
    if n[CONTEXT]:
        context = _Group(out.c, int(n[CONTEXT]), parts)
        for part, columns in enumerate(shared):
            columns["c_slot"] = context.column(1, part)
            columns["c_count"] = context.column(2, part)
            columns["c_degree"] = context.beside(out.c_degree, part)
            columns["c_loop"] = context.column(3, part).view(np.float32)


def _replicas(change: EpochChange, shared: list[Columns]) -> None:
    n, out, parts = change.out.n, change.out, len(shared)
    here, there = (_Group(out.r, int(n[REPLICA]), parts, by) for by in (0, 2))
    freed = _Group(out.f, int(n[FREED]), parts)
    retired = _Group(out.rd, int(n[RETIRED]), parts)
    becoming_split = _Group(out.s, int(n[SPLIT]), parts)
    becoming_whole = _Group(out.u, int(n[WHOLE]), parts)
    for part, columns in enumerate(shared):
        columns["r_slot"] = here.column(1, part)
        columns["r_part"] = here.column(2, part).astype(np.int16)
        columns["r_home"] = here.column(3, part)
        columns["ra_slot"] = there.column(3, part)
        columns["ra_part"] = there.column(0, part).astype(np.int16)
        columns["ra_rslot"] = there.column(1, part)
        columns["f_slot"] = freed.column(1, part)
        columns["rd_slot"] = retired.column(1, part)
        columns["rd_part"] = retired.column(2, part).astype(np.int16)
        columns["s_slot"] = becoming_split.column(1, part)
        columns["u_slot"] = becoming_whole.column(1, part)


def _take_rows(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows of x, zeros for negative ones; consecutive rows as a view."""
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


def _take_names(names: tuple[np.ndarray, np.ndarray], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    offsets, data = names
    if rows.size == offsets.size - 1:
        return names
    if not rows.size:
        return offsets[:0], data[:0]
    lengths = np.diff(offsets)[rows]
    ends = np.zeros(rows.size + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    at = np.arange(ends[-1]) + np.repeat(offsets[:-1][rows] - ends[:-1], lengths)
    return ends, data[at]
