"""The core of the as-of join: for each question the newest row of its vertex up to an epoch, batch by batch."""

from __future__ import annotations

import numpy as np

NONE = -1


def newest_rows(
    codes: np.ndarray, epochs: np.ndarray, deleted: np.ndarray, asked: np.ndarray, upto: np.ndarray
) -> np.ndarray:
    """Return the place of the newest row of `asked` up to the epoch `upto`, (n,) int64; NONE where there is none.

    Of rows of one vertex and epoch, the one that lives counts: a vertex may move between parts.

    Shapes: codes, epochs (k,) int64, deleted (k,) bool: rows in any order; asked, upto (n,) int64: the questions, by
        the same codes, which count from 0
    """
    if not len(codes):
        return np.full(len(asked), NONE)
    order = np.lexsort((~deleted, epochs, codes))
    numbers, rank = np.unique(epochs, return_inverse=True)
    steps = len(numbers) + 1
    keys = codes[order] * steps + rank.reshape(-1)[order] + 1
    wanted = asked * steps + np.searchsorted(numbers, upto, "right")
    found = order[np.maximum(np.searchsorted(keys, wanted, "right") - 1, 0)]
    fits = (codes[found] == asked) & (epochs[found] <= upto)
    return np.where(fits, found, NONE)


class Newest:
    """The newest rows so far: of each question the epoch, whether it lives, and where its vector lies.

    Shapes: epochs, rows (n,) int64, files (n,) int32, NONE without a row; lives, in_base (n,) bool
    """

    def __init__(self, asked: np.ndarray, upto: np.ndarray, vertices: int) -> None:
        """`asked`: the vertex of each question, as a number below `vertices`; `upto`: the last epoch that counts."""
        self._asked, self._upto, self._vertices = asked, upto, vertices
        n = len(asked)
        self.epochs, self.rows, self.files = np.full(n, NONE), np.full(n, NONE), np.full(n, NONE, np.int32)
        self.lives, self.in_base = np.zeros(n, bool), np.zeros(n, bool)

    def take(
        self, codes: np.ndarray, epochs: np.ndarray, deleted: np.ndarray, file: int, first: int, *, is_base: bool
    ) -> None:
        """Take in a batch of rows, the first of which is row `first` of a file; codes are NONE for other vertices."""
        mine = np.flatnonzero(codes >= 0)
        if not len(mine):
            return
        there = np.zeros(self._vertices, bool)
        there[codes[mine]] = True
        some = np.flatnonzero(there[self._asked])
        at = newest_rows(codes[mine], epochs[mine], deleted[mine], self._asked[some], self._upto[some])
        some, rows = some[at >= 0], mine[at[at >= 0]]
        same, lives = epochs[rows] == self.epochs[some], ~deleted[rows]
        self.in_base[some[same & is_base]] = True
        better = (epochs[rows] > self.epochs[some]) | (same & lives & ~self.lives[some])
        some, rows, lives, same = some[better], rows[better], lives[better], same[better]
        self.epochs[some], self.lives[some], self.rows[some], self.files[some] = epochs[rows], lives, rows + first, file
        self.in_base[some] = is_base | (self.in_base[some] & same)
