"""Reading rows as of one epoch, beside a writer that never waits for the reader.

A row is read between two looks at its sequence; a ring entry is good if, after it was copied, the writer has not begun
the entry that takes its place. Fences keep the copies between those looks.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.atomics import fence_acquire, load_acquire
from freshet.kernels.kernel import apart, kernel, quick
from freshet.kernels.prefetch import prefetch
from freshet.state.salt import Salt, hash_text, mix
from freshet.state.served import layout as lay

ABSENT = -1  # no such id, or deleted, or added later
MISSED = -2  # the ring has moved on
STUCK = -3  # the writer is in a row for very long, and what that was is not known
LACKING = -4  # an id has no row, or the table is too old, or another one has taken its place
_SPINS = 2_000_000
_AHEAD = 64  # ids whose places in memory are asked for before the first of them is needed
_LINE = 8  # words of a cache line


@apart
def salt_of(mem: np.ndarray) -> Salt:
    """The salt of the table's hashes."""
    return Salt(np.uint64(mem[lay.T_SALT]), np.uint64(mem[lay.T_SALT + 1]), np.uint64(mem[lay.T_SALT + 2]))


@apart
def place_of_number(mem: np.ndarray, key: int) -> np.int64:
    """Return the first index position of an id."""
    return np.int64(mix(salt_of(mem), key)) & (mem[lay.T_INDEX] - 1)


@apart
def find_number(mem: np.ndarray, key: int) -> int:
    """The slot of an id, or -1 - place where it would go in the index."""
    return find_number_from(mem, key, place_of_number(mem, key))


@apart
def find_number_from(mem: np.ndarray, key: int, at: int) -> int:
    """Like `find_number`, from this place on."""
    mask = mem[lay.T_INDEX] - 1
    while True:
        slot = load_acquire(mem, np.int64(mem[lay.T_INDEX_AT] + at)) - 1
        if slot < 0:
            return -1 - at
        if mem[mem[lay.T_IDS_AT] + slot] == key:
            return slot
        at = (at + 1) & mask


@apart
def text_hash(mem: np.ndarray, text: np.ndarray, begin: int, end: int) -> np.int64:
    """The hash of an id as the table keeps it."""
    return np.int64(hash_text(salt_of(mem), text, begin, end))


@apart
def find_text(mem: np.ndarray, hashed: int, text: np.ndarray, begin: int, end: int) -> int:
    """The slot of text[begin:end], or -1 - place where it would go in the index."""
    mask = mem[lay.T_INDEX] - 1
    at = hashed & mask
    heap = mem[mem[lay.T_HEAP_AT] :].view(np.uint8)
    while True:
        slot = load_acquire(mem, np.int64(mem[lay.T_INDEX_AT] + at)) - 1
        if slot < 0:
            return -1 - at
        name = mem[lay.T_IDS_AT] + slot * mem[lay.T_ID_WORDS]
        if mem[name + lay.I_HASH] == hashed and mem[name + lay.I_BYTES] == end - begin:
            first = mem[name + lay.I_AT]
            same = True
            for k in range(end - begin):
                if heap[first + k] != text[begin + k]:
                    same = False
                    break
            if same:
                return slot
        at = (at + 1) & mask


@apart
def _copy(floats: np.ndarray, word: int, rows: np.ndarray, to: int) -> None:
    at, row = 2 * (word + lay.ROW_HEAD), rows[to]
    vector = floats[at : at + len(row)]  # whose places are not negative, for all that the compiler knows of them
    for k in range(len(row)):
        row[k] = vector[k]


@apart
def _read_ring(mem: np.ndarray, floats: np.ndarray, before: int, epoch: int, rows: np.ndarray, to: int) -> int:
    """Like `read_slot`, for the version in the ring from the entry `before` on."""
    ring = mem[lay.T_RING]
    while before >= 0:
        entry = mem[lay.T_RING_AT] + (before % ring) * mem[lay.T_ROW_WORDS]
        own, earlier, lives = mem[entry + lay.R_EPOCH], mem[entry + lay.R_BEFORE], mem[entry + lay.R_LIVES]
        if own <= epoch and lives:
            _copy(floats, entry, rows, to)
        fence_acquire()
        if load_acquire(mem, np.int64(lay.T_RESERVED)) - before > ring:
            return MISSED
        if own <= epoch:
            return own if lives else ABSENT
        before = earlier
    return ABSENT


