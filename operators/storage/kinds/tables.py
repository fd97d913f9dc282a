"""Tables of one kind or relation among those of a core."""

from __future__ import annotations

from typing_extensions import override

from freshet.state.table import Table, TableSet


class PrefixedTables(TableSet):
    """A set to which tables are added that belong to another set, where their names begin with a prefix."""

    def __init__(self, tables: TableSet, prefix: str) -> None:
        super().__init__(tables.parts)
        self._all, self._prefix = tables, prefix

    @override
    def add(self, name: str, dtype: str, width: int | None = None, fill: float = 0) -> Table:
        """A new, empty table."""
        return self._all.add(self._prefix + name, dtype, width, fill)
