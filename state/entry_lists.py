"""Lists of entries of four words, in the order of the first of these, in a pool of chunks (state/chunks.py).

A list's head is three words of a row of the caller's: the place of its chunk, how many entries it has, and k for a
chunk of 2**k words (0: none). The caller has touched that row, and the table of the pool's `heads` and `end`
(state/chunks.py; heads (ORDERS,) int64). Pools are (words,) int32.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner
from freshet.state.chunks import give_back, hand_out
from freshet.state.table import View, touch

WORDS = 4
HEAD_WORDS = 3
_AT, _COUNT, _ORDER = range(HEAD_WORDS)
_FIRST_ORDER = 2  # a chunk of one entry
ORDERS = 18  # chunks of up to 32,768 entries


def words_for(entries: int) -> int:
    """Return the words of the largest chunk that a list of this length ever requests."""
    return WORDS << max(0, entries - 1).bit_length()


@inner
def entries_of(rows: np.ndarray, row: int, head: int) -> np.int64:
    """Return the number of entries of the list."""
    return np.int64(rows[row, head + _COUNT])


@inner
def entry_at(rows: np.ndarray, row: int, head: int, k: int) -> np.int64:
    """Return the position in the pool where the k-th entry begins."""
    return np.int64(rows[row, head + _AT]) + WORDS * k


@inner
def entry_from(pool: View, rows: np.ndarray, row: int, head: int, key: int) -> np.int64:
    """The first entry whose first word is `key` or more, by its number in the list."""
    k, end = np.int64(0), entries_of(rows, row, head)
    while k < end:
        middle = (k + end) >> 1
        if pool.data[entry_at(rows, row, head, middle)] < key:
            k = middle + 1
        else:
            end = middle
    return k


@inner
def find_entry(pool: View, rows: np.ndarray, row: int, head: int, key: int) -> np.int64:
    """Return the position in the pool of the entry with this first word, or -1."""
    k = entry_from(pool, rows, row, head, key)
    if k == entries_of(rows, row, head) or pool.data[entry_at(rows, row, head, k)] != key:
        return np.int64(-1)
    return entry_at(rows, row, head, k)


@inner
def _copy_entry(pool: View, to: int, of: int) -> None:
    touch(pool, to)
    for word in range(WORDS):
        pool.data[to + word] = pool.data[of + word]


@inner
def add_entry(
    pool: View, heads: np.ndarray, end: np.ndarray, rows: np.ndarray, row: int, head: int, key: int
) -> np.int64:
    """Add an entry with this first word and return its position; the caller writes the other words.

    The pool has room for a larger chunk.
    """
    count = entries_of(rows, row, head)
    k, order = entry_from(pool, rows, row, head, key), np.int64(rows[row, head + _ORDER])
    at = np.int64(rows[row, head + _AT])
    if order == 0 or WORDS * (count + 1) > (1 << order):
        larger = max(order + 1, np.int64(_FIRST_ORDER))
        old, at = at, hand_out(heads, end, pool.data, len(pool.data), larger, 0)
        for i in range(count):
            _copy_entry(pool, at + WORDS * i, old + WORDS * i)
        if order:
            touch(pool, old)
            give_back(heads, pool.data, old, order, 0)
        rows[row, head + _AT], rows[row, head + _ORDER] = at, larger
    for i in range(count, k, -1):
        _copy_entry(pool, at + WORDS * i, at + WORDS * (i - 1))
    rows[row, head + _COUNT] = count + 1
    touch(pool, at + WORDS * k)
    pool.data[at + WORDS * k] = key
    return at + WORDS * k


@inner
def remove_entry(pool: View, heads: np.ndarray, rows: np.ndarray, row: int, head: int, key: int) -> None:
    """Take out the entry with this first word, which is there; an empty list gives its chunk back."""
    count = entries_of(rows, row, head) - 1
    for k in range(entry_from(pool, rows, row, head, key), count):
        _copy_entry(pool, entry_at(rows, row, head, k), entry_at(rows, row, head, k + 1))
    rows[row, head + _COUNT] = count
    if count == 0:
        at = entry_at(rows, row, head, 0)
        touch(pool, at)
        give_back(heads, pool.data, at, np.int64(rows[row, head + _ORDER]), 0)
        rows[row, head + _AT] = rows[row, head + _ORDER] = 0
