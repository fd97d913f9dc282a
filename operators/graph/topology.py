"""The masters of one kind of vertices in the parts of a task, independent of the model.

Every operator after the Partitioner knows its masters; a Storage from 1 on also its replicas and the edges. What a
model makes of that lies beside it (operators/storage).

Contexts and weights are here where the layer reads them; the Partitioner has them of all. Kept by every layer, they
took about a tenth of the speed of sums that read neither. A layer that reads attributes of edges has a table of these,
and in its lists their numbers there (edge_table.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from freshet.gnn.layers.base import Context, Contexts
from freshet.operators.graph.part_columns import PartColumns
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.tables import with_prefix
from freshet.state.block_columns import kind_prefix, relation_prefix
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet

MASTER, SPLIT = 1, 2
_TRANSITIONS = ("d", 0), ("s", MASTER | SPLIT), ("u", MASTER)  # records, and the flags of their masters from then on
_DEGREES = "of."  # what the names of tables of degrees begin with, behind the relation's prefix
_NONE = np.empty(0, np.int32)


class VertexRules(Protocol):
    """Properties of a layer that decide what masters keep of their vertices."""

    @property
    def read_degrees(self) -> Sequence[int | None]:
        """Numbers of the relations of which update reads the vertex's context; None is that without kinds."""

    @property
    def sent_degrees(self) -> Sequence[int | None]:
        """Numbers of those whose contexts decide what a vertex sends."""

    @property
    def reads_out_degrees(self) -> bool:
        """Either depends on what the context has of out-edges."""

    @property
    def scales_by_loops(self) -> bool:
        """Sent rows depend on a context to which self-loops belong."""


class _Degrees:
    """The contexts of vertices in one relation, or in all of a graph without kinds."""

    def __init__(self, relation: int | None, tables: dict[str, Table]) -> None:
        """`tables` by the names of their columns in a block."""
        self.prefix, self._tables = relation_prefix(relation), tables

    def put(self, slots: np.ndarray, section: Block) -> None:
        for name, table in self._tables.items():
            table.touch_rows(slots)
            table.data[slots] = section.get(name)

    def at(self, slots: np.ndarray) -> Context:
        return Context(*(table.data[slots] for table in self._tables.values()))


