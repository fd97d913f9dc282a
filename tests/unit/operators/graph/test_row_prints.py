"""Prints of rows: the sums that they are said to be, and another one for a row that differs in any bit."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.kernels.kernel import kernel
from freshet.operators.graph.row_prints import PRINT_WORDS, print_keys, replace_print
from freshet.state.table import Table, View
from tests.support.graphs.prints import plain_prints

SEED = 12345


@kernel
def replace_prints(table: View, keys: np.ndarray, words: np.ndarray, changed: np.ndarray) -> None:
    """Replace the print of each row, and say which changed."""
    for i in range(len(words)):
        changed[i] = replace_print(table, keys, i, words, i)


class Prints:
    """Prints of rows by their place."""

    def __init__(self, rows: int, width: int, seed: int = SEED) -> None:
        self.table, self.keys = Table("print", "u8", PRINT_WORDS), print_keys(seed, width)
        self.table.reserve(rows)

    def replace(self, x: np.ndarray) -> list[bool]:
        changed = np.zeros(len(x), np.bool_)
        replace_prints(self.table.view, self.keys, x.view(np.uint32), changed)
        return list(map(bool, changed))


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 64, 65])
def test_a_print_is_two_sums_over_pairs_of_words(width: int) -> None:
    x = np.random.default_rng(width).standard_normal((20, width)).astype(np.float32)
    prints = Prints(len(x), width)
    assert prints.replace(x) == [True] * len(x)
    assert prints.table.data[: len(x)].tolist() == plain_prints(prints.keys, x)
    assert prints.replace(x) == [False] * len(x)


@pytest.mark.parametrize("width", [1, 2, 5, 16])
def test_each_bit_of_a_row_changes_its_print(width: int) -> None:
    row = np.random.default_rng(7).standard_normal((1, width)).astype(np.float32)
    x = np.repeat(row, 32 * width, axis=0)
    prints = Prints(len(x), width)
    prints.replace(x)
    for place in range(len(x)):
        x.view(np.uint32)[place, place // 32] ^= np.uint32(1 << place % 32)
    assert prints.replace(x) == [True] * len(x)
    assert len({tuple(one) for one in prints.table.data[: len(x)].tolist()}) == len(x)


def test_zeros_of_both_signs_differ_and_a_nan_is_equal_to_itself() -> None:
    x = np.array([[0.0, np.nan], [-0.0, np.nan]], np.float32)
    prints = Prints(2, 2)
    prints.replace(x)
    assert prints.replace(x) == [False, False]
    assert prints.replace(np.ascontiguousarray(x[::-1])) == [True, True]


def test_seeds_have_keys_of_their_own() -> None:
    keys = {print_keys(seed, 8).tobytes() for seed in range(50)}
    assert len(keys) == 50
    assert all(int(print_keys(seed, 8).max()) < 2**32 for seed in range(50))


def test_only_a_new_print_makes_its_page_dirty() -> None:
    x = np.ones((3, 4), np.float32)
    prints = Prints(3, 4)
    prints.replace(x)
    assert prints.table.freeze() == 1
    assert len(list(prints.table.take_owed(1))) == 1
    prints.replace(x)
    assert prints.table.freeze() == 0
