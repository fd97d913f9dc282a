"""Synopses of messages that a network makes of both ends of an edge (NetworkSynopsis)."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.operators.aggregates.accumulator import MADE_AT_ONCE, Accumulator
from freshet.operators.aggregates.aggregate import Aggregate, Lookup
from freshet.operators.aggregates.edge_networks.fold import NetworkFold, messages_of
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.graph.edge_messages import Messages
from freshet.state.table import TableSet


class NetworkAccumulator:
    """Synopses of messages that are made in blocks, on which the bits do not depend."""

    def __init__(self, synopsis: NetworkSynopsis, inner: Accumulator) -> None:
        """`inner` gets what the network makes."""
        self._network, self._inner = synopsis.network, inner
        self._order, self._weights = np.arange(MADE_AT_ONCE, dtype=np.int32), np.ones(MADE_AT_ONCE, np.float32)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Make messages, and merge them."""
        network = self._network
        for first in range(0, len(messages.src), MADE_AT_ONCE):
            src, dst, weight = (of[first : first + MADE_AT_ONCE] for of in messages)
            made = Messages(self._order[: len(src)], dst, self._weights[: len(src)])
            self._inner.merge(messages_of(network, z, z, src, dst, weight[:, None]), made)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`."""
        self._inner.read(got, rows, out, first)


def edge_networks_of(of: Lookup) -> Aggregate[NetworkSynopsis]:
    """Return how they are kept, where `of` says how the synopses are kept that they are made of."""

    def fold(tables: TableSet, name: str, width: int, synopsis: NetworkSynopsis) -> NetworkFold:
        inner = of(synopsis.inner).fold_of(tables, name, synopsis.network.width, synopsis.inner)
        return NetworkFold(synopsis, inner)

    def accumulator(synopsis: NetworkSynopsis, width: int, rows: int) -> NetworkAccumulator:
        inner = of(synopsis.inner).accumulator(synopsis.inner, synopsis.network.width, rows)
        return NetworkAccumulator(synopsis, inner)

    return Aggregate(
        store=partial(FoldStore, fold),
        merger=lambda synopsis: of(synopsis.inner).merger(synopsis.inner),
        accumulator=accumulator,
        accumulator_bytes=lambda synopsis, _: of(synopsis.inner).accumulator_bytes(
            synopsis.inner, synopsis.network.width
        ),
        made_bytes=lambda synopsis: 4 * (synopsis.network.reads + 2 * synopsis.network.width),
    )
