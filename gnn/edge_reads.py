"""Description of what messages read of an edge: plans give it; stores, passes over a graph, checks and texts ask it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshet.schema import WEIGHT, EdgeValues

Array = np.ndarray


@dataclass(frozen=True)
class EdgeReads:
    """Description of what messages of a layer, or of a relation in it, read of an edge, and which edges are messages.

    weighted: they read a value of their edge, by name `value` (schema.EDGE_COLUMNS). It multiplies the message; or,
    `by_network`, a network reads it. attributes: width of those that they read. skip_loops: self-loop edges are no
    messages.
    """

    weighted: bool = False
    attributes: int = 0
    skip_loops: bool = False
    by_network: bool = False
    value: str = WEIGHT

    @property
    def columns(self) -> int:
        """Numbers that stand beside the rows of an edge's ends: the value that a network reads, then the attributes."""
        return self.attributes + (self.weighted and self.by_network)

    @property
    def row_width(self) -> int:
        """Width of the row that a store keeps of each edge; 0: its lists of edges have all that messages read."""
        return self.columns if self.attributes else 0

    @property
    def names(self) -> list[str]:
        """Names for people of what those numbers are."""
        weight = ["weight"] if self.weighted and self.by_network else []
        return weight + (["attributes"] if self.attributes else [])

    def kept(self, src: Array, dst: Array, values: EdgeValues) -> tuple[Array, Array, EdgeValues]:
        """Return those edges that are messages."""
        if not self.skip_loops:
            return src, dst, values
        edges = np.flatnonzero(src != dst)
        return src[edges], dst[edges], values[edges]

    def messages(self, rows: Array, values: EdgeValues) -> Array:
        """Return messages as a synopsis's `whole` takes them: rows of sources, multiplied, or with such numbers behind.

        Shapes: rows (n, message width) float32, result (n, message width + columns).
        """
        if self.weighted and not self.by_network:
            rows = rows * values.weight[:, None]
        numbers = [values.weight[:, None]] if self.weighted and self.by_network else []
        numbers += [values.full_attr(self.attributes)] if self.attributes else []
        return np.concatenate([rows, *numbers], axis=1) if numbers else rows


NOTHING = EdgeReads()
"""Messages of all edges that read nothing of them."""