@apart
def _read_former(mem: np.ndarray, floats: np.ndarray, slot: int, epoch: int, rows: np.ndarray, to: int) -> int:
    """Like `read_slot`, for a row in which the writer was killed; its previous version is in the ring.

    That is in the last entry, or in the one before the row where it was being set again, for an epoch that is not
    complete. STUCK where a complete epoch was being set again.
    """
    row = mem[lay.T_ROWS_AT] + slot * mem[lay.T_ROW_WORDS]
    seq = load_acquire(mem, np.int64(row + lay.R_SEQ))
    number = load_acquire(mem, np.int64(lay.T_RESERVED)) - 1
    entry = mem[lay.T_RING_AT] + (number % mem[lay.T_RING]) * mem[lay.T_ROW_WORDS]
    is_last = number >= 0 and mem[entry + lay.U_SLOT] == slot
    own, kept, before = mem[row + lay.R_EPOCH], mem[entry + lay.R_EPOCH], mem[row + lay.R_BEFORE]
    fence_acquire()
    if seq & 1 == 0 or load_acquire(mem, np.int64(row + lay.R_SEQ)) != seq:
        return MISSED  # it goes on: look again
    if own <= epoch and not (is_last and kept == own):
        return STUCK
    return _read_ring(mem, floats, number if is_last else before, epoch, rows, to)


@apart
def read_slot(mem: np.ndarray, floats: np.ndarray, slot: int, epoch: int, rows: np.ndarray, to: int) -> int:
    """The epoch of the slot's version as of `epoch`, whose vector goes to rows[to]; ABSENT, MISSED or STUCK."""
    row = mem[lay.T_ROWS_AT] + slot * mem[lay.T_ROW_WORDS]
    own, before, lives = np.int64(0), np.int64(0), np.int64(0)
    spins = 0
    while True:
        seq = load_acquire(mem, np.int64(row + lay.R_SEQ))
        if seq & 1 == 0:
            own, before, lives = mem[row + lay.R_EPOCH], mem[row + lay.R_BEFORE], mem[row + lay.R_LIVES]
            if own <= epoch and lives:
                _copy(floats, row, rows, to)
            fence_acquire()
            if load_acquire(mem, np.int64(row + lay.R_SEQ)) == seq:
                break
        spins += 1
        if spins > _SPINS:
            return _read_former(mem, floats, slot, epoch, rows, to)
    if own <= epoch:
        return own if lives else ABSENT
    return _read_ring(mem, floats, before, epoch, rows, to)


@apart
def ask_for(mem: np.ndarray, slot: int) -> None:
    """Have the row of a slot on its way."""
    row = mem[lay.T_ROWS_AT] + slot * mem[lay.T_ROW_WORDS]
    for word in range(row, row + mem[lay.T_ROW_WORDS], _LINE):
        prefetch(mem, np.int64(word))


@apart
def _find_numbers(mem: np.ndarray, ids: np.ndarray, slots: np.ndarray, begin: int, end: int) -> None:
    """The slots of ids[begin:end]; the processor waits for many places of memory at once."""
    for i in range(begin, end):
        slots[i] = place_of_number(mem, ids[i])
        prefetch(mem, np.int64(mem[lay.T_INDEX_AT] + slots[i]))
    for i in range(begin, end):
        slots[i] = find_number_from(mem, ids[i], slots[i])
        if slots[i] >= 0:
            ask_for(mem, slots[i])


