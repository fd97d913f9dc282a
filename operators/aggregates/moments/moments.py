"""Variances and standard deviations (MomentsSynopsis)."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.synopses.of_messages import MomentsSynopsis
from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.accumulator import ask_ahead
from freshet.operators.aggregates.aggregate import Aggregate
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.aggregates.moments.fold import MomentsFold, merge_partial_moments, read_moments
from freshet.operators.graph.edge_messages import Messages


@kernel
def merge_moments(s: np.ndarray, z: np.ndarray, messages: Messages) -> None:
    """Add the messages and their squares. Shapes: s (rows, 2 * width) float64; z (values, width) float32."""
    width = s.shape[1] // 2
    for i in range(len(messages.src)):
        ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        for j in range(width):
            m = np.float64(messages.weight[i] * z[u, j])
            s[v, j] += m
            s[v, width + j] += m * m


class MomentsAccumulator:
    """Sums of the messages that come, and of their squares."""

    def __init__(self, synopsis: MomentsSynopsis, width: int, rows: int) -> None:
        self._s = np.zeros((rows, 2 * width), np.float64)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Add messages and their squares."""
        merge_moments(self._s, z, messages)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write moments to `out`."""
        read_moments(self._s, got, rows, out, first)


MOMENTS = Aggregate[MomentsSynopsis](
    store=partial(FoldStore, MomentsFold),
    merger=lambda _: merge_partial_moments,
    accumulator=MomentsAccumulator,
    accumulator_bytes=lambda _, width: 16 * width,
    message_fold=MomentsFold,
)
