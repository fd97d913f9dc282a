"""Interface of what answers "what if" in a server: see job/what_if."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np


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
