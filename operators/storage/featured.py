"""A look at whether a task's vertices have features: where all are zeros, embeddings say nothing of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshet.operators.storage.owner import RowOwner
from freshet.operators.telemetry.figures import FEATURED


class Featured:
    """Remembers whether any vertex has had a feature other than zero, since the task began or was restored."""

    def __init__(self, owners: Sequence[tuple[RowOwner, int]]) -> None:
        """`owners`: rows of vertices, and how many of their first columns are raw features."""
        self._rows = [(owner, width) for owner, width in owners if width]
        self._is_found = self._is_searched = False

    def see(self, x: np.ndarray) -> None:
        """Look at the features that an epoch brings, until some are found."""
        self._is_found = self._is_found or bool(x.any())

    @property
    def gauges(self) -> dict[str, int]:
        """1 where there were such features, 0 where there were none; nothing where vertices have no features."""
        if not self._is_found and not self._is_searched:  # those of a snapshot, or of an earlier run
            self._is_searched = True
            self._is_found = any(bool(owner.x.data[:, :width].any()) for owner, width in self._rows)
        return {FEATURED: int(self._is_found)} if self._rows else {}
