"""Chunks of a pool against a set of what is in use."""

from __future__ import annotations

import random

import numpy as np

from freshet.state.chunks import give_back, hand_out, order_of
from freshet.state.table import TableSet

ENTRIES = 256


def test_a_chunk_is_the_smallest_power_of_two() -> None:
    assert [order_of(entries) for entries in (0, 1, 2, 3, 4, 5, 1000)] == [0, 0, 1, 2, 2, 3, 10]


def test_chunks_never_overlap_and_those_given_back_are_used_first() -> None:
    rng = random.Random(4)
    pool = TableSet().add("pool", "i4")
    pool.reserve(ENTRIES)
    heads, end, room = np.zeros(8, np.int64), np.zeros(1, np.int64), ENTRIES
    held: dict[int, int] = {}
    free: dict[int, list[int]] = {k: [] for k in range(8)}
    refused = reused = 0
    for _ in range(2000):
        if held and rng.random() < 0.5:
            at = rng.choice(list(held))
            k = held.pop(at)
            give_back(heads, pool.data, at, k, 0)
            free[k].append(at)
            continue
        k, before = rng.randrange(5), int(end[0])
        at = int(hand_out(heads, end, pool.data, room, k, 0))
        if free[k]:
            assert at == free[k].pop(), "the one that was given back last"
            reused += 1
        elif at < 0:
            assert before + (1 << k) > room
            assert end[0] == before
            refused += 1
            continue
        held[at] = k
        taken = [place for first, order in held.items() for place in range(first, first + (1 << order))]
        assert len(taken) == len(set(taken))
        assert max(taken) < end[0] <= room
    assert min(refused, reused) > 50