@apart
def _find_texts(
    mem: np.ndarray, offsets: np.ndarray, text: np.ndarray, slots: np.ndarray, begin: int, end: int
) -> None:
    """Like `_find_numbers`, for string ids."""
    for i in range(begin, end):
        hashed = text_hash(mem, text, offsets[i], offsets[i + 1])
        slots[i] = find_text(mem, hashed, text, offsets[i], offsets[i + 1])
        if slots[i] >= 0:
            ask_for(mem, slots[i])


@apart
def _read_found(
    mem: np.ndarray, floats: np.ndarray, epoch: int, own: np.ndarray, rows: np.ndarray, begin: int, end: int
) -> int:
    """Take the rows of slots own[begin:end], which become their epochs; the least of those, or MISSED or STUCK."""
    least = 0
    for i in range(begin, end):
        own[i] = ABSENT if own[i] < 0 else read_slot(mem, floats, own[i], epoch, rows, i)
        least = min(least, own[i])
        if least < ABSENT:
            break
    return least


@apart
def _numbers_at(
    mem: np.ndarray, floats: np.ndarray, epoch: int, ids: np.ndarray, own: np.ndarray, rows: np.ndarray
) -> int:
    """Take the rows of these ids as of `epoch`: 0, ABSENT if some have none, MISSED, or STUCK."""
    least = 0
    for begin in range(0, len(ids), _AHEAD):
        end = min(begin + _AHEAD, len(ids))
        _find_numbers(mem, ids, own, begin, end)
        least = min(least, _read_found(mem, floats, epoch, own, rows, begin, end))
        if least < ABSENT:
            break
    return least


@apart
def _texts_at(
    mem: np.ndarray,
    floats: np.ndarray,
    epoch: int,
    offsets: np.ndarray,
    text: np.ndarray,
    own: np.ndarray,
    rows: np.ndarray,
) -> int:
    """Like `_numbers_at`, for string ids."""
    least = 0
    for begin in range(0, len(own), _AHEAD):
        end = min(begin + _AHEAD, len(own))
        _find_texts(mem, offsets, text, own, begin, end)
        least = min(least, _read_found(mem, floats, epoch, own, rows, begin, end))
        if least < ABSENT:
            break
    return least


@kernel
def read_numbers(
    mem: np.ndarray, floats: np.ndarray, upto: int, ids: np.ndarray, own: np.ndarray, rows: np.ndarray
) -> int:
    """Take the rows of these ids, and their epochs (ABSENT: none); the epoch of it all, or MISSED or STUCK.

    It is the newest one, or `upto` where that is earlier.
    """
    epoch = min(load_acquire(mem, np.int64(lay.T_EPOCH)), upto)
    least = _numbers_at(mem, floats, epoch, ids, own, rows)
    return least if least < ABSENT else epoch


@kernel
def read_texts(
    mem: np.ndarray,
    floats: np.ndarray,
    upto: int,
    offsets: np.ndarray,
    text: np.ndarray,
    own: np.ndarray,
    rows: np.ndarray,
) -> int:
    """Like `read_numbers`, for string ids."""
    epoch = min(load_acquire(mem, np.int64(lay.T_EPOCH)), upto)
    least = _texts_at(mem, floats, epoch, offsets, text, own, rows)
    return least if least < ABSENT else epoch


@quick
def read_few(
    mem: np.ndarray, floats: np.ndarray, wanted: int, ids: np.ndarray, own: np.ndarray, rows: np.ndarray
) -> int:
    """Like `read_numbers`, if the table has reached `wanted` and has all the ids; else LACKING, MISSED or STUCK."""
    epoch = load_acquire(mem, np.int64(lay.T_EPOCH))
    if epoch < wanted or load_acquire(mem, np.int64(lay.T_SUPERSEDED)) != 0:
        return LACKING
    least = _numbers_at(mem, floats, epoch, ids, own, rows)
    return epoch if least == 0 else LACKING if least == ABSENT else least


