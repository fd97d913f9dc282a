"""Edges of a relation by target, and the numbers that sources have in a chunk of targets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import kernel


@kernel
def _count_targets(dst: np.ndarray, ends: np.ndarray) -> None:
    for target in dst:
        ends[target + 1] += 1


@kernel
def _deal(dst: np.ndarray, at: np.ndarray, order: np.ndarray) -> None:
    for edge in range(len(dst)):
        order[at[dst[edge]]] = edge
        at[dst[edge]] += 1


@kernel
def _first_seen(
    ends: np.ndarray, src: np.ndarray, first: int, last: int, seen: np.ndarray, token: int, found: np.ndarray
) -> None:
    for target in range(first, last):
        count = 0
        for edge in range(ends[target], ends[target + 1]):
            if seen[src[edge]] != token:
                seen[src[edge]] = token
                count += 1
        found[target - first] = count


@kernel
def _number(
    src: np.ndarray,
    count: int,
    token: int,
    marks: np.ndarray,
    places: np.ndarray,
    ids: np.ndarray,
    before: np.ndarray,
    local: np.ndarray,
) -> int:
    for edge in range(len(src)):
        source = src[edge]
        if marks[source] != token:
            before[count] = places[source] if marks[source] == token - 1 else -1
            marks[source], places[source], ids[count] = token, count, source
            count += 1
        local[edge] = places[source]
    return count


class EdgesByTarget(NamedTuple):
    """The edges of a relation, those of one target behind each other.

    Shapes: ends (targets + 1,) int64; src, order (e,) int32, order being the number that an edge had; weight (e,) and
    attr (e, width) float32 in their first order, None where no message reads them
    """

    ends: np.ndarray
    src: np.ndarray
    order: np.ndarray
    weight: np.ndarray | None = None
    attr: np.ndarray | None = None

    @staticmethod
    def of(
        src: np.ndarray, dst: np.ndarray, targets: int, weight: np.ndarray | None, attr: np.ndarray | None
    ) -> EdgesByTarget:
        """Sort edges by target; those of one target keep their order."""
        ends, order = np.zeros(targets + 1, np.int64), np.empty(len(dst), np.int32)
        if len(dst):
            _count_targets(dst, ends)
            np.cumsum(ends, out=ends)
            _deal(dst, ends.copy(), order)
        return EdgesByTarget(ends, src[order], order, weight, attr)

    def first_seen(self, first: int, last: int, seen: np.ndarray, token: int) -> np.ndarray:
        """Return how many sources each of these targets has that none before it has; `seen` is brought on."""
        found = np.zeros(last - first, np.int64)
        _first_seen(self.ends, self.src, first, last, seen, token, found)
        return found

    def count_of(self, first: int, last: int) -> int:
        """Return how many edges these targets have."""
        return int(self.ends[last] - self.ends[first])

    def of_targets(self, first: int, last: int) -> slice:
        """Return the places of the edges of these targets."""
        return slice(int(self.ends[first]), int(self.ends[last]))


class SourceNumbers:
    """Numbers of the vertices of a kind in one chunk after the other, and which of them the chunk before had."""

    def __init__(self, vertices: int) -> None:
        self._marks, self._places = np.zeros(vertices, np.int32), np.zeros(vertices, np.int32)
        self._token = 1
        self.begin(0)

    def begin(self, most: int) -> None:
        """Begin a chunk that has at most this number of vertices."""
        most = min(most, len(self._marks))
        self._token += 1
        self._ids, self._before, self.count = np.empty(most, np.int32), np.empty(most, np.int32), 0

    def add(self, vertices: np.ndarray) -> np.ndarray:
        """Return the numbers of these vertices in the chunk, (n,) int32; new ones follow in the order given."""
        local = np.empty(len(vertices), np.int32)
        self.count = _number(
            vertices, self.count, self._token, self._marks, self._places, self._ids, self._before, local
        )
        return local

    @property
    def ids(self) -> np.ndarray:
        """The vertices by number."""
        return self._ids[: self.count]

    @property
    def before(self) -> np.ndarray:
        """Their numbers in the chunk before, -1 for those that it did not have."""
        return self._before[: self.count]
