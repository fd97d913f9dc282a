"""Accumulators of a pass over a whole graph, for the messages to a range of destinations.

Messages come in the order of their sources and are never taken back, so that less is kept than in a Storage: an
extremum without its holders, a softmax sum whose shift rises with the largest score so far (one pass over the sources,
not two).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from freshet.kernels.kernel import inner
from freshet.kernels.prefetch import prefetch_row, prefetch_wide_row
from freshet.operators.graph.edge_messages import Messages

MADE_AT_ONCE = 4096  # messages that are made at a time: 64 blocks of a matrix product
_AHEAD = 8


class Accumulator(Protocol):
    """The synopses of a range of destinations.

    Invariant: after `merge` of all messages in the order of their sources, `read` depends on these alone.
    """

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Merge messages of the values z[src]; of targets that are read, z[dst] are the rows."""

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write the synopses of these rows to `out`, from column `first` on; `got` messages have come, by row."""


class RowAccumulator(NamedTuple):
    """An accumulator of rows that one kernel merges messages into, and another one reads."""

    merge: Callable[[np.ndarray, Messages], None]
    read: Callable[[np.ndarray, np.ndarray, np.ndarray, int], None]


@inner
def ask_ahead(s: np.ndarray, z: np.ndarray, messages: Messages, i: int) -> None:
    """Ask for what the messages behind the i-th read and change."""
    if i + _AHEAD < len(messages.src):
        prefetch_wide_row(s, np.int64(messages.dst[i + _AHEAD]))
        prefetch_row(z, np.int64(messages.src[i + _AHEAD]))
