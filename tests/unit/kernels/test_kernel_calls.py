"""Kernels that one caller calls again and again with arguments of the same types."""

from collections.abc import Iterator

import numpy as np
import pytest
from numba import _dispatcher as numba_dispatcher
from numba.core.errors import NumbaValueError

from freshet.kernels import kernel_calls
from freshet.kernels.kernel import kernel


@kernel
def _total(numbers: np.ndarray) -> int:
    total = 0
    for number in numbers:
        total += number
    return total


@pytest.fixture(params=[False, True], ids=["compiled", "checked at every call"])
def direct(request: pytest.FixtureRequest) -> Iterator[kernel_calls.Direct]:
    kernel_calls.check_calls(request.param)
    yield kernel_calls.Direct(_total)
    kernel_calls.check_calls()


def test_a_direct_call_is_the_kernel(direct: kernel_calls.Direct) -> None:
    numbers = np.arange(6)
    assert [direct(numbers), direct(numbers[1:]), direct(numbers[:0])] == [15, 15, 0]
    assert kernel_calls.Direct(max)(3, 4) == 4, "a function that is not compiled"


@pytest.mark.parametrize(
    "others",
    [
        np.arange(6.0),
        np.arange(6, dtype=np.int32),
        np.arange(12)[::2],
        np.arange(6).reshape(2, 3),
        np.broadcast_to(np.arange(6), (6,)),  # not writable
        6,
        (np.arange(6),),
    ],
    ids=["floats", "narrow", "strided", "of two dimensions", "not writable", "no array", "in a tuple"],
)
@pytest.mark.parametrize("calls_before", [1, 2, kernel_calls.CHECKED_FIRST - 1])
def test_arguments_of_other_types_are_refused(direct: kernel_calls.Direct, others: object, calls_before: int) -> None:
    for _ in range(calls_before):
        assert direct(np.arange(6)) == 15
    with pytest.raises(TypeError, match=r"_total: arguments differ in type from those of the first call .*\(0, "):
        direct(others)
    with pytest.raises(TypeError, match=r"differ in type .*\(1, None"):
        direct(np.arange(6), 3)
    assert direct(np.arange(6)) == 15


@kernel
def _first_of(pair: tuple[np.ndarray, int]) -> int:
    return pair[0][0] + (pair[1] > 0)


@pytest.mark.parametrize("other", [(np.arange(3, dtype=">i8"), 1), (np.arange(3), 1 << 63)], ids=["bytes", "sign"])
def test_what_no_fingerprint_tells_is_refused(direct: kernel_calls.Direct, other: object) -> None:
    """numba's fingerprint of arguments is the same for both orders of bytes, and for integers of any size."""
    direct = kernel_calls.Direct(_first_of)
    assert direct((np.arange(3) + 4, 1)) == 5
    with pytest.raises((TypeError, NumbaValueError)):
        direct(other)


def test_later_calls_are_checked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, made, checked = np.arange(6), [], []
    of = numba_dispatcher.compute_fingerprint
    monkeypatch.setattr(numba_dispatcher, "compute_fingerprint", lambda given: checked.append(len(made)) or of(given))
    kernel_calls.check_calls(False)
    try:
        direct = kernel_calls.Direct(_total)
        for _ in range(4_000):
            made.append(direct(numbers))
    finally:
        kernel_calls.check_calls()
    first, each = kernel_calls.CHECKED_FIRST, kernel_calls.CHECK_EACH
    assert checked == [*range(first), first - 1 + each, first - 1 + 2 * each, first - 1 + 3 * each]
