"""Scores of rows as of one epoch, the best kept: rows are read where they lie, and none is copied but the one at hand.

The best stand in a heap, the worst of them first. Keys decide: the score as float32, larger is better, then the slot,
smaller is better. NaN is worse than every number.
"""

from __future__ import annotations

import math

import numpy as np

from freshet.kernels.kernel import apart, kernel, summed
from freshet.state.served.read_kernels import ABSENT, ask_for, read_slot

COSINE, DOT, EUCLIDEAN = range(3)
NO_NUMBER = -np.inf  # the key of NaN
LOWEST = -1e300  # the key of -inf, below that of every finite float32
_AHEAD = 6
_TINY = 1e-30


@summed
def _products(rows: np.ndarray, query: np.ndarray) -> tuple[np.float64, np.float64]:
    """Return the product of a row and the query, and that of the row and itself."""
    both, own = np.float64(0), np.float64(0)
    for k in range(len(query)):
        one = np.float64(rows[0, k])
        both += one * np.float64(query[k])
        own += one * one
    return both, own


@summed
def _product(rows: np.ndarray, query: np.ndarray) -> np.float64:
    """Return the product of a row and the query."""
    both = np.float64(0)
    for k in range(len(query)):
        both += np.float64(rows[0, k]) * np.float64(query[k])
    return both


@summed
def _squares(rows: np.ndarray, query: np.ndarray) -> np.float64:
    """Return the squared distance of a row and the query."""
    found = np.float64(0)
    for k in range(len(query)):
        apart_by = np.float64(rows[0, k]) - np.float64(query[k])
        found += apart_by * apart_by
    return found


@apart
def _key(rows: np.ndarray, query: np.ndarray, length: float, metric: int) -> float:
    """Return the key of a row; `length`: that of the query."""
    if metric == DOT:
        score = np.float32(_product(rows, query))
    elif metric == COSINE:
        both, own = _products(rows, query)
        score = np.float32(both / max(math.sqrt(own) * length, _TINY))
    else:
        score = np.float32(-math.sqrt(_squares(rows, query)))
    return key_of(score)


@apart
def key_of(score: np.float32) -> float:
    """Return the key of a score."""
    if math.isnan(score):
        return NO_NUMBER
    return max(float(score), LOWEST)


@apart
def _is_worse(key: float, slot: int, than_key: float, than_slot: int) -> bool:
    return key < than_key or (key == than_key and slot > than_slot)


@apart
def keep(keys: np.ndarray, slots: np.ndarray, count: int, key: float, slot: int) -> int:
    """Put one into the heap, if it is among the best; return the number of those in it."""
    if count < len(keys):
        at = count
        while at > 0:
            above = (at - 1) // 2
            if not _is_worse(key, slot, keys[above], slots[above]):
                break
            keys[at], slots[at] = keys[above], slots[above]
            at = above
        keys[at], slots[at] = key, slot
        return count + 1
    if not _is_worse(keys[0], slots[0], key, slot):
        return count
    at = 0
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and _is_worse(keys[below + 1], slots[below + 1], keys[below], slots[below]):
            below += 1
        if not _is_worse(keys[below], slots[below], key, slot):
            break
        keys[at], slots[at] = keys[below], slots[below]
        at = below
    keys[at], slots[at] = key, slot
    return count


@kernel
def score_range(
    mem: np.ndarray,
    floats: np.ndarray,
    first: int,
    end: int,
    epoch: int,
    query: np.ndarray,
    length: float,
    metric: int,
    skipped: int,
    row: np.ndarray,
    keys: np.ndarray,
    slots: np.ndarray,
    count: int,
) -> int:
    """Score the slots from `first` to `end` that live at `epoch`, but for `skipped`.

    Return how many are in the heap, or a code. `row` is scratch, (1, width). Zero of `keys`: none are kept.
    """
    for slot in range(first, end):
        found = read_slot(mem, floats, slot, epoch, row, 0)
        if found < ABSENT:
            return found
        if found >= 0 and slot != skipped:
            count = keep(keys, slots, count, _key(row, query, length, metric), slot)
    return count


@kernel
def score_slots(
    mem: np.ndarray,
    floats: np.ndarray,
    these: np.ndarray,
    epoch: int,
    query: np.ndarray,
    length: float,
    metric: int,
    skipped: int,
    row: np.ndarray,
    own: np.ndarray,
    keys: np.ndarray,
    slots: np.ndarray,
    count: int,
) -> int:
    """Like `score_range`, for these slots, negative where there is none; `own` gets the epochs of their rows.

    No slot comes twice.
    """
    for i in range(min(_AHEAD, len(these))):
        if these[i] >= 0:
            ask_for(mem, these[i])
    for i in range(len(these)):
        if i + _AHEAD < len(these) and these[i + _AHEAD] >= 0:
            ask_for(mem, these[i + _AHEAD])
        own[i] = ABSENT if these[i] < 0 else read_slot(mem, floats, these[i], epoch, row, 0)
        if own[i] < ABSENT:
            return own[i]
        if own[i] >= 0 and these[i] != skipped:
            count = keep(keys, slots, count, _key(row, query, length, metric), these[i])
    return count


@kernel
def keep_all(
    scores: np.ndarray, these: np.ndarray, skipped: int, keys: np.ndarray, slots: np.ndarray, count: int
) -> int:
    """Put slots with these scores into the heap; return the number of those in it."""
    for i in range(len(these)):
        if these[i] != skipped:
            count = keep(keys, slots, count, key_of(scores[i]), these[i])
    return count