class Masters:
    """The masters of one kind in a task's parts: their keys, contexts and replica sets.

    Shapes: key (rows,) int64; flags (rows,) uint8; count (rows,) int32, in-edges in all parts; degree (rows,) float64,
    their weights together without self-loops; loop (rows,) float32, NaN for none; out_count, out_degree likewise of
    out-edges; with kinds there are such tables of each relation that is read; replica: of each row the slots in the
    parts where its vertex has a replica.
    Invariant: flags has MASTER for exactly the live masters, SPLIT for those of them with an in-edge elsewhere.
    """

    def __init__(
        self, tables: TableSet, at: PartRows, kind: int | None, layer: VertexRules | None,
        following: VertexRules | None,
    ) -> None:  # fmt: skip
        """Knows nothing that neither its layer nor the next one reads; Storage 0 has no layer.

        That has the features of split vertices, too, so it need not know which these are. `kind` is None without kinds.
        """
        self.at, self._splits = at, layer is not None
        rules, mine = [one for one in (layer, following) if one is not None], with_prefix(tables, kind_prefix(kind))
        self.key = mine.add("key", "i8")
        self.flags = mine.add("flags", "u1")
        self.count = mine.add("count", "i4")
        # sums that former versions kept for such layers lack the self-loops: another name, so that they are refused
        loop = "loops" if any(one.scales_by_loops for one in rules) else "loop"
        own = {
            "c_count": self.count,
            "c_degree": mine.add("degree", "f8"),
            "c_loop": mine.add(loop, "f4", fill=float("nan")),
        }
        self.replica = PartColumns(mine, "replica", at.tasks.parts)
        self._replicates = following is not None and at.tasks.parts > 1
        if any(one.reads_out_degrees for one in rules):
            own |= {"c_out_count": mine.add("out_count", "i4"), "c_out_degree": mine.add("out_degree", "f8")}
        self._read = () if layer is None else tuple(layer.read_degrees)
        self._sent = () if following is None else tuple(following.sent_degrees)
        self._degrees, self._changed = dict[int | None, _Degrees](), dict[int | None, np.ndarray]()
        self._kept = [self.key, self.flags]
        for relation in sorted({*self._read, *self._sent}):  # type: ignore[type-var]  # None alone, or numbers
            of = own if relation is None else _degree_tables(tables, relation)
            self._degrees[relation] = _Degrees(relation, of)
            self._kept += of.values()
        at.keep(*self._kept)
        if self._replicates:
            at.keep(self.replica.rows)

    def take_over(self, block: Block) -> None:
        """Take over the masters, replica sets and transitions of an epoch; drops are done by `clear`.

        The tables have room for the masters (`PartRows.reserve`).
        """
        if (born := self.at.of(block, "m")).size:
            for table in (self.flags, self.key):
                table.touch_rows(born)
            self.flags.data[born] = MASTER
            self.key.data[born] = block.get("m_key")
        for name, bits in _TRANSITIONS if self._splits else _TRANSITIONS[:1]:
            if (slots := self.at.of(block, name)).size:
                self.flags.touch_rows(slots)
                self.flags.data[slots] = bits
        if self._replicates:
            self._take_over_replicas(block)

    def _take_over_replicas(self, block: Block) -> None:
        gone, added = self.at.of(block, "rd"), self.at.of(block, "ra")
        if gone.size:
            self.replica.drop(gone, block.get("rd_part"))
        if added.size:
            self.replica.put(added, block.get("ra_part"), block.get("ra_rslot"))

    def take_degrees(self, section_of: Callable[[str], Block]) -> bool:
        """Take over the contexts that an epoch changed, behind its masters; returns whether it changed any.

        `section_of` returns the records of a relation by its prefix.
        """
        self._changed = {}
        for relation, degrees in self._degrees.items():  # none where neither layer reads any
            section = section_of(degrees.prefix)
            if (slots := self.at.of(section, "c")).size:
                degrees.put(slots, section)
                self._changed[relation] = slots
        return bool(self._changed)

    @property
    def read_again(self) -> np.ndarray:
        """Vertices whose update reads another context since this epoch, (n,) int32."""
        return self._of(self._read)

    @property
    def rescaled(self) -> np.ndarray:
        """Vertices whose contexts changed in this epoch, and what they send with them, (n,) int32."""
        return self._of(self._sent)

    def _of(self, relations: Iterable[int | None]) -> np.ndarray:
        if not self._changed:
            return _NONE
        found = [self._changed[one] for one in relations if one in self._changed]
        return np.unique(np.concatenate(found)) if len(found) > 1 else found[0] if found else _NONE

    def contexts(self, slots: np.ndarray) -> Contexts:
        """Return the contexts of these vertices that their update reads."""
        return {one: self._degrees[one].at(slots) for one in self._read}

    def send_context(self, slots: np.ndarray) -> Contexts:
        """Return those that the next layer's `send` reads."""
        return {one: self._degrees[one].at(slots) for one in self._sent}

    def clear(self, dead: np.ndarray) -> None:
        """Clear these dropped masters at the end of the epoch."""
        for table in self._kept:
            table.clear_rows(dead)
        if self._replicates and dead.size:
            self.replica.clear(dead)


def _degree_tables(tables: TableSet, relation: int) -> dict[str, Table]:
    mine = with_prefix(tables, relation_prefix(relation) + _DEGREES)
    return {
        "c_count": mine.add("count", "i4"),
        "c_degree": mine.add("degree", "f8"),
        "c_loop": mine.add("loop", "f4", fill=float("nan")),
    }
