"""The plans of a layer as operators read them: one for each kind of vertices and each relation.

A layer for vertices without kinds is one of a single kind and a single relation, whose numbers are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from freshet.gnn.layers.base import Contexts, Epilogue
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.operators.graph.relation import LayerRelation
from freshet.operators.graph.topology import VertexRules


class VertexPlan(VertexRules, Protocol):
    """The plan of the vertices of one kind in a layer: `KindPlan`, or `OnlyKind` where there are no kinds."""

    @property
    def number(self) -> int | None:
        """Number of the kind, None where there are no kinds."""

    @property
    def relations(self) -> Sequence[int]:
        """The relations into the kind, as places among those of the layer."""

    @property
    def out_width(self) -> int:
        """Width of the rows that it makes."""

    @property
    def message_width(self) -> int:
        """Width of what goes to every replica; more columns go to the own task alone."""

    @property
    def self_width(self) -> int:
        """Width of the self input that travels beside the message."""

    @property
    def self_is_message(self) -> bool:
        """The self input is the vertex's own message row."""

    @property
    def reads_self(self) -> bool:
        """UPDATE reads the vertex's own row."""

    @property
    def updates(self) -> bool:
        """The kind has rows behind the layer that anything reads."""

    @property
    def sends(self) -> bool:
        """The kind's rows are read in the layer."""

    @property
    def source_scaled(self) -> bool:
        """Sent rows depend on the context of their vertex."""

    @property
    def epilogue(self) -> Epilogue | AttentionEpilogue | None:
        """UPDATE as one pass over the tables, where it is one."""

    @property
    def root_width(self) -> int:
        """Width of what `root` makes of a self input, 0 where there is no such part of UPDATE."""

    @property
    def sums(self) -> Sequence[Any]:
        """Places of what `update_sums` reads of each relation; empty for a plan that `update` is for."""

    def send(self, x: np.ndarray, ctx: Contexts) -> np.ndarray:
        """Return what vertices send: the message, then the self input."""

    def update(self, aggregates: Sequence[np.ndarray], own: np.ndarray, counts: Sequence[Any]) -> np.ndarray:
        """Return new rows from the synopses of all relations, self inputs, and contexts or numbers of in-edges."""


class LayerOfKinds(Protocol):
    """The plans of a layer: `KindsLayer`, or `LayerPlan` where vertices have no kinds."""

    @property
    def kinds(self) -> Sequence[VertexPlan | None]:
        """Plans by kind, of those that have a part in the layer."""

    @property
    def relations(self) -> Sequence[LayerRelation]:
        """The relations that the layer reads."""
