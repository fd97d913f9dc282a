"""What is done to 16 channels at a time is what is done to each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.extrema import channels, lanes
from freshet.operators.aggregates.extrema.lanes import LANES

AT, TO, SIZE = 3, 5, 40  # lanes begin anywhere
SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, 3e38, 1e-45, np.nan, np.inf, -np.inf])
FLOATS = st.lists(SPECIAL, min_size=SIZE, max_size=SIZE)
COUNTS = st.lists(st.sampled_from([0, 1, 2, 65_534, 65_535]), min_size=SIZE, max_size=SIZE)
FACTORS = st.sampled_from([1.0, -1.0, 0.0, 0.5])


@kernel
def two_ways_of_passing(z: np.ndarray, s: np.ndarray, factor: float, out: np.ndarray) -> None:
    out[0] = lanes.passes(z, np.int64(AT), factor, s, np.int64(TO))
    out[1] = channels.passes(z, np.int64(AT), factor, s, np.int64(TO), np.int64(LANES))


@kernel
def count_off(z: np.ndarray, s: np.ndarray, many: np.ndarray, factor: float, wide: bool) -> int:
    if wide:
        return lanes.count_off(z, np.int64(AT), factor, s, many, np.int64(TO))
    return channels.count_off(z, np.int64(AT), factor, s, many, np.int64(TO), np.int64(LANES))


@kernel
def count_on(z: np.ndarray, s: np.ndarray, many: np.ndarray, factor: float, wide: bool) -> int:
    if wide:
        return np.int64(lanes.count_on(z, np.int64(AT), factor, s, many, np.int64(TO)))
    return np.int64(channels.count_on(z, np.int64(AT), factor, s, many, np.int64(TO), np.int64(LANES)))


@kernel
def put(z: np.ndarray, s: np.ndarray, many: np.ndarray, found: np.ndarray, wide: bool) -> int:
    if wide:
        return np.int64(lanes.put(z, found, np.int64(AT), s, many, np.int64(TO)))
    return np.int64(channels.put(z, found, np.int64(AT), s, many, np.int64(TO), np.int64(LANES)))


@kernel
def merge(z: np.ndarray, s: np.ndarray, found: np.ndarray, factor: float, wide: bool) -> int:
    if wide:
        lanes.merge(z, np.int64(AT), factor, s, found, np.int64(TO))
    else:
        channels.merge(z, np.int64(AT), factor, s, found, np.int64(TO), np.int64(LANES))
    return 0


@kernel
def merge_all(
    z: np.ndarray, places: np.ndarray, factors: np.ndarray, s: np.ndarray, found: np.ndarray, wide: bool
) -> int:
    if wide:
        lanes.merge_four(z, places, np.int64(1), factors, np.int64(2), s, found, np.int64(TO))
        return 0
    for i in range(4):
        at = np.int64(places[1 + i])
        channels.merge(z, at, factors[2 + i], s, found, np.int64(TO), np.int64(LANES))
    return 0


def bits(values: np.ndarray) -> list[Any]:
    """The values with every bit but those of a NaN, whose payload says nothing."""
    if values.dtype != np.float32:
        return values.tolist()
    return np.where(np.isnan(values), np.uint32(0xFFFFFFFF), values.view(np.uint32)).tolist()


def same(function: Callable[..., int], values: tuple[Any, ...], changed: tuple[np.ndarray, ...], *more: Any) -> None:
    """Both ways return the same and leave the same behind."""
    ways = []
    for wide in (True, False):
        mine = tuple(array.copy() for array in changed)
        with np.errstate(all="ignore"):
            ways.append((function(*values, *mine, *more, wide), [bits(array) for array in mine]))
    assert ways[0] == ways[1]


def floats(values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


@settings(max_examples=180, deadline=None)
@given(z=FLOATS, s=FLOATS, many=COUNTS, factor=FACTORS)
def test_sixteen_channels_are_sixteen_times_one(z: list[float], s: list[float], many: list[int], factor: float) -> None:
    values, extrema, holders, times = floats(z), floats(s), np.array(many, np.uint16), np.float32(factor)
    out = np.zeros(2, bool)
    two_ways_of_passing(values, extrema, times, out)
    assert out[0] == out[1]
    same(count_off, (values,), (extrema, holders), times)
    same(count_on, (values,), (extrema, holders), times)
    same(merge, (values,), (extrema, holders.astype(np.int32)), times)
    best = np.where(np.isnan(extrema), np.float32(7), extrema)  # what is found is no NaN with another beside it
    same(put, (values,), (best, holders), np.array(many[::-1], np.int32) + 1)


@settings(max_examples=180, deadline=None)
@given(
    z=st.lists(SPECIAL.filter(lambda x: x == x), min_size=80, max_size=80),
    nan=st.sets(st.integers(0, 79), max_size=3),
    s=FLOATS,
    weighted=st.booleans(),
)
def test_four_messages_are_four_times_one(z: list[float], nan: set[int], s: list[float], weighted: bool) -> None:
    values, extrema = floats(z), floats(s)
    values[list(nan)] = np.nan
    places = np.array([9, 0, 17, 40, 64, 9], np.uint64)
    factors = np.array([9, 9, 1, -1, 2, 0.5, 9], np.float32) if weighted else np.ones(7, np.float32)
    found = np.where(np.isnan(extrema), 1, 3).astype(np.int32)  # of a NaN it is known that there is one
    same(merge_all, (values, places, factors), (extrema, found))


def test_lanes_leave_their_neighbours_alone() -> None:
    values, extrema, holders = np.full(SIZE, 5, np.float32), np.zeros(SIZE, np.float32), np.ones(SIZE, np.uint16)
    count_on(values, extrema, holders, np.float32(1), True)
    assert extrema.tolist() == [0.0] * TO + [5.0] * LANES + [0.0] * (SIZE - TO - LANES)
    holders[TO + 1] = 0
    put(np.full(SIZE, 9, np.float32), extrema, holders, np.full(SIZE, 70_000, np.int32), True)
    assert extrema.tolist() == [0.0] * TO + [5.0, 9.0] + [5.0] * (LANES - 2) + [0.0] * (SIZE - TO - LANES)
    assert holders.tolist() == [1] * (TO + 1) + [65_535] + [1] * (SIZE - TO - 2)


@pytest.mark.parametrize("value", [0.0, -np.inf])
def test_a_first_message_is_told(value: float) -> None:
    """-inf is what an empty row has, and a message may be just that."""
    values, holders = np.full(SIZE, value, np.float32), np.zeros(SIZE, np.uint16)
    assert count_on(values, np.full(SIZE, -np.inf, np.float32), holders, np.float32(1), True)
    assert holders[TO : TO + LANES].tolist() == [1] * LANES
