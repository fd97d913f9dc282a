"""Learned rows of vertices, as columns behind their features in Storage 0."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from freshet.gnn.kinds.learned import LearnedRows, digests_of
from freshet.operators.graph.row_kernels import gather
from freshet.operators.storage.owner import Changed, RowOwner
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet

KNOWN, UNKNOWN = 1, 2
LOOKED_UP = "looked_up"


class LearnedColumns:
    """The learned rows of a kind's masters in the parts of a task: looked up by id when a vertex is born.

    Table: looked_up (rows,) int8, of a live vertex KNOWN, or UNKNOWN where the model has no row of its id.
    """

    def __init__(self, tables: TableSet, owner: RowOwner, learned: LearnedRows, width: int) -> None:
        """`width` is that of the features, which stand in front."""
        self._owner, self._learned, self._width = owner, learned, width
        self._looked_up: Table = tables.add(LOOKED_UP, "i1")
        owner.at.keep(self._looked_up)
        self.vertices = 0
        """Number of live vertices."""
        self.unknown = 0
        """Number of those without a learned row."""

    def after_restore(self) -> None:
        """Count what the restored tables have."""
        self._count(self._looked_up.data, 1)

    def set(self, section: Block) -> Changed:
        """Set the features that a block brings, and the learned rows of new vertices; the rows of both."""
        owner, at = self._owner, self._owner.at
        slots, born = at.of(section, "x0"), at.of(section, "m")
        if born.size:
            self.look_up(ids_of(section), born)
        featureless = born[~owner.are_in(born, slots)]
        every = np.concatenate([slots, featureless])
        if not every.size:
            return Changed(every, np.empty((0, self._width + self._learned.width), np.float32))
        brings = slots.size and self._width
        rows = self.beside(every, section.get("x0") if brings else np.empty((0, self._width), np.float32))
        return owner.store(every, rows, born)

    def beside(self, slots: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Return the rows of these vertices, those of the first ones with new features."""
        rows = gather(self._owner.x.data, slots)
        rows[: len(features), : self._width] = features
        return rows

    def look_up(self, ids: np.ndarray, born: np.ndarray) -> None:
        """Have the columns of new vertices hold their learned rows, zeros for unknown ids (see `ids_of`)."""
        rows, known = self._learned.find(ids)
        x, looked_up = self._owner.x, self._looked_up
        x.touch_rows(born)
        x.data[born, self._width :] = rows
        looked_up.touch_rows(born)
        looked_up.data[born] = np.where(known, KNOWN, UNKNOWN)
        self._count(looked_up.data[born], 1)

    def clear(self, dead: np.ndarray) -> None:
        """Forget vertices that go."""
        self._count(self._looked_up.data[dead], -1)
        self._looked_up.clear_rows(dead)

    def _count(self, looked_up: np.ndarray, times: int) -> None:
        self.vertices += times * int(np.count_nonzero(looked_up))
        self.unknown += times * int(np.count_nonzero(looked_up == UNKNOWN))


def ids_of(section: Block, first: int = 0, last: int | None = None) -> np.ndarray:
    """Return the ids of new vertices, or of some, as learned rows are looked up by."""
    if "m_off" not in section.columns:
        return section.get("m_key")[first:last]
    ends = section.get("m_off")[first : None if last is None else last + 1].tolist()
    text = section.get("m_name")
    return digests_of(text[begin:end].tobytes() for begin, end in pairwise(ends))
