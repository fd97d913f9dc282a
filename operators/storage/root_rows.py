"""UPDATE's part that depends on self inputs alone, kept while those are constant.

Most vertices that a change reaches are reached by a neighbour's change: their own part of UPDATE, half of its
arithmetic, is what it was. The rows are in memory alone. Their bits follow from those of the self inputs, so nothing
depends on which of them are here.
"""

from __future__ import annotations

import numpy as np

from freshet.gnn.layers.base import OnlyKind
from freshet.operators.graph.row_kernels import gather
from freshet.state.memory.table_memory import allocate


class RootRows:
    """The root rows of one layer, by row of its Storage's tables.

    Invariant: where `_here` is True, a row is `plan.root` of the vertex's self input.
    """

    def __init__(self, plan: OnlyKind) -> None:
        self._plan = plan
        self._rows = np.empty((0, plan.root_width), np.float32)
        self._here = np.zeros(0, bool)

    def reserve(self, rows: int) -> None:
        """Reserve room for this many rows; if it grows, all rows are dropped."""
        if rows > self._here.size:  # tables grow by half at a time, and several parts change places then
            self._rows = allocate((rows, self._plan.root_width), np.dtype(np.float32), 1)
            self._here = np.zeros(rows, bool)

    def clear(self) -> None:
        """Other self inputs have taken the place of all."""
        self._here[:] = False

    def forget(self, slots: np.ndarray) -> None:
        """The self inputs of these are about to change."""
        self._here[slots] = False

    def read(self, slots: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Rows, (n, root_width) float32, made of the self inputs `own[slots]` where they are not here."""
        missing = slots[~self._here[slots]]
        if missing.size:
            self._rows[missing] = self._plan.root(gather(own, missing))
            self._here[missing] = True
        return gather(self._rows, slots)
