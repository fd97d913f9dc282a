"""Maxima and minima (MonotonicSynopsis)."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.synopses.of_messages import MonotonicSynopsis
from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.accumulator import ask_ahead
from freshet.operators.aggregates.aggregate import Aggregate, MergePartials
from freshet.operators.aggregates.extrema.fold import ExtremaFold, sign_of
from freshet.operators.aggregates.extrema.kernels import merge_partial_extrema, read_extrema
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.graph.edge_messages import Messages


@kernel
def merge_extrema(s: np.ndarray, z: np.ndarray, messages: Messages, sign: float) -> None:
    """Keep the largest of `sign` times the messages, channel by channel; NaN passes everything.

    Shapes: s (rows, width) float32, -inf where there was none; z (values, width) float32.
    """
    for i in range(len(messages.src)):
        ask_ahead(s, z, messages, i)
        u, v = messages.src[i], messages.dst[i]
        factor = sign * messages.weight[i]
        for j in range(s.shape[1]):
            m = factor * z[u, j] + np.float32(0)
            if m > s[v, j] or m != m:
                s[v, j] = m


class ExtremaAccumulator:
    """Extrema of the messages that come, without their holders."""

    def __init__(self, synopsis: MonotonicSynopsis, width: int, rows: int) -> None:
        self._s, self._sign = np.full((rows, width), -np.inf, np.float32), sign_of(synopsis)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Merge messages."""
        merge_extrema(self._s, z, messages, self._sign)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write extrema to `out`, 0 where there are no messages."""
        read_extrema(self._s, self._sign, got, rows, out, first)


def _merger(synopsis: MonotonicSynopsis) -> MergePartials:
    sign = sign_of(synopsis)
    return lambda *of_parts: merge_partial_extrema(*of_parts, sign)


EXTREMA = Aggregate[MonotonicSynopsis](
    store=partial(FoldStore, ExtremaFold),
    merger=_merger,
    accumulator=ExtremaAccumulator,
    accumulator_bytes=lambda _, width: 4 * width,
    message_fold=ExtremaFold,
)
