"""A conv between two kinds that has several aggregates as a conv of a relation for each, and rows behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.own.program import BehindSoftmax, relation_layer
from freshet.gnn.pyg.own.running import ConvWidths
from freshet.gnn.pyg.own.values import Value, all_of
from freshet.gnn.pyg.steps import Converted

TARGET = "target"


class ConvParts(NamedTuple):
    """The convs of a conv by the names of their aggregates, these aggregates by name, and the rows of all."""

    convs: dict[str, Converted]
    aggregates: dict[str, Value]
    rows: Value

    def behind(self, names: Mapping[str, str]) -> Value:
        """Return the rows as a value of rows of these names, by aggregate; `TARGET`: those of the vertex itself."""
        made = {one: self._named(one, names[name]) for name, one in self.aggregates.items()}

        def of(value: Value) -> Value:
            if value not in made:
                is_own = value.op == "rows"
                made[value] = (
                    self._named(value, names[TARGET]) if is_own else replace(value, of=tuple(map(of, value.of)))
                )
            return made[value]

        return of(self.rows)

    @staticmethod
    def _named(value: Value, name: str) -> Value:
        return Value("rows", value.width, "vertices", place=value.place, name=name)


def parts_of(name: str, rows: Value, widths: ConvWidths) -> ConvParts:
    """Return a conv for each aggregate of these rows.

    Raises: ExportError where there is one alone, and naming the place of what no conv of a relation does.
    """
    rows = BehindSoftmax().of(rows)
    found = [one for one in all_of(rows) if one.op == "aggregate"]
    if len(found) < 2:
        msg = f"{name}: it has one aggregate"
        raise ExportError(msg)
    aggregates = {f"aggregate{i}": one for i, one in enumerate(found)}
    return ConvParts({key: relation_layer(name, one, widths) for key, one in aggregates.items()}, aggregates, rows)
