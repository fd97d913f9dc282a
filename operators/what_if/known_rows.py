"""Rows of an inner layer by vertex, of those vertices for which they are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class KnownRows:
    """The rows that one layer has made, by kind and by the vertex's row in the graph's tables.

    Invariant: of a vertex that is `known` all sources of its in-edges, and itself, are known in the layer before.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        """`widths` by kind."""
        self.known, self.is_used = np.zeros(0, bool), False  # used: whether any were known
        self._kind = np.zeros(0, np.uint8)
        self._rows = [np.empty((0, width), np.float32) for width in widths]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that there is room for."""
        return self.known.nbytes + sum(rows.nbytes for rows in self._rows)

    def reserve(self, vertices: int) -> None:
        """Have room for that many rows of vertices."""
        if vertices <= len(self.known):
            return
        capacity, known = vertices + vertices // 4, np.flatnonzero(self.known)
        of_kind = self._kind[known]
        self.known, self._kind = np.zeros(capacity, bool), np.zeros(capacity, np.uint8)
        self.known[known], self._kind[known] = True, of_kind
        for kind, rows in enumerate(self._rows):
            mine = known[of_kind == kind]  # pages that no row of the kind is in take no memory
            self._rows[kind] = larger = np.empty((capacity, rows.shape[1]), np.float32)
            larger[mine] = rows[mine]

    def get(self, kind: int, vertices: np.ndarray) -> np.ndarray:
        """Return the rows of known vertices of a kind, (n, width) float32."""
        return self._rows[kind][vertices]

    def put(self, kind: int, vertices: np.ndarray, rows: np.ndarray) -> None:
        """Note the rows of vertices of a kind."""
        self.is_used = True
        self._rows[kind][vertices] = rows
        self.known[vertices], self._kind[vertices] = True, kind

    def forget(self, vertices: np.ndarray) -> np.ndarray:
        """Forget vertices; returns those that were known."""
        lost = vertices[self.known[vertices]]
        self.known[lost] = False
        return lost
