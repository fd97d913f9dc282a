"""Products of few rows have the bits of products of many."""

import numpy as np
import pytest

from freshet.gnn.numerics import dense
from freshet.gnn.numerics.few_products import FEW, chains_like, multiply_few

SHAPES = [(128, 256), (128, 40), (7, 5), (1, 2), (1433, 16), (602, 41), (768, 64), (384, 33)]


def rows(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


@pytest.mark.parametrize(("k", "m"), SHAPES)
@pytest.mark.parametrize("many", [1, 2, FEW, FEW + 1])
def test_few_rows_have_the_bits_that_they_have_in_a_block(k: int, m: int, many: int) -> None:
    x, w = rows(1, many, k), rows(2, k, m)
    x[0, ::2] *= -0.0
    expected = dense._padded(dense.block_of(k, m), x, w)
    np.testing.assert_array_equal(bits(dense.matmul(x, w)), bits(expected))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e-40, 3e38])
def test_what_is_not_finite_is_so_in_the_same_places(value: float) -> None:
    x, w = rows(1, 3, 33), rows(2, 33, 17)
    x[1, 5] = x[2, 6] = value
    with np.errstate(all="ignore"):
        expected, got = dense._padded(dense.block_of(33, 17), x, w), dense.matmul(x, w)
    np.testing.assert_array_equal(got, expected)


def test_chains_are_found_that_another_product_is_made_of() -> None:
    ends = np.array([320, 512, 700])  # as OpenBLAS cuts 700 where its longest chain is 320

    def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        out = np.empty((len(x), w.shape[1]), np.float32)
        multiply_few(x, w, ends, out)
        return out

    found = chains_like(700, 9, product)
    assert found is not None and found.tolist() == ends.tolist()


def test_a_product_in_another_order_is_none_of_ours() -> None:
    def backwards(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        out = np.empty((len(x), w.shape[1]), np.float32)
        multiply_few(np.ascontiguousarray(x[:, ::-1]), np.ascontiguousarray(w[::-1]), np.array([x.shape[1]]), out)
        return out

    assert chains_like(50, 9, backwards) is None


def test_rows_are_padded_where_no_chains_have_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = rows(1, 5, 40), rows(2, 40, 12)
    expected = dense.matmul(x, w)
    monkeypatch.setattr(dense, "_chains_of", lambda k, m: None)
    np.testing.assert_array_equal(bits(dense.matmul(x, w)), bits(expected))
