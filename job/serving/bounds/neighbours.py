"""Exact neighbours by distance: one copy of the table at a time, however many calls ask for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from job.serving.columns import taken
from state.served.ids import Ids

if TYPE_CHECKING:
    from state.served.mapped import Found
    from state.served.plain import PlainReader
    from state.served.reader import TableReader

COSINE, DOT = METRICS = ("cosine", "dot")


class Rows(NamedTuple):
    """All rows at one epoch, and their lengths."""

    epoch: int
    ids: Ids
    found: Found
    norms: np.ndarray


class Neighbours:
    """Finds the rows that are nearest to a vector; safe for threads, which take turns.

    Each turn takes the whole processor anyway, and calls at once would each hold a copy, of an epoch of its own.
    """

    def __init__(self, table: Callable[[], TableReader | PlainReader]) -> None:
        self._table = table
        self._rows: Rows | None = None
        self._lock = threading.Lock()

    def best(self, query: np.ndarray, k: int, metric: str) -> tuple[int, Ids, np.ndarray, np.ndarray, np.ndarray]:
        """The epoch, and of the k nearest, the best first: ids, epochs, rows and scores.

        Shapes: query (width,) float32; epochs (k,) int64; rows (k, width) float32; scores (k,) float32
        """
        with self._lock:
            rows = self._newest()
            scores = rows.found.rows @ query
            if metric == COSINE:
                scores /= np.maximum(rows.norms * float(np.linalg.norm(query)), 1e-30)
            k = min(k, len(scores))
            best = np.argpartition(-scores, k - 1)[:k] if k else np.empty(0, np.int64)
            best = best[np.argsort(-scores[best], kind="stable")]
            return rows.epoch, taken(rows.ids, best), rows.found.own[best], rows.found.rows[best], scores[best]

    def _newest(self) -> Rows:
        """Kept until the next epoch."""
        table = self._table()
        if self._rows is None or self._rows.epoch != table.epoch:
            self._rows = None  # before the next one is made
            ids, found = table.all()
            norms = np.sqrt(np.einsum("ij,ij->i", found.rows, found.rows))
            self._rows = Rows(found.epoch, ids, found, norms)
        return self._rows
