"""The plan of a relation as operators read it; a layer for vertices of one kind is a relation of these alone."""

from __future__ import annotations

from typing import Protocol

from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.synopses.of_messages import Synopsis


class RelationMessages(Protocol):
    """The messages along the edges of one relation, and what a target keeps of them."""

    @property
    def message_width(self) -> int:
        """Width of the rows that sources send."""

    @property
    def target_width(self) -> int | None:
        """Width of the rows that messages read of targets; None: those that targets send themselves as sources."""

    @property
    def synopsis(self) -> Synopsis:
        """Synopsis that a target keeps of sources' rows and, where targets have rows of their own, of those."""

    @property
    def synopsis_width(self) -> int:
        """Width of a synopsis row."""

    @property
    def edge(self) -> EdgeReads:
        """Description of what messages read of an edge; self-loops are left out only within one kind."""


class LayerRelation(RelationMessages, Protocol):
    """A relation of a layer: `RelationPlan`, or `LayerPlan` where vertices have no kinds."""

    @property
    def number(self) -> int | None:
        """Number of the relation, None where there are no kinds."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the relations that share its store; empty where there are no kinds."""

    @property
    def name(self) -> str:
        """The conv's type."""

    @property
    def one_loop(self) -> bool:
        """True if a self-loop stands in for the one that the layer adds, so there may be one alone, of all types."""

    @property
    def source(self) -> int:
        """Place of the plan of its sources among those of the layer's kinds."""

    @property
    def target(self) -> int:
        """Place of that of its targets."""

    @property
    def source_columns(self) -> slice:
        """Columns of what sources send that messages read."""

    @property
    def target_columns(self) -> slice:
        """Columns of what targets send that messages read, none where targets have no rows of their own."""

    @property
    def has_pairs(self) -> bool:
        """True if its store is one of many relations (see storage/pairs.py)."""

    @property
    def reads_in_edges(self) -> bool:
        """True if UPDATE gets the numbers of its in-edges where it reads no context."""
