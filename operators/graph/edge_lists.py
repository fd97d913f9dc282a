"""The edges of a layer, or of one relation of it, in the parts of a task: lists at both ends, and their attributes.

Sources and targets are rows of a task's tables; where both are vertices of one kind, they are the same rows. An edge
lies within one part: its ends are slots of that part.
"""

from __future__ import annotations

import numpy as np

from freshet.operators.graph.edge_changes import EdgeChanges, edge_changes
from freshet.operators.graph.edge_table import EdgeTable
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.relation import RelationMessages
from freshet.state.adjacency import Lists
from freshet.state.codec import Block
from freshet.state.table import TableSet


class LostUpdateError(RuntimeError):
    """A change refers to data that the operator does not have: state and messages do not belong together."""


class EdgeLists:
    """Edges from `sources` to `targets`.

    Shapes: out: of each source row the targets of its edges in its part; inn: of each target row the sources; both with
    the value that messages read of an edge, or the numbers of the edges' attributes.
    """

    def __init__(
        self,
        tables: TableSet,
        sources: PartRows,
        targets: PartRows,
        relation: RelationMessages,
        *,
        is_keyed: bool = False,
    ) -> None:
        """Keep the value of edges if messages read it, or their attributes; and with keys their numbers in the graph.

        An edge with a key is found in a list by its number, however many parallel edges it has.
        """
        self.sources, self.targets, self._edge_value = sources, targets, relation.edge.value
        self.attributes: EdgeTable | None = None
        if relation.edge.row_width:
            self.attributes = EdgeTable(tables, sources, targets, relation.edge)
        has_values = relation.edge.weighted or self.attributes is not None
        self.out, self.inn = (Lists(tables, name, has_values, tagged=is_keyed) for name in ("out", "in"))
        self.out.end_at(self.inn)
        self.inn.end_at(self.out)
        sources.keep(self.out)
        targets.keep(self.inn)

    def changes(self, block: Block) -> EdgeChanges:
        """Return the edges that an epoch changes, with the value that the layer reads of them."""
        if self.attributes is not None and block.columns:
            return self.attributes.changes(block, self.out, self.inn)
        return edge_changes(block, self.sources, self.targets, self._edge_value)

    def changed_ends(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the sources and targets of the edges that an epoch changes, (n,) int32 each."""
        changes = edge_changes(block, self.sources, self.targets, self._edge_value)
        return np.concatenate([one[0] for one in changes]), np.concatenate([one[1] for one in changes])

    def settle(self) -> None:
        """Have the new attributes of edges, once no message of before is needed any more."""
        if self.attributes is not None:
            self.attributes.settle()

    def grow(self) -> None:
        """Have room for more edges after a kernel said that there is none."""
        self.out.grow()
        self.inn.grow()

    def make_index(self, *edges: tuple[np.ndarray, ...]) -> None:
        """Index the long lists at both ends of edges (rows of sources, rows of targets, and whatever follows)."""
        for src, dst, *_ in edges:
            self.out.make_index(src)
            self.inn.make_index(dst)

    def tidy(self) -> None:
        """Give back memory of indexes of which little is left."""
        self.out.tidy()
        self.inn.tidy()

    @property
    def index_bytes(self) -> int:
        """Bytes that the indexes of long lists hold in memory."""
        return self.out.index_bytes + self.inn.index_bytes
