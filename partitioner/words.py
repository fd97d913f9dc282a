"""Texts in the pool of 8-byte words, each in a chunk of 2**k words: names of vertices and types, keys of edges."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.partitioner.graph_tables import NAME_FREE, NAME_TAIL
from freshet.state.chunks import give_back, hand_out, order_of
from freshet.state.salt import Salt, hash_text
from freshet.state.table import View, touch


@inner
def text_hash(salt: Salt, data: np.ndarray, begin: int, end: int, bits: int) -> np.int64:
    """The lowest `bits` bits of the hash of data[begin:end], as int64."""
    h = hash_text(salt, data, begin, end)
    if bits < 64:
        h &= (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    return np.int64(h)


@inner
def _chunk_of(length: int) -> int:
    """Return the k of the chunk of 2**k words for a text of `length` bytes."""
    return order_of((length + 7) >> 3)


@kernel
def words_for(length: int) -> int:
    """Return the words that a text of `length` bytes takes."""
    return 1 << _chunk_of(length)


@inner
def is_text(words: np.ndarray, first: int, length: int, data: np.ndarray, begin: int, end: int) -> bool:
    """Return whether the text of `length` bytes that begins with word `first` is data[begin:end]."""
    if length != end - begin:
        return False
    pool = words.view(np.uint8)
    at = np.int64(first) * 8
    for i in range(end - begin):
        if pool[at + i] != data[begin + i]:
            return False
    return True


@inner
def put_text(scalars: np.ndarray, words: View, data: np.ndarray, begin: int, end: int) -> np.int64:
    """Keep data[begin:end], and return its first word; the caller has made room."""
    k = _chunk_of(end - begin)
    first = hand_out(scalars[NAME_FREE:], scalars[NAME_TAIL:], words.data, len(words.data), k, 0)
    for word in range(first, first + (1 << k)):
        touch(words, word)
    pool = words.data.view(np.uint8)
    for i in range(end - begin):
        pool[first * 8 + i] = data[begin + i]
    return np.int64(first)


@inner
def drop_text(scalars: np.ndarray, words: View, first: int, length: int) -> None:
    """Give the chunk of a text back."""
    touch(words, first)
    give_back(scalars[NAME_FREE:], words.data, np.int64(first), _chunk_of(length), 0)
