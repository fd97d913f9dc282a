"""Interface of what answers "what if" in a server: see job/what_if."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from freshet.job.serving.protocol.errors import NotReadyError


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


class ComingHypotheses:
    """Hypotheses whose graph is still opened: requests wait for it."""

    def __init__(self) -> None:
        self._there, self._found = threading.Event(), list[Hypotheses]()

    def come(self, found: Hypotheses) -> None:
        """Have those that wait be answered."""
        self._found.append(found)
        self._there.set()

    def tried(
        self, items: Sequence[Mapping[str, Any]], kind: str, min_epoch: int, timeout_s: float, most: int
    ) -> Tried:
        """Return rows as `Hypotheses` does, once they are there.

        Raises: NotReadyError at the timeout.
        """
        began = time.monotonic()
        if not self._there.wait(timeout_s):
            msg = f"what if: after {timeout_s:g} s the job's graph is still opened; ask again"
            raise NotReadyError(msg)
        left_s = max(0.0, timeout_s - (time.monotonic() - began))
        return self._found[0].tried(items, kind, min_epoch, left_s, most)
