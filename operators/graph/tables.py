"""Tables of one kind or relation among those of a core."""

from __future__ import annotations

from typing_extensions import override

from freshet.state.table import Table, TableSet


def with_prefix(tables: TableSet, prefix: str) -> TableSet:
    """Return a set whose tables belong to `tables` under names with this prefix; the set itself for an empty one."""
    return _PrefixedTables(tables, prefix) if prefix else tables


class _PrefixedTables(TableSet):
    """A set to which tables are added that belong to another set."""

    def __init__(self, tables: TableSet, prefix: str) -> None:
        super().__init__(tables.parts)
        self._all, self._prefix, self.replaced = tables, prefix, tables.replaced

    @override
    def add(self, name: str, dtype: str, width: int | None = None, fill: float = 0) -> Table:
        """A new, empty table."""
        return self._all.add(self._prefix + name, dtype, width, fill)
