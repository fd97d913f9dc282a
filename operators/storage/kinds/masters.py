"""The masters of one kind in a task's parts, with their degrees in the relations within the kind that layers read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from freshet.gnn.edge_reads import NOTHING, EdgeReads
from freshet.gnn.kind_layers.columns import Contexts
from freshet.gnn.kind_layers.plans import KindPlan
from freshet.gnn.layers.base import Context
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.topology import Masters
from freshet.operators.storage.kinds.handing import KindsTopology
from freshet.operators.storage.kinds.tables import PrefixedTables
from freshet.state.block_columns import kind_prefix, relation_prefix
from freshet.state.codec import Block
from freshet.state.table import TableSet

_NONE = np.empty(0, np.int32)
_DEGREES = "of."  # what the names of tables of degrees begin with, behind the relation's prefix


class _NoContext(NamedTuple):
    """Needs of a layer with kinds of what `Masters` keeps: contexts are kept by relation."""

    reads_context: bool = False
    source_scaled: bool = False
    edge: EdgeReads = NOTHING
    reads_out_degrees: bool = False


class _Degrees:
    """The context of vertices in one relation."""

    def __init__(self, tables: TableSet, at: PartRows, relation: int) -> None:
        self.prefix = relation_prefix(relation)
        mine = PrefixedTables(tables, self.prefix + _DEGREES)
        self._tables = {
            "c_count": mine.add("count", "i4"),
            "c_degree": mine.add("degree", "f8"),
            "c_loop": mine.add("loop", "f4", fill=float("nan")),
        }
        at.keep(*self._tables.values())

    def put(self, slots: np.ndarray, section: Block) -> None:
        for name, table in self._tables.items():
            table.touch_rows(slots)
            table.data[slots] = section.get(name)

    def at(self, slots: np.ndarray) -> Context:
        return Context(*(table.data[slots] for table in self._tables.values()))

    def clear(self, dead: np.ndarray) -> None:
        for table in self._tables.values():
            table.clear_rows(dead)


class KindMasters(Masters):
    """Masters of one kind."""

    def __init__(
        self, tables: TableSet, kind: int, at: PartRows, layer: KindPlan | None, following: KindPlan | None
    ) -> None:
        """`layer`: the plan by which the operator updates them, `following`: that by which they send to the next."""
        rules = (None if plan is None else _NoContext() for plan in (layer, following))
        super().__init__(PrefixedTables(tables, kind_prefix(kind)), at, *rules)
        self._read = () if layer is None else tuple(layer.read_degrees)
        self._sent = () if following is None else tuple(following.sent_degrees)
        self._degrees = {one: _Degrees(tables, at, one) for one in sorted({*self._read, *self._sent})}
        self._changed = dict[int, np.ndarray]()  # by relation, in this epoch

    def take_degrees(self, topology: KindsTopology) -> bool:
        """Take over the degrees that an epoch changed, behind its masters; returns whether it changed any."""
        self._changed = {}
        for relation, degrees in self._degrees.items():
            section = topology.of(degrees.prefix)
            if (slots := self.at.of(section, "c")).size:
                degrees.put(slots, section)
                self._changed[relation] = slots
        return bool(self._changed)

    @property
    def read_again(self) -> np.ndarray:
        """Vertices whose update reads another degree since this epoch, (n,) int32."""
        return self._of(self._read)

    @override
    def rescaled(self, block: Block) -> np.ndarray:
        return self._of(self._sent)

    def _of(self, relations: Iterable[int]) -> np.ndarray:
        found = [self._changed[one] for one in relations if one in self._changed]
        return np.unique(np.concatenate(found)) if len(found) > 1 else found[0] if found else _NONE

    def contexts(self, slots: np.ndarray) -> Contexts:
        """Return the degrees of these vertices in the relations that their update reads."""
        return {one: self._degrees[one].at(slots) for one in self._read}

    @override
    def send_context(self, slots: np.ndarray) -> Contexts:
        return {one: self._degrees[one].at(slots) for one in self._sent}

    @override
    def clear(self, dead: np.ndarray) -> None:
        super().clear(dead)
        for degrees in self._degrees.values():
            degrees.clear(dead)
