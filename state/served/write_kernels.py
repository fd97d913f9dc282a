"""Changing rows of a table as its one writer, safely for concurrent readers and for a successor.

What a row was goes to the ring first; then the row's sequence turns odd, the row changes, and the sequence turns even.
A process that is killed leaves at most one row with an odd sequence, and what that row was is in the ring.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.atomics import fence_release, store_release
from freshet.kernels.kernel import apart, kernel, quick
from freshet.state.served import layout as lay
from freshet.state.served.read_kernels import find_number, find_text, text_hash


@apart
def _row_at(mem: np.ndarray, slot: int) -> np.int64:
    return np.int64(mem[lay.T_ROWS_AT] + slot * mem[lay.T_ROW_WORDS])


@apart
def _keep_undo(mem: np.ndarray, row: int, slot: int) -> np.int64:
    """Copy a row to the ring; the number of the entry."""
    number = np.int64(mem[lay.T_RESERVED])
    entry = mem[lay.T_RING_AT] + (number % mem[lay.T_RING]) * mem[lay.T_ROW_WORDS]
    store_release(mem, np.int64(lay.T_RESERVED), np.int64(number + 1))
    fence_release()  # who reads a part of the new entry knows that the former one is gone
    mem[entry + lay.U_SLOT] = slot
    for k in range(1, mem[lay.T_ROW_WORDS]):
        mem[entry + k] = mem[row + k]
    return number


@apart
def _replace(mem: np.ndarray, floats: np.ndarray, slot: int, epoch: int, lives: int, rows: np.ndarray, i: int) -> None:
    """Give a slot its version of an epoch; an older one than it has is left out."""
    row = _row_at(mem, slot)
    if mem[row + lay.R_EPOCH] > epoch:
        return
    # Of one epoch there is one version: it comes again after a kill, or an id moves between parts.
    before = mem[row + lay.R_BEFORE] if mem[row + lay.R_EPOCH] == epoch else _keep_undo(mem, row, slot)
    seq = mem[row + lay.R_SEQ]
    store_release(mem, np.int64(row + lay.R_SEQ), np.int64(seq + 1))
    fence_release()
    mem[lay.T_LIVE] += lives - mem[row + lay.R_LIVES]
    mem[row + lay.R_EPOCH], mem[row + lay.R_BEFORE], mem[row + lay.R_LIVES] = epoch, before, lives
    _fill(floats, row, lives, rows, i)
    store_release(mem, np.int64(row + lay.R_SEQ), np.int64(seq + 2))


@apart
def _fill(floats: np.ndarray, row: int, lives: int, rows: np.ndarray, i: int) -> None:
    at = 2 * (row + lay.ROW_HEAD)
    for k in range(rows.shape[1]):
        floats[at + k] = rows[i, k] if lives else np.float32(0)


@apart
def _begin(mem: np.ndarray, floats: np.ndarray, epoch: int, rows: np.ndarray, i: int) -> np.int64:
    """Fill the next slot's row; nobody looks at it before the index names it."""
    slot = np.int64(mem[lay.T_USED])
    row = _row_at(mem, slot)
    mem[row + lay.R_SEQ], mem[row + lay.R_EPOCH], mem[row + lay.R_BEFORE], mem[row + lay.R_LIVES] = 0, epoch, -1, 1
    _fill(floats, row, 1, rows, i)
    return slot


@apart
def _name(mem: np.ndarray, place: int, slot: int) -> None:
    """Show a slot that is complete."""
    store_release(mem, np.int64(mem[lay.T_INDEX_AT] + place), np.int64(slot + 1))
    store_release(mem, np.int64(lay.T_USED), np.int64(slot + 1))
    mem[lay.T_LIVE] += 1


@quick
def put_numbers(
    mem: np.ndarray, floats: np.ndarray, epochs: np.ndarray, ids: np.ndarray, rows: np.ndarray, slots: np.ndarray
) -> None:
    """Set the rows of these ids, each of its epoch; there is room. `slots` is scratch, as long as ids."""
    for i in range(len(ids)):  # apart from the rows: the processor waits for many places of memory at once
        slots[i] = find_number(mem, ids[i])
    for i in range(len(ids)):
        slot = slots[i] if slots[i] >= 0 else find_number(mem, ids[i])  # new, or put a moment ago
        if slot >= 0:
            _replace(mem, floats, slot, epochs[i], 1, rows, i)
        else:
            new = _begin(mem, floats, epochs[i], rows, i)
            mem[mem[lay.T_IDS_AT] + new] = ids[i]
            _name(mem, -1 - slot, new)


