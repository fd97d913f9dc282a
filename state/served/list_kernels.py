"""Inverted lists of slots, in blocks: a slot goes into the list of the centroid that its row is nearest to, and out.

Layout:
    pool    BLOCK slots a block; a list's blocks are full but the last one, and the slots of a block lie together
    home    of a slot: its place in the pool, -1 where it is in no list
    owner   of a block: its list
    before  of a block: the one before it in its list, -1 at the first
    last    of a list: its last block, -1 where it is empty
    free    blocks that are in no list, as a stack of `unused[0]`
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import apart, fused, kernel, summed
from freshet.state.served.read_kernels import ABSENT, ask_for, read_slot

BLOCK = 64
_AHEAD = 6
_FOUR = 4


class Blocks(NamedTuple):
    """Arrays of the lists.

    Shapes: pool (blocks, BLOCK) int32; home (slots,) int32; owner, before, free (blocks,) int32; last (lists,) int32;
        size (lists,) int64; reach (lists,) float32, the greatest length of a row that came into the list; unused (1,)
    """

    pool: np.ndarray
    home: np.ndarray
    owner: np.ndarray
    before: np.ndarray
    last: np.ndarray
    free: np.ndarray
    size: np.ndarray
    reach: np.ndarray
    unused: np.ndarray


class Centroids(NamedTuple):
    """Centroids of lists; a row x goes to the one with the greatest x . c + bias.

    Shapes: columns (width, lists) float32; bias (lists,) float32
    """

    columns: np.ndarray
    bias: np.ndarray


@apart
def take_out(blocks: Blocks, slot: int) -> None:
    """Take a slot out of its list; the last one of the list takes its place."""
    place = blocks.home[slot]
    if place < 0:
        return
    found = blocks.owner[place // BLOCK]
    block, end = blocks.last[found], (blocks.size[found] - 1) % BLOCK
    moved = blocks.pool[block, end]
    blocks.pool[place // BLOCK, place % BLOCK] = moved
    blocks.home[moved] = place
    blocks.home[slot] = -1
    blocks.size[found] -= 1
    if end == 0:
        blocks.last[found] = blocks.before[block]
        blocks.free[blocks.unused[0]] = block
        blocks.unused[0] += 1


@apart
def put_in(blocks: Blocks, slot: int, to: int) -> None:
    """Put a slot into a list, and out of the one that has it."""
    place = blocks.home[slot]
    if place >= 0 and blocks.owner[place // BLOCK] == to:
        return
    take_out(blocks, slot)
    end = blocks.size[to] % BLOCK
    if end == 0:
        blocks.unused[0] -= 1
        block = blocks.free[blocks.unused[0]]
        blocks.owner[block], blocks.before[block], blocks.last[to] = to, blocks.last[to], block
    block = blocks.last[to]
    blocks.pool[block, end] = slot
    blocks.home[slot] = block * BLOCK + end
    blocks.size[to] += 1


@summed
def _length(rows: np.ndarray, at: int) -> np.float64:
    found = np.float64(0)
    for k in range(rows.shape[1]):
        found += np.float64(rows[at, k]) * np.float64(rows[at, k])
    return np.sqrt(found)


@fused
def compare_two(rows: np.ndarray, centroids: Centroids, sums: np.ndarray) -> None:
    """Take x . c + bias of two rows and all centroids.

    Two rows and four of their numbers at a time: a centroid is loaded once for both, a sum once for four products. The
    order of the products is fixed, so that a row has the same sums beside whichever other one.

    Shapes: rows (2, width), sums (2, lists) float32
    """
    lists, columns, width = sums.shape[1], centroids.columns, rows.shape[1]
    first, second, bias = sums[0], sums[1], centroids.bias
    for j in range(lists):
        first[j] = bias[j]
        second[j] = bias[j]
    for k in range(0, width - width % _FOUR, _FOUR):
        a, b, c, d = rows[0, k], rows[0, k + 1], rows[0, k + 2], rows[0, k + 3]
        e, f, g, h = rows[1, k], rows[1, k + 1], rows[1, k + 2], rows[1, k + 3]
        one, two, three, four = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
        for j in range(lists):
            here = first[j] + a * one[j]
            here = here + b * two[j]
            here = here + c * three[j]
            first[j] = here + d * four[j]
            here = second[j] + e * one[j]
            here = here + f * two[j]
            here = here + g * three[j]
            second[j] = here + h * four[j]
    for k in range(width - width % _FOUR, width):
        a, e, one = rows[0, k], rows[1, k], columns[k]
        for j in range(lists):
            first[j] = first[j] + a * one[j]
            second[j] = second[j] + e * one[j]


@apart
def greatest(sums: np.ndarray, at: int) -> int:
    """Return the place of the greatest number of a row; 0 where none is greater than another."""
    found, best, row = 0, np.float32(-np.inf), sums[at]
    for j in range(len(row)):
        if row[j] > best:
            found, best = j, row[j]
    return found


@kernel
def assign_slots(
    mem: np.ndarray,
    floats: np.ndarray,
    slots: np.ndarray,
    epoch: int,
    blocks: Blocks,
    centroids: Centroids,
    rows: np.ndarray,
    sums: np.ndarray,
) -> int:
    """Put slots into the lists of their rows as of an epoch, those without a row into none; 0, or a code.

    `rows` and `sums` are scratch, as `compare_two` has them.
    """
    for i in range(min(_AHEAD, len(slots))):
        ask_for(mem, slots[i])
    for begin in range(0, len(slots), 2):
        lives, end = 0, min(begin + 2, len(slots))
        for i in range(begin, end):
            if i + _AHEAD < len(slots):
                ask_for(mem, slots[i + _AHEAD])
            found = read_slot(mem, floats, slots[i], epoch, rows, i - begin)
            if found < ABSENT:
                return found
            if found < 0:
                take_out(blocks, slots[i])
            else:
                lives += 1 + (i - begin)
        if lives == 0:
            continue
        compare_two(rows, centroids, sums)
        for i in range(begin, end):
            if lives & (1 + (i - begin)):
                to = greatest(sums, i - begin)
                put_in(blocks, slots[i], to)
                length = np.float32(_length(rows, i - begin))
                if length > blocks.reach[to]:
                    blocks.reach[to] = length
    return 0


@kernel
def assign_rows(found: np.ndarray, centroids: Centroids, rows: np.ndarray, sums: np.ndarray, lists: np.ndarray) -> None:
    """Take the list of each row that was found; `rows` and `sums` are scratch, as `compare_two` has them."""
    for begin in range(0, len(found), 2):
        end = min(begin + 2, len(found))
        for i in range(begin, end):
            for k in range(found.shape[1]):
                rows[i - begin, k] = found[i, k]
        compare_two(rows, centroids, sums)
        for i in range(begin, end):
            lists[i] = greatest(sums, i - begin)


@kernel
def gather(blocks: Blocks, lists: np.ndarray, slots: np.ndarray) -> int:
    """Take the slots of these lists, as many as they have."""
    count = 0
    for i in range(len(lists)):
        block, left = blocks.last[lists[i]], blocks.size[lists[i]]
        while left > 0:
            end = (left - 1) % BLOCK + 1
            for k in range(end):
                slots[count] = blocks.pool[block, k]
                count += 1
            left -= end
            block = blocks.before[block]
    return count
