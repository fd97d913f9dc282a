"""The schema of a graph: how wide the features of its vertices are, and what its edges carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

WEIGHT, ATTR = "weight", "attr"


@dataclass(frozen=True, slots=True)
class Features:
    """The widths of raw features; all vertices are of one kind, so there is one width.

    Between the Parser, which checks rows against it, and the model, which reads them, rows are only made and measured.
    """

    width: int

    def zeros(self, vertices: int) -> np.ndarray:
        """Return the features of vertices that have none, (vertices, width) float32."""
        return np.zeros((vertices, self.width), np.float32)

    def empty(self) -> np.ndarray:
        """Return the features of no vertex, (0, width) float32."""
        return np.empty((0, self.width), np.float32)

    def stacked(self, rows: list[np.ndarray]) -> np.ndarray:
        """Return single rows, (width,) float32 each, as one array."""
        return np.concatenate(rows).reshape(-1, self.width) if rows else self.empty()

    @property
    def row_bytes(self) -> int:
        """Bytes of a vertex's features."""
        return 4 * self.width

    def __str__(self) -> str:
        return f"{self.width} features"


@dataclass(frozen=True, slots=True)
class EdgeValues:
    """What each of n edges carries beside its ends and its type.

    The Parser and snapshots make values, and messages read them. In between they are taken, joined and moved whole.

    Shapes:
        weight: (n,) float32
        attr: (n,) int32, how many numbers the edge's attr has, -1 without; None where no edge has any
    """

    weight: np.ndarray
    attr: np.ndarray | None = None

    @staticmethod
    def default(edges: int) -> EdgeValues:
        """Return the values of edges that carry nothing."""
        return EdgeValues(np.ones(edges, np.float32))

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, rows: np.ndarray | slice) -> EdgeValues:
        return EdgeValues(self.weight[rows], None if self.attr is None else self.attr[rows])

    @property
    def with_attr(self) -> int:
        """Edges that have an attr."""
        return 0 if self.attr is None else int(np.count_nonzero(self.attr >= 0))

    @property
    def attr_widths(self) -> list[int]:
        """How many numbers the attrs have, each width once, ascending."""
        return [] if self.attr is None else np.unique(self.attr[self.attr >= 0]).tolist()

    @staticmethod
    def concatenate(parts: Sequence[EdgeValues]) -> EdgeValues:
        """Return the values of all parts, in order."""
        attr = None
        if any(part.attr is not None for part in parts):
            attr = np.concatenate([part.full_columns()[ATTR] for part in parts])
        return EdgeValues(np.concatenate([part.weight for part in parts]), attr)

    def full_columns(self) -> dict[str, np.ndarray]:
        """Return a column for each value, whatever the edges carry."""
        return {WEIGHT: self.weight, ATTR: np.full(len(self), -1, np.int32) if self.attr is None else self.attr}

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns that the values travel as; one that holds its default throughout is left out."""
        found = {}
        if (self.weight != 1).any():
            found[WEIGHT] = self.weight
        if self.attr is not None and self.with_attr:
            found[ATTR] = self.attr
        return found

    @staticmethod
    def from_columns(columns: Mapping[str, np.ndarray], edges: int) -> EdgeValues:
        """The inverse of `columns`."""
        weight = columns.get(WEIGHT)
        return EdgeValues(np.ones(edges, np.float32) if weight is None else weight, columns.get(ATTR))
