"""Hashes that nobody can predict without the seed, so that nobody can make up ids that all fall on one place.

Numbers: two multiplications by secret odd factors; what a difference in the input becomes depends on both. Strings:
SipHash-1-3, made for this purpose. A seed belongs to a job for its life: keys of string ids and places of the strategy
`hash` come from it.

Source: Aumasson and Bernstein, SipHash: a fast short-input PRF (2012).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.state.seed import new_seed

_WORD = 2**64 - 1


class Salt(NamedTuple):
    """A seed as kernels use it."""

    start: np.uint64
    first: np.uint64  # odd
    second: np.uint64  # odd


def draw_words(seed: int, many: int) -> list[int]:
    """Return the first numbers of 64 bits that a seed gives, by SplitMix64."""
    words = []
    for k in range(1, many + 1):
        z = (seed + k * 0x9E3779B97F4A7C15) & _WORD
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _WORD
        words.append(z ^ (z >> 31))
    return words


def make_salt(seed: int) -> Salt:
    """The salt of a seed."""
    words = draw_words(seed, 3)
    return Salt(np.uint64(words[0]), np.uint64(words[1] | 1), np.uint64(words[2] | 1))


@lru_cache(maxsize=1)
def scratch_salt() -> Salt:
    """The salt of this process, for tables that are dropped before anything can depend on their order."""
    return make_salt(new_seed())


@kernel
def mix(salt: Salt, value: int) -> np.uint64:
    """32 bits of hash of a number."""
    z = np.uint64(value) ^ salt.start
    z = (z ^ (z >> np.uint64(32))) * salt.first
    z = (z ^ (z >> np.uint64(29))) * salt.second
    return z >> np.uint64(32)


@inner
def _rotated(x: np.uint64, bits: np.uint64) -> np.uint64:
    return (x << bits) | (x >> (np.uint64(64) - bits))


@inner
def _round(a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    a += b
    c += d
    b = _rotated(b, np.uint64(13)) ^ a
    d = _rotated(d, np.uint64(16)) ^ c
    a = _rotated(a, np.uint64(32))
    c += b
    a += d
    b = _rotated(b, np.uint64(17)) ^ c
    d = _rotated(d, np.uint64(21)) ^ a
    return a, b, _rotated(c, np.uint64(32)), d


@kernel
def hash_text(salt: Salt, data: np.ndarray, begin: int, end: int) -> np.uint64:
    """SipHash-1-3 of data[begin:end]."""
    a = salt.start ^ np.uint64(0x736F6D6570736575)
    b = salt.second ^ np.uint64(0x646F72616E646F6D)
    c = salt.start ^ np.uint64(0x6C7967656E657261)
    d = salt.second ^ np.uint64(0x7465646279746573)
    whole = begin + ((end - begin) & ~7)
    for at in range(begin, whole, 8):
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(data[at + k]) << np.uint64(8 * k)
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a ^= word
    word = np.uint64(end - begin) << np.uint64(56)
    for k in range(end - whole):
        word |= np.uint64(data[whole + k]) << np.uint64(8 * k)
    d ^= word
    a, b, c, d = _round(a, b, c, d)
    a ^= word
    c ^= np.uint64(0xFF)
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b ^ c ^ d
