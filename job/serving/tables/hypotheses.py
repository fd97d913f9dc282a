"""Interfaces of what follows a job's graph in a server, and answers of it: see job/what_if."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from freshet.job.serving.protocol.errors import NotReadyError

if TYPE_CHECKING:
    from freshet.state.served.ids import Ids
    from freshet.state.served.mapped import Found


class Tried(NamedTuple):
    """Rows after what was tried, of all items one after the other: the vertex, then those of `also` that there are.

    Shapes: ids n, None of a vertex without one; rows (n, width) float32; of (n,) int64, the item of each row; unknown:
    ids of `also` that there are not
    """

    epoch: int
    ids: list[Any]
    rows: np.ndarray
    of: np.ndarray
    unknown: list[Any]


class Hypotheses(Protocol):
    """Interface of what answers."""

    def tried(
        self, items: Sequence[Mapping[str, Any]], kind: str, min_epoch: int, timeout_s: float, most: int
    ) -> Tried:
        """Return rows of vertices of a kind, after what each item tries by itself.

        `most`: how many rows of inner layers an item may change.
        """


class Embedder(Protocol):
    """Interface of what computes embeddings as they are asked for."""

    def embedded(self, kind: str, ids: Ids, upto: int, timeout_s: float) -> Found:
        """Return the embeddings of vertices of a kind at the newest epoch, or at `upto`."""


class Answers(Hypotheses, Embedder, Protocol):
    """Interface of what follows a job's graph."""


class ComingAnswers:
    """Answers whose graph is still opened: requests wait for it."""

    def __init__(self) -> None:
        self._there, self._found = threading.Event(), list[Answers]()

    def come(self, found: Answers) -> None:
        """Have those that wait be answered."""
        self._found.append(found)
        self._there.set()

    def tried(
        self, items: Sequence[Mapping[str, Any]], kind: str, min_epoch: int, timeout_s: float, most: int
    ) -> Tried:
        """Return rows as `Hypotheses` does, once they are there.

        Raises: NotReadyError at the timeout.
        """
        left_s = self._opened("what if", timeout_s)
        return self._found[0].tried(items, kind, min_epoch, left_s, most)

    def embedded(self, kind: str, ids: Ids, upto: int, timeout_s: float) -> Found:
        """Return rows as `Embedder` does, once they are there.

        Raises: NotReadyError at the timeout.
        """
        left_s = self._opened("embeddings", timeout_s)
        return self._found[0].embedded(kind, ids, upto, left_s)

    def _opened(self, what: str, timeout_s: float) -> float:
        """Wait until the graph is opened; return what is left of the time, in seconds."""
        began = time.monotonic()
        if not self._there.wait(timeout_s):
            msg = f"{what}: after {timeout_s:g} s the job's graph is still opened; ask again"
            raise NotReadyError(msg)
        return max(0.0, timeout_s - (time.monotonic() - began))
