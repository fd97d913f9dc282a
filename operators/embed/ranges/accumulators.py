"""What a range of destinations keeps of the messages that it gets one after the other, by the kind of synopsis.

Messages come in the order of their sources and are never taken back, so that less is kept than in a Storage: an
extremum without its holders, a softmax sum whose shift rises with the largest score so far (one pass over the sources,
not two).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.gnn.synopses.of_messages import (
    GatedSynopsis,
    InvertibleSynopsis,
    MomentsSynopsis,
    MonotonicSynopsis,
    ProductSynopsis,
    Synopsis,
)
from freshet.gnn.synopses.scores import terms_of
from freshet.gnn.synopses.softmax import SoftmaxSynopsis
from freshet.operators.aggregates.edge_networks.fold import gather_terms
from freshet.operators.aggregates.exact_sums import read_sums
from freshet.operators.aggregates.extrema.fold import sign_of
from freshet.operators.aggregates.extrema.kernels import read_extrema
from freshet.operators.aggregates.moments.fold import read_moments
from freshet.operators.embed.ranges import kernels
from freshet.operators.graph.edge_messages import Messages

MADE_AT_ONCE = 4096  # messages of a network: 64 blocks of a matrix product
_OF_TARGETS = SoftmaxSynopsis | GatedSynopsis | NetworkSynopsis


class Accumulator(Protocol):
    """The synopses of a range of destinations.

    Invariant: after `merge` of all messages in the order of their sources, `read` depends on these alone.
    """

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Merge messages of the values z[src]; of targets that are read, z[dst] are the rows."""

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write the synopses of these rows to `out`, from column `first` on; `got` messages have come, by row."""


def reads_targets(synopsis: Synopsis) -> bool:
    """Whether a message reads its target's row."""
    return isinstance(synopsis, _OF_TARGETS)


def state_bytes(synopsis: Synopsis, width: int) -> int | None:
    """What a destination takes; None where nothing here keeps such a synopsis."""
    if isinstance(synopsis, SoftmaxSynopsis | InvertibleSynopsis | GatedSynopsis):
        return 8 * synopsis.width(width)
    if isinstance(synopsis, MonotonicSynopsis):
        return 4 * width
    if isinstance(synopsis, MomentsSynopsis):
        return 16 * width
    if isinstance(synopsis, NetworkSynopsis):
        return state_bytes(synopsis.inner, synopsis.network.width)
    if isinstance(synopsis, ProductSynopsis):
        return sum(state_bytes(factor, width) or 0 for factor in synopsis.factors)
    return None


def made_bytes(synopsis: Synopsis) -> int:
    """What a message takes while a network makes it."""
    return 4 * (synopsis.network.reads + 2 * synopsis.network.width) if isinstance(synopsis, NetworkSynopsis) else 0


def accumulator_of(synopsis: Synopsis, width: int, rows: int) -> Accumulator:
    """Room for the synopses of so many destinations, of messages of that width.

    Raises: TypeError for a synopsis that nothing here keeps.
    """
    if isinstance(synopsis, InvertibleSynopsis):
        return _Sums(rows, width)
    if isinstance(synopsis, MonotonicSynopsis):
        return _Extrema(rows, width, synopsis)
    if isinstance(synopsis, MomentsSynopsis):
        return _Moments(rows, width)
    if isinstance(synopsis, ProductSynopsis):
        return _Product(rows, width, synopsis)
    if isinstance(synopsis, GatedSynopsis):
        return _Gates(rows, synopsis.channels)
    if isinstance(synopsis, SoftmaxSynopsis):
        return _Softmax(rows, synopsis)
    if isinstance(synopsis, NetworkSynopsis):
        return _Network(rows, synopsis)
    msg = f"nothing accumulates a {type(synopsis).__name__}"
    raise TypeError(msg)


class _Sums:
    def __init__(self, rows: int, width: int) -> None:
        self._s = np.zeros((rows, width), np.float64)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        kernels.merge_sums(self._s, z, messages)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        read_sums(self._s, rows, out, first)


class _Gates(_Sums):
    def merge(self, z: np.ndarray, messages: Messages) -> None:
        kernels.merge_gated(self._s, z, messages)


class _Moments:
    def __init__(self, rows: int, width: int) -> None:
        self._s = np.zeros((rows, 2 * width), np.float64)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        kernels.merge_moments(self._s, z, messages)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        read_moments(self._s, got, rows, out, first)


class _Extrema:
    def __init__(self, rows: int, width: int, synopsis: MonotonicSynopsis) -> None:
        self._s, self._sign = np.full((rows, width), -np.inf, np.float32), sign_of(synopsis)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        kernels.merge_extrema(self._s, z, messages, self._sign)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        read_extrema(self._s, self._sign, got, rows, out, first)


class _Softmax:
    def __init__(self, rows: int, synopsis: SoftmaxSynopsis) -> None:
        self._s, self._terms = np.zeros((rows, synopsis.width(0)), np.float64), terms_of(synopsis.score)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        kernels.merge_softmax(self._s, z, messages, self._terms)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        read_sums(self._s, rows, out, first)  # a shift is a float32 already


class _Product:
    """Several synopses of the same messages."""

    def __init__(self, rows: int, width: int, synopsis: ProductSynopsis) -> None:
        self._factors = [accumulator_of(factor, width, rows) for factor in synopsis.factors]
        self._widths = [factor.width(width) for factor in synopsis.factors]

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        for factor in self._factors:
            factor.merge(z, messages)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        for factor, width in zip(self._factors, self._widths, strict=True):
            factor.read(got, rows, out, first)
            first += width


class _Network:
    """Synopses of messages that a network makes of both ends, in blocks, on which the bits do not depend."""

    def __init__(self, rows: int, synopsis: NetworkSynopsis) -> None:
        self._network = synopsis.network
        self._inner = accumulator_of(synopsis.inner, synopsis.network.width, rows)
        self._order, self._weights = np.arange(MADE_AT_ONCE, dtype=np.int32), np.ones(MADE_AT_ONCE, np.float32)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        network = self._network
        for first in range(0, len(messages.src), MADE_AT_ONCE):
            src, dst = messages.src[first : first + MADE_AT_ONCE], messages.dst[first : first + MADE_AT_ONCE]
            terms = np.empty((len(src), network.reads), np.float32)
            gather_terms(z, src, dst, network.source, network.target, network.added, terms)
            made = Messages(self._order[: len(src)], dst, self._weights[: len(src)])
            self._inner.merge(network.made(terms), made)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        self._inner.read(got, rows, out, first)
