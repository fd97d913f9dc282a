"""Chunks of powers of two in a pool: handed out, given back, and used again.

`heads[k]` begins the chain of free chunks of 2**k entries, and the first entry of a free chunk has the next one; both
are a place + 1, and 0 ends the chain. `end[0]` is where the pool was never used yet. All of it stands in tables, so a
restored pool hands out the same places.

A pool of bytes has its chains in words of eight: `pool` is then those words, `shift` is 3, and no chunk has less than
eight bytes. Else `shift` is 0.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import kernel


@kernel
def order_of(entries: int) -> int:
    """Return the k of the smallest chunk, of 2**k entries, that has room for `entries`."""
    k = 0
    while (1 << k) < entries:
        k += 1
    return k


@kernel
def hand_out(heads: np.ndarray, end: np.ndarray, pool: np.ndarray, room: int, k: int, shift: int) -> np.int64:
    """Return the position of a chunk of 2**k entries; -1, with nothing changed, if the pool has no room for it.

    The caller has touched `heads` and `end`.
    """
    at = np.int64(heads[k]) - 1
    if at >= 0:
        heads[k] = pool[at >> shift]
        return at
    at = np.int64(end[0])
    if at + (1 << k) > room:
        return np.int64(-1)
    end[0] = at + (1 << k)
    return at


@kernel
def give_back(heads: np.ndarray, pool: np.ndarray, at: int, k: int, shift: int) -> None:
    """Free the chunk of 2**k entries at this place; the caller has touched `heads`, and the place in the pool."""
    pool[at >> shift] = heads[k]
    heads[k] = at + 1