@quick
def read_few_texts(
    mem: np.ndarray,
    floats: np.ndarray,
    wanted: int,
    offsets: np.ndarray,
    text: np.ndarray,
    own: np.ndarray,
    rows: np.ndarray,
) -> int:
    """Like `read_few`, for string ids."""
    epoch = load_acquire(mem, np.int64(lay.T_EPOCH))
    if epoch < wanted or load_acquire(mem, np.int64(lay.T_SUPERSEDED)) != 0:
        return LACKING
    least = _texts_at(mem, floats, epoch, offsets, text, own, rows)
    return epoch if least == 0 else LACKING if least == ABSENT else least


@kernel
def read_slots(
    mem: np.ndarray, floats: np.ndarray, first: int, epoch: int, slots: np.ndarray, own: np.ndarray, rows: np.ndarray
) -> int:
    """Take the rows of the slots from `first` on that live at `epoch`, one after the other; how many, or a code.

    `slots` and `own` get their slots and epochs. As many slots are looked at as `own` has places.
    """
    count = 0
    for slot in range(first, first + len(own)):
        found = read_slot(mem, floats, slot, epoch, rows, count)
        if found < ABSENT:
            return found
        if found >= 0:
            slots[count], own[count] = slot, found
            count += 1
    return count


@kernel
def read_these(
    mem: np.ndarray, floats: np.ndarray, slots: np.ndarray, epoch: int, own: np.ndarray, rows: np.ndarray
) -> int:
    """Take the rows of these slots as of `epoch`, and their epochs (ABSENT: none); 0, or a code."""
    for i in range(len(slots)):
        own[i] = read_slot(mem, floats, slots[i], epoch, rows, i)
        if own[i] < ABSENT:
            return own[i]
    return 0


@kernel
def slots_of_numbers(mem: np.ndarray, ids: np.ndarray, slots: np.ndarray) -> None:
    """Take the slots of these ids, negative where the table has none."""
    for begin in range(0, len(ids), _AHEAD):
        _find_numbers(mem, ids, slots, begin, min(begin + _AHEAD, len(ids)))


@kernel
def slots_of_texts(mem: np.ndarray, offsets: np.ndarray, text: np.ndarray, slots: np.ndarray) -> None:
    """Like `slots_of_numbers`, for string ids."""
    for begin in range(0, len(slots), _AHEAD):
        _find_texts(mem, offsets, text, slots, begin, min(begin + _AHEAD, len(slots)))


@kernel
def slots_in_ring(mem: np.ndarray, first: int, slots: np.ndarray) -> int:
    """Take the slots of the ring's entries from `first` on; 0, or MISSED where it has moved on."""
    for k in range(len(slots)):
        slots[k] = mem[mem[lay.T_RING_AT] + ((first + k) % mem[lay.T_RING]) * mem[lay.T_ROW_WORDS] + lay.U_SLOT]
    fence_acquire()
    return MISSED if load_acquire(mem, np.int64(lay.T_RESERVED)) - first > mem[lay.T_RING] else 0


@kernel
def names_of(mem: np.ndarray, slots: np.ndarray, offsets: np.ndarray, text: np.ndarray) -> None:
    """Copy the string ids of these slots; `offsets` are known already."""
    heap = mem[mem[lay.T_HEAP_AT] :].view(np.uint8)
    for i in range(len(slots)):
        first = mem[mem[lay.T_IDS_AT] + slots[i] * mem[lay.T_ID_WORDS] + lay.I_AT]
        for k in range(offsets[i + 1] - offsets[i]):
            text[offsets[i] + k] = heap[first + k]


@kernel
def read_positions(mem: np.ndarray, out: np.ndarray) -> int:
    """Take what the input was read up to; how many rows, or STUCK."""
    for _ in range(_SPINS):
        seq = load_acquire(mem, np.int64(lay.T_POSITION_SEQ))
        if seq & 1:
            continue
        count = mem[lay.T_POSITION_COUNT]
        for i in range(min(count, out.shape[0])):
            for k in range(lay.POSITION_WORDS):
                out[i, k] = mem[mem[lay.T_POSITIONS_AT] + i * lay.POSITION_WORDS + k]
        fence_acquire()
        if load_acquire(mem, np.int64(lay.T_POSITION_SEQ)) == seq:
            return count
    return STUCK
