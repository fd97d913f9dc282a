"""Exact neighbours by distance: one copy of the table at a time, however many calls ask for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freshet.job.serving.protocol.columns import taken
from freshet.state.served.ids import Ids
from freshet.state.served.layout import T_POSITION_SEQ

if TYPE_CHECKING:
    from freshet.state.served.mapped import Found
    from freshet.state.served.reader import TableReader

Scores = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of left and right rows
COSINE, DOT, LINK = METRICS = ("cosine", "dot", "link")


class TableRows(NamedTuple):
    """All rows at one epoch, their lengths, and what the table was when they were read."""

    moment: tuple[object, ...]
    epoch: int
    ids: Ids
    found: Found
    norms: np.ndarray


class NearestRows:
    """Finds the rows that are nearest to a vector; safe for threads, which take turns.

    Each turn takes the whole processor anyway, and calls at once would each hold a copy, of an epoch of its own.
    """

    def __init__(self, table: Callable[[], TableReader], by_epochs: bool = True) -> None:
        """`by_epochs`: a row does not change without the epoch."""
        self._table, self._by_epochs = table, by_epochs
        self._rows: TableRows | None = None
        self._lock = threading.Lock()

    def best(
        self, query: np.ndarray, k: int, metric: str, link: Scores | None = None
    ) -> tuple[int, Ids, np.ndarray, np.ndarray, np.ndarray]:
        """The epoch, and of the k nearest, the best first: ids, epochs, rows and scores.

        `link`: what scores pairs of the query and a row, where that is the metric; pairs without a number come last.
        Shapes: query (width,) float32; epochs (k,) int64; rows (k, width) float32; scores (k,) float32
        """
        with self._lock:
            rows = self._newest()
            scores = rows.found.rows @ query if link is None else link(query[None], rows.found.rows)
            if link is not None:
                scores[np.isnan(scores)] = -np.inf
            elif metric == COSINE:
                scores /= np.maximum(rows.norms * float(np.linalg.norm(query)), 1e-30)
            k = min(k, len(scores))
            best = np.argpartition(-scores, k - 1)[:k] if k else np.empty(0, np.int64)
            best = best[np.argsort(-scores[best], kind="stable")]
            return rows.epoch, taken(rows.ids, best), rows.found.own[best], rows.found.rows[best], scores[best]

    def _newest(self) -> TableRows:
        """Kept until the next epoch, or the next row that comes without one."""
        table = self._table()
        moment: tuple[object, ...] = table.path, table.epoch
        if not self._by_epochs:
            moment = *moment, table.word(T_POSITION_SEQ)  # it changes behind the last row of each batch
        if self._rows is None or self._rows.moment != moment:
            self._rows = None  # before the next one is made
            ids, found = table.all()
            norms = np.sqrt(np.einsum("ij,ij->i", found.rows, found.rows))
            self._rows = TableRows((table.path, found.epoch, *moment[2:]), found.epoch, ids, found, norms)
        return self._rows
