import numpy as np
import pytest

from job.compare import compare

NAN, INF = float("nan"), float("inf")


def rows(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("names", [[1, 2, 3], ["b", "a", "zoë"]])
def test_ids_are_matched_whatever_their_order(names):
    ids = np.array(names, object if isinstance(names[0], str) else np.int64)
    expected = rows([1, 2], [3, 4], [5, -8])
    result = compare(ids[[2, 0, 1]], expected[[2, 0, 1]], ids, expected)
    assert (result.vertices, result.missing, result.extra, result.max_abs_error) == (3, 0, 0, 0)
    assert result.is_within(0)
    result = compare(ids[:2], expected[:2] + rows([0, 0], [0, 0.5]), ids[1:], expected[1:])
    assert (result.missing, result.extra) == (1, 1)
    assert result.max_abs_error == 0.5
    assert result.max_rel_error == 0.5 / 8
    assert not result.is_within(1)


def test_nan_equals_nan_and_nothing_else_and_infinities_have_a_sign():
    ids = np.arange(2)
    same = rows([NAN, INF], [1, -INF])
    result = compare(ids, same, ids, same)
    assert (result.nan, result.mismatched, result.max_abs_error) == (1, 0, 0)
    assert result.is_within(0)
    result = compare(ids, rows([NAN, INF], [1, 1]), ids, rows([2, -INF], [1, 1]))
    assert (result.nan, result.mismatched) == (0, 2)
    assert not result.is_within(1e9)


def test_nothing_on_either_side():
    none, wide = np.empty(0, np.int64), np.empty((0, 2), np.float32)
    assert compare(none, wide, none, wide).is_within(0)
    result = compare(none, np.empty((0, 0), np.float32), np.arange(2), rows([0, 0], [0, 0]))
    assert (result.missing, result.max_rel_error) == (2, 0)
