"""Copies of pages of a table as of a marker, and what of a page is written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_VALUES_AT_ONCE = 1 << 16


class PageCopies:
    """Room for copies of pages, of which `copied` says which are there.

    Shapes: rows (copies, page_rows, ...); copied (copies,) uint8.
    """

    def __init__(self, copies: int, shape: tuple[int, ...], room: Callable[[tuple[int, ...]], np.ndarray]) -> None:
        """`shape`: of a page; `room` returns memory."""
        self.rows = room((max(1, copies), *shape))
        self.copied = np.zeros(max(1, copies), np.uint8)

    def widen(self, page_rows: int, fill: float) -> None:
        """Enlarge the copies of pages of parts smaller than a page, whose pages have grown."""
        before = self.rows.shape[1]
        if before == page_rows:
            return
        wider = np.empty((len(self.rows), page_rows, *self.rows.shape[2:]), self.rows.dtype)
        copied = np.flatnonzero(self.copied)
        wider[copied, :before] = self.rows[copied]
        wider[copied, before:] = fill
        self.rows = wider


def count_held(bits: np.ndarray, fill_bits: np.unsignedinteger) -> int:
    """Return the number of values before the `fill` at the end, by the bits of both."""
    for end in range(bits.size, 0, -_VALUES_AT_ONCE):
        begin = max(0, end - _VALUES_AT_ONCE)
        held = np.flatnonzero(bits[begin:end] != fill_bits)
        if held.size:
            return begin + int(held[-1]) + 1
    return 0