@quick
def put_texts(
    mem: np.ndarray, floats: np.ndarray, epochs: np.ndarray, offsets: np.ndarray, text: np.ndarray, rows: np.ndarray
) -> None:
    """Like `put_numbers`, for string ids."""
    heap = mem[mem[lay.T_HEAP_AT] :].view(np.uint8)
    for i in range(len(epochs)):
        begin, end = offsets[i], offsets[i + 1]
        hashed = text_hash(mem, text, begin, end)
        slot = find_text(mem, hashed, text, begin, end)
        if slot >= 0:
            _replace(mem, floats, slot, epochs[i], 1, rows, i)
            continue
        new = _begin(mem, floats, epochs[i], rows, i)
        name, first = mem[lay.T_IDS_AT] + new * mem[lay.T_ID_WORDS], mem[lay.T_HEAP_USED]
        for k in range(end - begin):
            heap[first + k] = text[begin + k]
        mem[lay.T_HEAP_USED] = first + end - begin
        mem[name + lay.I_AT], mem[name + lay.I_BYTES], mem[name + lay.I_HASH] = first, end - begin, hashed
        _name(mem, -1 - slot, new)


@quick
def remove_numbers(mem: np.ndarray, floats: np.ndarray, epoch: int, ids: np.ndarray, rows: np.ndarray) -> None:
    """These ids have no row from that epoch on; `rows` is (0, width)."""
    for i in range(len(ids)):
        slot = find_number(mem, ids[i])
        if slot >= 0:
            _replace(mem, floats, slot, epoch, 0, rows, 0)


@quick
def remove_texts(
    mem: np.ndarray, floats: np.ndarray, epoch: int, offsets: np.ndarray, text: np.ndarray, rows: np.ndarray
) -> None:
    """Like `remove_numbers`, for string ids."""
    for i in range(len(offsets) - 1):
        hashed = text_hash(mem, text, offsets[i], offsets[i + 1])
        slot = find_text(mem, hashed, text, offsets[i], offsets[i + 1])
        if slot >= 0:
            _replace(mem, floats, slot, epoch, 0, rows, 0)


@kernel
def put_back(mem: np.ndarray) -> int:
    """After a kill, undo half-written changes, so that every row is complete again; return the number of such rows.

    The epoch under way is applied again after this, which changes nothing that it had changed before.
    """
    used, found = mem[lay.T_USED], 0
    words, ring = mem[lay.T_ROW_WORDS], mem[lay.T_RING]
    for slot in range(used):
        row = _row_at(mem, slot)
        if mem[row + lay.R_SEQ] & 1 == 0:
            continue
        found += 1
        number = mem[lay.T_RESERVED] - 1
        if number < 0 or mem[mem[lay.T_RING_AT] + (number % ring) * words + lay.U_SLOT] != slot:
            number = mem[row + lay.R_BEFORE]  # it was being set again, for the same epoch
        if number >= 0 and mem[lay.T_RESERVED] - number <= ring:
            entry = mem[lay.T_RING_AT] + (number % ring) * words
            for k in range(1, words):
                mem[row + k] = mem[entry + k]
        else:
            mem[row + lay.R_LIVES] = 0
        store_release(mem, np.int64(row + lay.R_SEQ), np.int64(mem[row + lay.R_SEQ] + 1))
    live = np.int64(0)
    for slot in range(used):
        live += mem[_row_at(mem, slot) + lay.R_LIVES]
    mem[lay.T_LIVE] = live
    return found


@kernel
def count_named(mem: np.ndarray, strings: bool) -> None:
    """Count, after a kill, the slot that the index names already, if there is one."""
    slot = np.int64(mem[lay.T_USED])
    if strings:
        name = mem[lay.T_IDS_AT] + slot * mem[lay.T_ID_WORDS]
        heap = mem[mem[lay.T_HEAP_AT] :].view(np.uint8)
        first, size = mem[name + lay.I_AT], mem[name + lay.I_BYTES]
        known = size >= 0 and first >= 0 and first + size <= len(heap)
        known = known and find_text(mem, mem[name + lay.I_HASH], heap, first, first + size) == slot
    else:
        known = find_number(mem, mem[mem[lay.T_IDS_AT] + slot]) == slot
    if known:
        store_release(mem, np.int64(lay.T_USED), np.int64(slot + 1))


@quick
def set_positions(mem: np.ndarray, positions: np.ndarray) -> None:
    """Say what the input is read up to."""
    seq = mem[lay.T_POSITION_SEQ]
    seq += seq & 1
    store_release(mem, np.int64(lay.T_POSITION_SEQ), np.int64(seq + 1))
    fence_release()
    for i in range(len(positions)):
        for k in range(lay.POSITION_WORDS):
            mem[mem[lay.T_POSITIONS_AT] + i * lay.POSITION_WORDS + k] = positions[i, k]
    mem[lay.T_POSITION_COUNT] = len(positions)
    store_release(mem, np.int64(lay.T_POSITION_SEQ), np.int64(seq + 2))
