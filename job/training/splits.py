"""The choice of labelled vertices for validation: by a hash of the id, or by time."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa

_DIGEST_BYTES = 8


def by_hash(kind: str, ids: pa.Array, share: float) -> np.ndarray:
    """Return which vertices are for validation, by their ids alone.

    A vertex is for validation if its hash, as a fraction of 2^64, is below `share`. So it stays where it is whatever
    else the graph has, and a larger share only adds vertices. The hash of a string is BLAKE2b of kind, a zero byte and
    id in UTF-8 (8 bytes, little-endian). That of an integer is SplitMix64 of the id plus BLAKE2b of the kind.

    Shapes: ids (n,) int64 or string; returned (n,) bool
    Source: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators (OOPSLA 2014)
    """
    bound = min(int(share * 2**64), 2**64 - 1)
    return hashes(kind, ids) < np.uint64(bound)


def hashes(kind: str, ids: pa.Array) -> np.ndarray:
    """Return the hashes of vertices.

    Shapes: ids (n,) int64 or string; returned (n,) uint64
    """
    if pa.types.is_integer(ids.type):
        return _split_mix(ids.to_numpy().view(np.uint64) + np.uint64(_digest(kind.encode())))
    begin = kind.encode() + b"\0"
    return np.array([_digest(begin + one.encode()) for one in ids.to_pylist()], np.uint64)


def _digest(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=_DIGEST_BYTES).digest(), "little")


def _split_mix(values: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit integers; products are modulo 2^64."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def by_time(ts: np.ndarray, share: float) -> np.ndarray:
    """Return which labels are for validation: the newest `share` of them, rounded to whole labels.

    All labels of one time are on one side: those that are as old as the oldest one for validation are so, too.

    Shapes: ts (n,) int64; returned (n,) bool
    """
    wanted = round(share * len(ts))
    if not wanted:
        return np.zeros(len(ts), bool)
    return ts >= np.partition(ts, len(ts) - wanted)[len(ts) - wanted]
