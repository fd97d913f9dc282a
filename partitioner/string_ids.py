"""String ids: their bytes in a pool of 8-byte words, and their keys.

A key is a 64-bit hash of the UTF-8 bytes, salted by the job, moved up by one while another live id of the kind has it.
The index holds each id under its hash, and once more under its key where the two differ.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import allocating, inner, kernel
from freshet.partitioner.graph_tables import KEY, KIND, LIVE, NAME_AT, NAME_BYTES, NAME_FREE, NAME_TAIL
from freshet.partitioner.hash_index import HashIndex, hash_vertex, home_of, matches, put, row_at
from freshet.state.chunks import give_back, hand_out, order_of
from freshet.state.salt import Salt, hash_text
from freshet.state.table import View, touch


@inner
def name_hash(salt: Salt, data: np.ndarray, begin: int, end: int, bits: int) -> np.int64:
    """The lowest `bits` bits of the hash of data[begin:end], as int64."""
    h = hash_text(salt, data, begin, end)
    if bits < 64:
        h &= (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    return np.int64(h)


@inner
def _chunk_of(length: int) -> int:
    """Return the k of the chunk of 2**k words for a name of `length` bytes."""
    return order_of((length + 7) >> 3)


@kernel
def words_for(length: int) -> int:
    """Return the words that a name of `length` bytes takes."""
    return 1 << _chunk_of(length)


@inner
def same_name(vertex: np.ndarray, words: np.ndarray, row: int, data: np.ndarray, begin: int, end: int) -> bool:
    """Return whether the name of the vertex in `row` is data[begin:end]."""
    length = end - begin
    if vertex[row, NAME_BYTES] != length:
        return False
    pool = words.view(np.uint8)
    at = np.int64(vertex[row, NAME_AT]) * 8
    for i in range(length):
        if pool[at + i] != data[begin + i]:
            return False
    return True


@kernel
def store_name(
    scalars: np.ndarray, vertex: np.ndarray, words: View, row: int, data: np.ndarray, begin: int, end: int
) -> None:
    """Keep data[begin:end] as the name of `row`; the caller has made room."""
    k = _chunk_of(end - begin)
    first = hand_out(scalars[NAME_FREE:], scalars[NAME_TAIL:], words.data, len(words.data), k, 0)
    for word in range(first, first + (1 << k)):
        touch(words, word)
    pool = words.data.view(np.uint8)
    for i in range(end - begin):
        pool[first * 8 + i] = data[begin + i]
    vertex[row, NAME_AT] = first
    vertex[row, NAME_BYTES] = end - begin


@kernel
def free_name(scalars: np.ndarray, vertex: np.ndarray, words: View, row: int) -> None:
    """Give the chunk of a name back."""
    touch(words, vertex[row, NAME_AT])
    give_back(scalars[NAME_FREE:], words.data, np.int64(vertex[row, NAME_AT]), _chunk_of(vertex[row, NAME_BYTES]), 0)


@inner
def stored_hash(salt: Salt, vertex: np.ndarray, words: np.ndarray, row: int, bits: int) -> np.int64:
    """The hash of a kept name."""
    begin = np.int64(vertex[row, NAME_AT]) * 8
    return name_hash(salt, words.view(np.uint8), begin, begin + vertex[row, NAME_BYTES], bits)


@inner
def find_name(
    index: HashIndex,
    vertex: np.ndarray,
    words: np.ndarray,
    hashed: int,
    kind: int,
    data: np.ndarray,
    begin: int,
    end: int,
) -> np.int64:
    """The row of the vertex of the kind that is called data[begin:end], which has this hash, or -1."""
    half = hash_vertex(index.salt, hashed, kind)
    mask = len(index.entries) - 1
    at = home_of(index, half)
    while index.entries[at]:
        row = row_at(index, at)
        if matches(index, at, half) and vertex[row, KIND] == kind:
            if same_name(vertex, words, row, data, begin, end):
                return row
        at = (at + 1) & mask
    return np.int64(-1)


@inner
def free_key(index: HashIndex, vertex: np.ndarray, wide: np.ndarray, wanted: int, kind: int) -> int:
    """The first key from `wanted` on that no vertex of the kind has."""
    mask = len(index.entries) - 1
    while True:
        at = home_of(index, hash_vertex(index.salt, wanted, kind))
        taken = False
        while index.entries[at]:
            row = row_at(index, at)
            taken |= wide[row, KEY] == wanted and vertex[row, KIND] == kind
            at = (at + 1) & mask
        if not taken:
            return wanted
        wanted += 1


@inner
def index_name(index: HashIndex, row: int, hashed: int, key: int, kind: int) -> None:
    """Put a vertex in under its name's hash, and under its key where that is another."""
    put(index, hash_vertex(index.salt, hashed, kind), row)
    if key != hashed:
        put(index, hash_vertex(index.salt, key, kind), row)


@kernel
def index_names(
    index: HashIndex, vertex: np.ndarray, wide: np.ndarray, words: np.ndarray, rows: int, bits: int
) -> None:
    """Put all live vertices into an index that is large enough."""
    for row in range(rows):
        if vertex[row, LIVE]:
            hashed = stored_hash(index.salt, vertex, words, row, bits)
            index_name(index, row, hashed, wide[row, KEY], vertex[row, KIND])


@allocating
def gather_names(vertex: np.ndarray, words: np.ndarray, rows: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The bytes of the names of these rows, one after the other; `offsets` (n + 1) int64 is filled in."""
    offsets[0] = 0
    for k in range(len(rows)):
        offsets[k + 1] = offsets[k] + vertex[rows[k], NAME_BYTES]
    out = np.empty(offsets[len(rows)], np.uint8)
    pool = words.view(np.uint8)
    for k in range(len(rows)):
        begin = np.int64(vertex[rows[k], NAME_AT]) * 8
        for i in range(vertex[rows[k], NAME_BYTES]):
            out[offsets[k] + i] = pool[begin + i]
    return out
