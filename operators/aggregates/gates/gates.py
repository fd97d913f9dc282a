"""Gated sums (GatedSynopsis)."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.synopses.of_messages import GatedSynopsis
from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.accumulator import ask_ahead
from freshet.operators.aggregates.aggregate import Aggregate
from freshet.operators.aggregates.exact_sums import merge_partial_sums, read_sums
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.aggregates.gates.fold import GatedFold, gated_message
from freshet.operators.graph.edge_messages import Messages, message_at


@kernel
def merge_gated(s: np.ndarray, z: np.ndarray, messages: Messages) -> None:
    """Add gated messages.

    Shapes: s (rows, channels) float64; z (values, 3 * channels) float32, the destinations' rows first.
    """
    for i in range(len(messages.src)):
        ask_ahead(s, z, messages, i)
        message = message_at(messages, i)
        for c in range(s.shape[1]):
            s[message.dst, c] += gated_message(z, z, s.shape[1], message, c)


class GatedAccumulator:
    """Gated sums of the messages that come."""

    def __init__(self, synopsis: GatedSynopsis, width: int, rows: int) -> None:
        self._s = np.zeros((rows, synopsis.channels), np.float64)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Add gated messages."""
        merge_gated(self._s, z, messages)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write sums to `out`."""
        read_sums(self._s, rows, out, first)


GATES = Aggregate[GatedSynopsis](
    store=partial(FoldStore, GatedFold),
    merger=lambda _: merge_partial_sums,
    accumulator=GatedAccumulator,
    accumulator_bytes=lambda synopsis, width: 8 * synopsis.width(width),
)
