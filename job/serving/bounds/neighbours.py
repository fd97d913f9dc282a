"""Exact neighbours by distance: one copy of the table at a time, however many calls ask for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from freshet.state.served.ids import Ids
from freshet.state.served.layout import T_POSITION_SEQ

if TYPE_CHECKING:
    from freshet.state.served.mapped import Found
    from freshet.state.served.reader import TableReader

Scores = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of left and right rows
COSINE, DOT, LINK = METRICS = ("cosine", "dot", "link")


class _HasTable(Protocol):
    """Interface of a source of answers: the whole table."""

    @property
    def whole(self) -> TableReader:
        """The table with all that can be read of it."""


S = TypeVar("S", bound=_HasTable)


class TableRows(NamedTuple, Generic[S]):
    """All rows at one epoch, their lengths, what they were read from, and what the table was then."""

    moment: tuple[object, ...]
    epoch: int
    ids: Ids
    found: Found
    norms: np.ndarray
    served: S


class NearestRows(Generic[S]):
    """Finds the rows that are nearest to a vector; safe for threads, which take turns.

    Each turn takes the whole processor anyway, and calls at once would each hold a copy, of an epoch of its own.
    """

    def __init__(self, by_epochs: Callable[[S], bool]) -> None:
        """`by_epochs`: whether a row does not change without the epoch."""
        self._by_epochs = by_epochs
        self._rows: TableRows[S] | None = None
        self._lock = threading.Lock()

    def best(
        self,
        now: Callable[[], tuple[S, S, int]],
        query: Callable[[TableRows[S], S], np.ndarray],
        k: int,
        metric: str,
        link: Callable[[S, S], Scores] | None = None,
    ) -> tuple[TableRows[S], np.ndarray, np.ndarray]:
        """All rows, the places of the k nearest among them, the best first, and their scores.

        `now`: the sources of the vector and of the rows, and the epoch up to which they are read, once it is this
        call's turn. `query`: the vector, given all rows and its source, (width,) float32; so that of a vertex is of the
        same epoch. `link`: what scores pairs of the vector and a row, where that is the metric; pairs without a number
        come last.

        Shapes: places (k,) int64; scores (k,) float32
        """
        with self._lock:
            left, right, upto = now()
            rows = self._newest(right, upto)
            vector = query(rows, left)
            if link is not None:
                scores = link(left, rows.served)(vector[None], rows.found.rows)
                scores[np.isnan(scores)] = -np.inf
            else:
                scores = rows.found.rows @ vector
            if metric == COSINE:
                scores /= np.maximum(rows.norms * float(np.linalg.norm(vector)), 1e-30)
            k = min(k, len(scores))
            best = np.argpartition(-scores, k - 1)[:k] if k else np.empty(0, np.int64)
            best = best[np.argsort(-scores[best], kind="stable")]
            return rows, best, scores[best]

    def _newest(self, served: S, upto: int) -> TableRows[S]:
        """Kept until the next epoch, or the next row that comes without one."""
        table = served.whole
        moment: tuple[object, ...] = table.path, min(table.epoch, upto)
        if not self._by_epochs(served):
            moment = *moment, table.word(T_POSITION_SEQ)  # it changes behind the last row of each batch
        if self._rows is None or self._rows.moment != moment:
            self._rows = None  # before the next one is made
            ids, found = table.all(upto)
            norms = np.sqrt(np.einsum("ij,ij->i", found.rows, found.rows))
            self._rows = TableRows((table.path, found.epoch, *moment[2:]), found.epoch, ids, found, norms, served)
        return self._rows
