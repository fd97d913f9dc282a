"""Integer keys that Flink's own hash sends to the key group of each part.

Parts then spread evenly over subtasks at any parallelism: part k of P has key group ceil(k * max / P), and a subtask
owns a contiguous range of key groups. PyFlink wraps a key, so what Flink hashes is `Row.of(key)`.

Source: org.apache.flink.types.Row.hashCode, org.apache.flink.util.MathUtils.murmurHash, KeyGroupRangeAssignment.
"""

from __future__ import annotations

from collections import Counter

from freshet.state.task_parts import TaskParts, key_group_of, subtask_of

_MASK = 0xFFFFFFFF


def row_hash(key: int) -> int:
    """Return the Java `hashCode` of `Row.of(key)` for an int key, as an unsigned 32-bit number."""
    fields = 31 + key  # Arrays.deepHashCode of one Integer, whose hash is its value
    return (31 + fields) & _MASK  # the kind INSERT counts 31


def murmur(code: int) -> int:
    """Return Flink's murmur hash of a 32-bit code: a non-negative int."""
    code = (code * 0xCC9E2D51) & _MASK
    code = ((code << 15) | (code >> 17)) & _MASK
    code = (code * 0x1B873593) & _MASK
    code = ((code << 13) | (code >> 19)) & _MASK
    code = (code * 5 + 0xE6546B64) & _MASK
    code ^= 4
    code ^= code >> 16
    code = (code * 0x85EBCA6B) & _MASK
    code ^= code >> 13
    code = (code * 0xC2B2AE35) & _MASK
    code ^= code >> 16
    signed = code - (1 << 32) if code >> 31 else code
    if signed >= 0:
        return signed
    return -signed if signed != -(1 << 31) else 0


def key_group(key: int, max_parallelism: int) -> int:
    """Return the key group that Flink assigns to an int key of a PyFlink stream."""
    return murmur(row_hash(key)) % max_parallelism


def parts_by_subtask(parts: int, parallelism: int, max_parallelism: int) -> TaskParts:
    """Return the parts whose keys land on each subtask, without the subtasks that get none."""
    found = Counter(subtask_of(part, parts, parallelism, max_parallelism) for part in range(parts))
    return TaskParts.of(found[subtask] for subtask in sorted(found))


def part_keys(parts: int, max_parallelism: int) -> list[int]:
    """Return the key of each part: the smallest non-negative int whose key group is ceil(part * max / parts).

    Invariant: keys are distinct, and depend on (parts, max_parallelism) alone.
    """
    wanted = {key_group_of(part, parts, max_parallelism): part for part in range(parts)}
    keys = [-1] * parts
    key, missing = 0, parts
    while missing:
        part = wanted.get(key_group(key, max_parallelism))
        if part is not None and keys[part] < 0:
            keys[part] = key
            missing -= 1
        key += 1
    return keys
