"""Salted hashes: as their reference says, and another function for every seed."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.state.salt import Salt, hash_text, make_salt, mix
from freshet.state.seed import SEED_BITS, new_seed


def siphash(k0: int, k1: int, text: bytes, compressing: int = 1, finishing: int = 3) -> int:
    """The reference, in plain integers."""
    word = 2**64 - 1

    def rotated(x: int, bits: int) -> int:
        return (x << bits | x >> (64 - bits)) & word

    a, b, c, d = (
        k ^ constant
        for k, constant in zip(
            (k0, k1, k0, k1),
            (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573),
            strict=True,
        )
    )

    def rounds(times: int) -> None:
        nonlocal a, b, c, d
        for _ in range(times):
            a, c = (a + b) & word, (c + d) & word
            b, d = rotated(b, 13) ^ a, rotated(d, 16) ^ c
            a = rotated(a, 32)
            c, a = (c + b) & word, (a + d) & word
            b, d = rotated(b, 17) ^ c, rotated(d, 21) ^ a
            c = rotated(c, 32)

    padded = text + bytes(-(len(text) + 1) % 8) + bytes([len(text) & 255])
    for at in range(0, len(padded), 8):
        block = int.from_bytes(padded[at : at + 8], "little")
        d ^= block
        rounds(compressing)
        a ^= block
    c ^= 0xFF
    rounds(finishing)
    return a ^ b ^ c ^ d


def test_the_reference_is_siphash() -> None:
    # appendix A of the paper: SipHash-2-4 of the bytes 0 to 14 under the key 00 01 ... 0f
    key = bytes(range(16))
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    assert siphash(k0, k1, bytes(range(15)), 2, 4) == 0xA129CA6149BE45E5


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 40, 300])
def test_text_is_hashed_as_the_reference_does(length: int) -> None:
    salt = make_salt(5)
    text = np.random.default_rng(length).integers(0, 256, length, np.uint8)
    data = np.concatenate([np.full(3, 9, np.uint8), text, np.full(3, 9, np.uint8)])
    expected = siphash(int(salt.start), int(salt.second), text.tobytes())
    assert int(hash_text(salt, data, 3, 3 + length)) == expected


def test_a_number_hashes_to_32_bits_that_change_with_every_bit_of_it() -> None:
    salt = make_salt(9)
    rng = np.random.default_rng(1)
    flips = np.zeros((64, 32))
    for value in rng.integers(-(2**63), 2**63 - 1, 200):
        before = int(mix(salt, value))
        assert 0 <= before < 2**32
        for bit in range(64):
            after = int(mix(salt, np.int64(np.uint64(value) ^ np.uint64(1 << bit))))
            flips[bit] += [(before ^ after) >> k & 1 for k in range(32)]
    shares = flips.mean(axis=1) / 200
    assert shares.min() > 0.2, f"bit {shares.argmin()} of the input changes {shares.min():.0%} of the output"


def test_every_seed_is_another_function() -> None:
    assert make_salt(1) != make_salt(2)
    assert make_salt(1) == make_salt(1)
    salts = [make_salt(seed) for seed in range(100)]
    assert len({int(mix(salt, 7)) for salt in salts}) > 95
    assert all(int(salt.first) & 1 and int(salt.second) & 1 for salt in salts), "an even factor would lose bits"
    assert isinstance(salts[0], Salt)


def test_new_seeds_differ() -> None:
    seeds = {new_seed() for _ in range(10)}
    assert len(seeds) == 10 and all(0 <= seed < 2**SEED_BITS for seed in seeds)
