"""Key to id for string ids: a hash map and a heap of bytes, in tables.

Open addressing with linear probing; a removal shifts the cluster back, so there are no tombstones. The bytes of an id
lie in a chunk of the heap (state/chunks.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import allocating
from freshet.state.chunks import give_back, hand_out, order_of
from freshet.state.table import TableSet, View, touch

_KEY, _PLACE, _LENGTH = 0, 1, 2  # columns of the map; the place is counted from 1, 0 marks an empty row
_END, _LIVE = 31, 32  # rows of `free` beside the heads of the 31 chains: the end of the heap, and how many ids live
FIRST_ROWS = 1024
_WORD = 3  # a word of the heap has 2**3 bytes
_CHUNK = 1_000_000  # ids of one array: their offsets fit into 32 bits


class _NamesView(NamedTuple):
    map: View  # (rows, 3) int64, rows a power of two
    heap: View  # (bytes,) uint8
    free: View  # (33,) int64
    mask: int


@allocating
def _home(key: int, mask: int) -> np.int64:
    """Return the place of a key; a key is a hash salted by the job, so no one can choose ids that share one place."""
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(mask))


@allocating
def _find(names: _NamesView, key: int) -> int:
    """Row of the key, or where it would go: -1 - row."""
    row = _home(key, names.mask)
    while names.map.data[row, _PLACE] != 0:
        if names.map.data[row, _KEY] == key:
            return row
        row = (row + 1) & names.mask
    return -1 - row


@allocating
def _order(length: int) -> int:
    """Return the k of the chunk of 2**k bytes for this length: at least eight, for the chain of free ones."""
    return order_of(max(length, 8))


@allocating
def _allocate(names: _NamesView, order: int) -> np.int64:
    """The place of a chunk; `Names.put` has made room for it."""
    free, heap = names.free.data, names.heap.data
    touch(names.free, order)
    touch(names.free, _END)
    return hand_out(free, free[_END:], heap.view(np.int64), len(heap), order, _WORD)


@allocating
def _release(names: _NamesView, at: int, order: int) -> None:
    touch(names.free, order)
    touch(names.heap, at)
    give_back(names.free.data, names.heap.data.view(np.int64), at, order, _WORD)


@allocating
def _put(names: _NamesView, keys: np.ndarray, offsets: np.ndarray, data: np.ndarray) -> None:
    for i in range(len(keys)):
        length = offsets[i + 1] - offsets[i]
        row = _find(names, keys[i])
        touch(names.map, row if row >= 0 else -1 - row)
        if row >= 0:
            _release(names, names.map.data[row, _PLACE] - 1, _order(names.map.data[row, _LENGTH]))
        else:
            row = -1 - row
            touch(names.free, _LIVE)
            names.free.data[_LIVE] += 1
        at = _allocate(names, _order(length))
        names.map.data[row, _KEY] = keys[i]
        names.map.data[row, _PLACE] = at + 1
        names.map.data[row, _LENGTH] = length
        for j in range(length):
            touch(names.heap, at + j)
            names.heap.data[at + j] = data[offsets[i] + j]


@allocating
def _remove(names: _NamesView, keys: np.ndarray) -> int:
    """Take out the keys; the index of the first unknown one, or -1."""
    entries = names.map.data
    unknown = -1
    for i in range(len(keys)):
        row = _find(names, keys[i])
        if row < 0:
            if unknown < 0:
                unknown = i
            continue
        _release(names, entries[row, _PLACE] - 1, _order(entries[row, _LENGTH]))
        touch(names.free, _LIVE)
        names.free.data[_LIVE] -= 1
        gap = row
        while True:
            row = (row + 1) & names.mask
            if entries[row, _PLACE] == 0:
                break
            # An entry may fill the gap when its home does not lie behind the gap, going round.
            if ((row - _home(entries[row, _KEY], names.mask)) & names.mask) >= ((row - gap) & names.mask):
                touch(names.map, gap)
                entries[gap] = entries[row]
                gap = row
        touch(names.map, gap)
        entries[gap] = 0
    return unknown


@allocating
def _lengths(names: _NamesView, keys: np.ndarray, offsets: np.ndarray) -> int:
    """Fill `offsets` of the ids of these keys, laid end to end; return the index of the first unknown key, or -1."""
    offsets[0] = 0
    for i in range(len(keys)):
        row = _find(names, keys[i])
        if row < 0:
            return i
        offsets[i + 1] = offsets[i] + names.map.data[row, _LENGTH]
    return -1


@allocating
def _gather(names: _NamesView, keys: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(keys)):
        at = names.map.data[_find(names, keys[i]), _PLACE] - 1
        for j in range(offsets[i + 1] - offsets[i]):
            out[offsets[i] + j] = names.heap.data[at + j]


@allocating
def _reinsert(names: _NamesView, entries: np.ndarray) -> None:
    for i in range(len(entries)):
        if entries[i, _PLACE] != 0:
            names.map.data[-1 - _find(names, entries[i, _KEY])] = entries[i]


class UnknownKeyError(RuntimeError):
    """A row has a key whose id was never sent: an operator before the sink lost it."""


class Names:
    """The string ids of live keys, in the tables `names.map`, `names.heap`, `names.free`."""

    def __init__(self, tables: TableSet) -> None:
        self._map = tables.add("names.map", "i8", 3)
        self._heap = tables.add("names.heap", "u1")
        self._free = tables.add("names.free", "i8")
        self._free.reserve(_LIVE + 1)
        self._map.reserve(FIRST_ROWS)

    def __len__(self) -> int:
        return int(self._free.data[_LIVE])

    @property
    def _view(self) -> _NamesView:
        return _NamesView(self._map.view, self._heap.view, self._free.view, self._map.rows - 1)

    def put(self, keys: np.ndarray, offsets: np.ndarray, data: np.ndarray) -> None:
        """Set the ids of these keys; a known key gets the new one."""
        if not keys.size:
            return
        rows = self._map.rows
        while (len(self) + keys.size) * 2 > rows:
            rows *= 2
        if rows > self._map.rows:
            self._rehash(rows)
        lengths = np.diff(offsets)
        most = int(np.maximum(2 * lengths, 8).sum())
        self._heap.reserve(int(self._free.data[_END]) + most)
        _put(self._view, keys, offsets, data)

    def _rehash(self, rows: int) -> None:
        entries = self._map.data[: self._map.rows].copy()
        self._map.reserve(rows)
        self._map.touch_all()
        self._map.data[:rows] = 0
        _reinsert(self._view, entries)

    def remove(self, keys: np.ndarray) -> None:
        """Forget these keys.

        Raises:
            UnknownKeyError: one of them is not there.
        """
        unknown = _remove(self._view, keys)
        if unknown >= 0:
            msg = f"key {keys[unknown]} is deleted, but no id was sent for it"
            raise UnknownKeyError(msg)

    def of(self, keys: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """The ids of these keys, as (k + 1,) int32 offsets and (bytes,) uint8, a million at a time.

        Raises:
            UnknownKeyError: one of them is not there.
        """
        chunks = []
        for start in range(0, keys.size, _CHUNK):
            chunk = keys[start : start + _CHUNK]
            offsets = np.empty(chunk.size + 1, np.int32)
            unknown = _lengths(self._view, chunk, offsets)
            if unknown >= 0:
                msg = f"a row came for key {chunk[unknown]}, but no id was sent for it"
                raise UnknownKeyError(msg)
            data = np.empty(int(offsets[-1]), np.uint8)
            _gather(self._view, chunk, offsets, data)
            chunks.append((offsets, data))
        return chunks
