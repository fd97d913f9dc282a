"""An owner that keeps no rows where UPDATE is one pass over the tables of sums and self inputs.

A print says whether a row has changed (operators/graph/row_prints.py). A row that is asked for is made again: no bit of
it has changed since its vertex was updated, or the vertex would have been updated again.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_

import numpy as np
from typing_extensions import override

from freshet.gnn.layers.base import Epilogue
from freshet.operators.aggregates.finishing import Behind, Finish, Prints
from freshet.operators.graph.row_prints import PRINT_WORDS, print_keys
from freshet.operators.storage.owner import Owner
from freshet.state.table import Table, TableSet

_BITS_MAX = 2**63 - 1
_ROWS_AT_ONCE = 1 << 14


class PrintedOwner(Owner):
    """An owner that keeps prints of its rows.

    Shapes: print (rows, 2) uint64; print_seed (1,) int64, of the key of prints, which is that of the first epoch.
    """

    make: Callable[[], Finish]
    """Returns the UPDATE of the tables as they stand."""

    @override
    def _keep(self, tables: TableSet) -> None:
        self.prints, self._seed = tables.add("print", "u8", PRINT_WORDS), tables.add("print_seed", "i8")
        self.at.keep(self.prints)
        self._seed.reserve(1)
        former = self.prints.name.removesuffix("print") + "x"
        tables.replaced[former] = self.prints.name, self._seed.name
        self._missing = np.zeros(tables.parts, bool)
        self._behind: Behind | None = None
        self._behind_of: tuple[object, ...] = ()  # what it is made of: none is stale

    def begin(self, seed: int) -> None:
        """Take the key of this seed, where nothing is restored."""
        firsts = np.arange(self._seed.parts, dtype=np.int32) * self._seed.stride
        self._seed.touch_rows(firsts)
        self._seed.data[firsts] = seed & _BITS_MAX

    def note_missing(self) -> None:
        """Note which parts were restored without prints, from a state of an earlier version; before they get rows."""
        self._missing = (self.prints.part_rows == 0) & (self.masters.flags.part_rows > 0)

    def make_missing(self) -> None:
        """Make the prints that were missing, of all that the other tables hold."""
        shift, flags = self.prints.part_shift, self.masters.flags.data
        for part in np.flatnonzero(self._missing).tolist():
            first = part << shift if part else 0
            mine = first + np.flatnonzero(flags[first : first + int(self.prints.part_rows[part])] == self.owned)
            for at in range(0, mine.size, _ROWS_AT_ONCE):
                some = mine[at : at + _ROWS_AT_ONCE].astype(np.int32)
                self.update(some, some, self.make())
        self._missing[:] = False

    def behind(self, own: Table, counts: Table, epilogue: Epilogue, rows_max: int) -> Behind:
        """Return what an UPDATE behind the merge of an epoch needs, of at most that many rows."""
        flags = self.masters.flags.data
        self._have_stamps()
        of = self.prints.view, own.data, counts.data, flags, self._stamp
        if self._behind is not None and all(map(is_, of, self._behind_of)):
            return self._behind
        if (before := self._behind) is None:
            slots, x = np.empty((2, rows_max), np.int32), np.empty((rows_max, self.width), np.float32)
            none, found = np.zeros(rows_max, bool), np.zeros(2, np.int64)
            few = none, np.zeros(rows_max, np.int16), slots[0], slots[1], x, found
        else:
            few = before.forced, before.group, before.chosen, before.slots, before.x, before.found
        bound = flags, self.owned
        self._behind = Behind(own.data, counts.data, *epilogue, self._stored, self._stamp, *bound, *few)
        self._behind_of = of
        return self._behind

    @override
    def rows(self, slots: np.ndarray) -> np.ndarray:
        """Return the rows of these vertices, (n, width) float32."""
        return self.update(slots, slots, self.make()).x

    @override
    def clear(self, dead: np.ndarray) -> None:
        """Clear the prints of dropped masters at the end of the epoch."""
        self.prints.clear_rows(dead)

    @property
    @override
    def _stored(self) -> Prints:
        return Prints(self.prints.view, print_keys(int(self._seed.data[0]), self.width))
