"""Kernels that one caller calls again and again with arguments of the same types."""

import numpy as np
import pytest

from gnn import kernel_calls
from gnn.kernel import kernel


@kernel
def _total(numbers: np.ndarray) -> int:
    total = 0
    for number in numbers:
        total += number
    return total


def test_a_direct_call_is_the_kernel_and_held_against_the_types_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers, others = np.arange(6), np.arange(6.0)
    for checks in (False, True):
        monkeypatch.setattr(kernel_calls, "_checks", checks)
        direct = kernel_calls.Direct(_total)
        assert [direct(numbers), direct(numbers[1:]), direct(numbers[:0])] == [15, 15, 0]
    with pytest.raises(TypeError, match="_total: types of arguments differ from those of the first call"):
        direct(others)
    assert kernel_calls.Direct(max)(3, 4) == 4, "a function that is not compiled"
