"""What is done to eight channels at a time is what is done to each of them, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.attention import lanes

AT, TO, SIZE = 3, 5, 24  # lanes begin anywhere
SPECIAL = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0**40, 3e38, 1e-45, np.nan, np.inf, -np.inf]),
    st.floats(-1e3, 1e3, width=32),
)
FLOATS = st.lists(SPECIAL, min_size=SIZE, max_size=SIZE)
FACTORS = st.sampled_from([1.0, 0.0, 0.3, 2.0**-20])


@kernel
def add(s: np.ndarray, rows: np.ndarray, p: np.float32, sign: float) -> int:
    return lanes.add(s, np.int64(TO), rows, np.int64(AT), p, sign)


@kernel
def replace(s: np.ndarray, old: np.ndarray, p: np.float32, new: np.ndarray, q: np.float32) -> int:
    return lanes.replace(s, np.int64(TO), old, np.int64(AT), p, new, np.int64(AT + 2), q)


@kernel
def read(s: np.ndarray, factor: float, more: float, two: bool, out: np.ndarray) -> None:
    if two:
        lanes.read_two(s, np.int64(AT), factor, np.int64(TO), more, out, np.int64(TO))
    else:
        lanes.read_one(s, np.int64(AT), factor, out, np.int64(TO))


@kernel
def blend(agg: np.ndarray, theirs: float, own: np.ndarray, ours: float, out: np.ndarray) -> None:
    lanes.blend(agg, np.int64(AT), theirs, own, np.int64(TO), ours, out, np.int64(TO))


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit by bit; any NaN is like another."""
    signs = [np.signbit(x) | np.isnan(x) for x in (a, b)]
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(*signs)


@settings(max_examples=120, deadline=None)
@given(sums=FLOATS, old=FLOATS, new=FLOATS, p=FACTORS, q=FACTORS, sign=st.sampled_from([1.0, -1.0]))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_sums_and_what_is_lost_are_those_of_one_channel_after_the_other(
    sums: Any, old: Any, new: Any, p: float, q: float, sign: float
) -> None:
    before = np.array(sums).reshape(2, -1)
    first, second = (np.array(values, np.float32).reshape(2, -1) for values in (old, new))
    some, more = np.float32(p), np.float32(q)
    one, other = before.copy(), before.copy()
    assert add(one, first, some, sign) == lanes._Plain.add(other, TO, first, AT, some, sign)
    assert same(one, other)
    lossy = replace(one, first, some, second, more)
    assert lossy == lanes._Plain.replace(other, TO, first, AT, some, second, AT + 2, more)
    assert same(one, other)


@settings(max_examples=100, deadline=None)
@given(sums=FLOATS, values=FLOATS, factor=FACTORS, more=FACTORS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_is_read_is_that_of_one_channel_after_the_other(
    sums: Any, values: Any, factor: float, more: float
) -> None:
    s, own = np.array(sums), np.array(values, np.float32)
    for two in (False, True):
        one, other = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
        read(s, factor, more, two, one)
        if two:
            lanes._Plain.read_two(s, AT, factor, TO, more, other, TO)
        else:
            lanes._Plain.read_one(s, AT, factor, other, TO)
        assert same(one, other)
    one, other = np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    blend(own, factor, own.reshape(2, -1), more, one)
    lanes._Plain.blend(own, AT, factor, own.reshape(2, -1), TO, more, other, TO)
    assert same(one, other)
