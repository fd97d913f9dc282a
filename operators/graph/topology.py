"""The graph in the parts of a task, independent of the model.

Every operator after the Partitioner knows its masters; a Storage from 1 on also its replicas and the edges. What a
model makes of that lies beside it, as *values* (values.py, and the rows of owner.py).

Contexts and weights are here where the layer reads them; the Partitioner has them of all. Kept by every layer, they
took about a tenth of the speed of sums that read neither. A layer that reads attributes of edges has a table of these,
and in its lists their numbers there (edge_table.py).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.plan import Context, LayerPlan
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.part_columns import PartColumns
from freshet.operators.graph.part_rows import PartRows
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet

MASTER, SPLIT = 1, 2
_TRANSITIONS = ("d", 0), ("s", MASTER | SPLIT), ("u", MASTER)  # records, and the flags of their masters from then on


class VertexRules(Protocol):
    """Properties of a layer that decide what masters keep of their vertices."""

    @property
    def reads_context(self) -> bool:
        """Update depends on the context."""

    @property
    def source_scaled(self) -> bool:
        """Sent rows depend on the context of their vertex."""

    @property
    def edge(self) -> EdgeReads:
        """Description of what messages read of an edge, and which edges are messages."""

    @property
    def reads_out_degrees(self) -> bool:
        """Either depends on what the context has of out-edges."""


class Masters:
    """The masters of a task's parts: their keys, contexts and replica sets.

    Shapes: key (rows,) int64; flags (rows,) uint8; count (rows,) int32, in-edges in all parts; degree (rows,) float64,
    their weights together without self-loops; loop (rows,) float32, NaN for none; out_count, out_degree likewise of
    out-edges; replica: of each row the slots in the parts where its vertex has a replica.
    Invariant: flags has MASTER for exactly the live masters, SPLIT for those of them with an in-edge elsewhere.
    """

    def __init__(
        self, tables: TableSet, at: PartRows, layer: VertexRules | None, following: VertexRules | None
    ) -> None:
        """Knows nothing that neither its layer nor the next one reads; Storage 0 has no layer.

        That has the features of split vertices, too, so it need not know which these are.
        """
        self.at, self._splits = at, layer is not None
        reads = layer is not None and layer.reads_context
        self._contexts = reads or (following is not None and following.source_scaled)
        self.key = tables.add("key", "i8")
        self.flags = tables.add("flags", "u1")
        self.count = tables.add("count", "i4")
        self.degree = tables.add("degree", "f8")
        # sums that former versions kept for such layers lack the self-loops: another name, so that they are refused
        loops_are_edges = any(one and one.source_scaled and not one.edge.skip_loops for one in (layer, following))
        self.loop = tables.add("loops" if loops_are_edges else "loop", "f4", fill=float("nan"))
        self.replica = PartColumns(tables, "replica", at.tasks.parts)
        self._replicates = following is not None and at.tasks.parts > 1
        contexts = {"c_count": self.count, "c_degree": self.degree, "c_loop": self.loop} if self._contexts else {}
        self._of_out_edges: tuple[Table, ...] = ()
        if any(one and one.reads_out_degrees for one in (layer, following)):
            self._of_out_edges = tables.add("out_count", "i4"), tables.add("out_degree", "f8")
            contexts |= dict(zip(("c_out_count", "c_out_degree"), self._of_out_edges, strict=True))
        self._columns = contexts
        self._kept = self.key, self.flags, *contexts.values()
        at.keep(*self._kept)
        if self._replicates:
            at.keep(self.replica.rows)

    def take_over(self, block: Block) -> None:
        """Take over the masters, contexts, replica sets and transitions of an epoch; drops are done by `clear`.

        The tables have room for the masters (`PartRows.reserve`).
        """
        born = self.at.of(block, "m")
        if born.size:
            for table in (self.flags, self.key):
                table.touch_rows(born)
            self.flags.data[born] = MASTER
            self.key.data[born] = block.get("m_key")
        for name, bits in _TRANSITIONS if self._splits else _TRANSITIONS[:1]:
            slots = self.at.of(block, name)
            if slots.size:
                self.flags.touch_rows(slots)
                self.flags.data[slots] = bits
        if self._contexts and (slots := self.at.of(block, "c")).size:
            for name, table in self._columns.items():
                table.touch_rows(slots)
                table.data[slots] = block.get(name)
        if self._replicates:
            self._take_over_replicas(block)

    def _take_over_replicas(self, block: Block) -> None:
        gone, added = self.at.of(block, "rd"), self.at.of(block, "ra")
        if gone.size:
            self.replica.drop(gone, block.get("rd_part"))
        if added.size:
            self.replica.put(added, block.get("ra_part"), block.get("ra_rslot"))

    def context(self, slots: np.ndarray) -> Context:
        """The contexts of these vertices."""
        tables = self.count, self.degree, self.loop, *self._of_out_edges
        return Context(*(table.data[slots] for table in tables))

    def send_context(self, slots: np.ndarray) -> Any:
        """The contexts of these vertices, as the next layer's `send` takes them."""
        return self.context(slots)

    def rescaled(self, block: Block) -> np.ndarray:
        """The vertices of an epoch's block whose contexts changed, and what they send with them, (n,) int32."""
        return self.at.of(block, "c")

    def clear(self, dead: np.ndarray) -> None:
        """Clear these dropped masters at the end of the epoch."""
        for table in self._kept:
            table.clear_rows(dead)
        if self._replicates and dead.size:
            self.replica.clear(dead)


class Topology:
    """The graph in a Storage's parts: masters, replicas and edges.

    Shapes: home (rows, 2) int32, of replicas the part and slot of the master.
    """

    def __init__(self, tables: TableSet, at: PartRows, layer: LayerPlan, following: LayerPlan | None) -> None:
        self.at, self.masters = at, Masters(tables, at, layer, following)
        self.home = tables.add("home", "i4", 2, fill=-1)
        at.keep(self.home)
        self.edges = EdgeLists(tables, at, at, layer)

    def take_over(self, block: Block) -> None:
        """Take over an epoch's masters and replicas, and have room for them; edges change with their messages."""
        # flags are asked of replicas, too, and a part may have more of those than masters, or no master at all
        self.at.reserve(block, "m", "r")
        self.masters.take_over(block)
        replicas = self.at.of(block, "r")
        if replicas.size:
            self.home.touch_rows(replicas)
            self.home.data[replicas, 0] = block.get("r_part")
            self.home.data[replicas, 1] = block.get("r_home")

    def clear(self, gone: np.ndarray, dead: np.ndarray) -> None:
        """Clear dropped masters and replicas, and `dead` masters, at the end of the epoch."""
        self.edges.tidy()
        self.home.clear_rows(gone)
        self.masters.clear(dead)
