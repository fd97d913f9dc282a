"""Sums and means: a change is a delta (InvertibleSynopsis)."""

from __future__ import annotations

import numpy as np

from freshet.gnn.synopses.of_messages import InvertibleSynopsis
from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.accumulator import ask_ahead
from freshet.operators.aggregates.aggregate import Aggregate
from freshet.operators.aggregates.exact_sums import merge_partial_sums, read_sums
from freshet.operators.aggregates.sums.fold import SumFold
from freshet.operators.aggregates.sums.store import SumStore
from freshet.operators.graph.edge_messages import Messages


@kernel
def merge_sums(s: np.ndarray, z: np.ndarray, messages: Messages) -> None:
    """Add the messages. Shapes: s (rows, width) float64; z (values, width) float32."""
    for i in range(len(messages.src)):
        ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        for j in range(s.shape[1]):
            s[v, j] += np.float64(messages.weight[i] * z[u, j])


class SumAccumulator:
    """Sums of the messages that come."""

    def __init__(self, synopsis: InvertibleSynopsis, width: int, rows: int) -> None:
        self._s = np.zeros((rows, width), np.float64)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Add messages."""
        merge_sums(self._s, z, messages)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write sums to `out`."""
        read_sums(self._s, rows, out, first)


SUMS = Aggregate[InvertibleSynopsis](
    store=SumStore,
    merger=lambda _: merge_partial_sums,
    accumulator=SumAccumulator,
    accumulator_bytes=lambda _, width: 8 * width,
    message_fold=SumFold,
    spills=True,
)
