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

from freshet.kernels.kernel import apart, kernel, summed
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
def _length(row: np.ndarray) -> np.float64:
    found = np.float64(0)
    for k in range(row.shape[1]):
        found += np.float64(row[0, k]) * np.float64(row[0, k])
    return np.sqrt(found)


@apart
def nearest_list(row: np.ndarray, centroids: Centroids, sums: np.ndarray) -> int:
    """Return the list of a row; the first where none is best. `sums` is scratch, as long as there are lists.

    Four numbers of the row at a time: each sum is loaded and stored once for four products.
    """
    lists, columns, width = len(sums), centroids.columns, row.shape[1]
    for j in range(lists):
        sums[j] = centroids.bias[j]
    for k in range(0, width - width % _FOUR, _FOUR):
        a, b, c, d = row[0, k], row[0, k + 1], row[0, k + 2], row[0, k + 3]
        one, two, three, four = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
        for j in range(lists):
            sums[j] += a * one[j] + b * two[j] + c * three[j] + d * four[j]
    for k in range(width - width % _FOUR, width):
        a, one = row[0, k], columns[k]
        for j in range(lists):
            sums[j] += a * one[j]
    found, best = 0, np.float32(-np.inf)
    for j in range(lists):
        if sums[j] > best:
            found, best = j, sums[j]
    return found


@kernel
def assign_slots(
    mem: np.ndarray,
    floats: np.ndarray,
    slots: np.ndarray,
    epoch: int,
    blocks: Blocks,
    centroids: Centroids,
    row: np.ndarray,
    sums: np.ndarray,
) -> int:
    """Put slots into the lists of their rows as of an epoch, those without a row into none; 0, or a code.

    `row`: scratch, (1, width).
    """
    for i in range(min(_AHEAD, len(slots))):
        ask_for(mem, slots[i])
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            ask_for(mem, slots[i + _AHEAD])
        found = read_slot(mem, floats, slots[i], epoch, row, 0)
        if found < ABSENT:
            return found
        if found < 0:
            take_out(blocks, slots[i])
            continue
        to = nearest_list(row, centroids, sums)
        put_in(blocks, slots[i], to)
        length = np.float32(_length(row))
        if length > blocks.reach[to]:
            blocks.reach[to] = length
    return 0


@kernel
def assign_rows(rows: np.ndarray, centroids: Centroids, row: np.ndarray, sums: np.ndarray, lists: np.ndarray) -> None:
    """Take the list of each row."""
    for i in range(len(rows)):
        for k in range(rows.shape[1]):
            row[0, k] = rows[i, k]
        lists[i] = nearest_list(row, centroids, sums)


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
