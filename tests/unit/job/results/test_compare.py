import numpy as np
import pytest

from freshet.job.results.compare import SCALE_MIN, compare

NAN, INF = float("nan"), float("inf")


@pytest.fixture(autouse=True, params=[1, 2, 1 << 14])
def rows_at_a_time(request, monkeypatch):
    monkeypatch.setattr("freshet.job.results.compare._ROWS", request.param)


def rows(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("names", [[1, 2, 3], ["b", "a", "zoë"]])
def test_ids_are_matched_whatever_their_order(names):
    ids = np.array(names, object if isinstance(names[0], str) else np.int64)
    expected = rows([1, 2], [3, 4], [5, -8])
    result = compare(ids[[2, 0, 1]], expected[[2, 0, 1]], ids, expected, np.ones((3, 2)))
    assert (result.vertices, result.missing, result.extra, result.max_abs_error) == (3, 0, 0, 0)
    assert result.is_within(0)
    assert result.worst is None
    result = compare(ids[:2], expected[:2] + rows([0, 0], [0, 0.5]), ids[1:], expected[1:], np.full((2, 2), 4.0))
    assert (result.missing, result.extra) == (1, 1)
    assert result.max_abs_error == 0.5
    assert result.max_rel_error == 0.5 / 4
    assert result.worst.to_dict() == {"id": names[1], "channel": 1, "got": 4.5, "expected": 4.0, "scale": 4.0}
    assert not result.is_within(1)


def test_every_value_is_judged_at_its_own_scale():
    ids, expected = np.arange(2), np.array([[5e7, 18.7], [0.0, 1.0]])
    scale = np.array([[5e7, 18.7], [0.0, 1.0]])
    result = compare(ids, rows([5e7 + 4, 16.0], [0, 1]), ids, expected, scale)
    assert result.max_rel_error == pytest.approx(2.7 / 18.7)
    assert (result.worst.id, result.worst.channel, result.max_abs_error) == (0, 1, 4)
    # where nothing was summed there is nothing to be off by
    result = compare(ids, rows([5e7, 18.7], [1e-6, 1]), ids, expected, scale)
    assert result.max_rel_error == pytest.approx(1e-6 / SCALE_MIN)


def test_nan_equals_nan_and_nothing_else_and_infinities_have_a_sign():
    ids, ones = np.arange(2), np.ones((2, 2))
    same = rows([NAN, INF], [1, -INF])
    result = compare(ids, same, ids, same, ones)
    assert (result.nan, result.mismatched, result.max_abs_error) == (1, 0, 0)
    assert result.is_within(0)
    result = compare(ids, rows([NAN, INF], [1, 1]), ids, rows([2, -INF], [1, 1]), ones)
    assert (result.nan, result.mismatched) == (0, 2)
    assert not result.is_within(1e9)
    assert result.worst.to_dict() == {"id": 0, "channel": 0, "got": "nan", "expected": 2.0, "scale": 1.0}


def test_past_the_range_of_float32_anything_may_come_but_a_number_where_none_can_be():
    ids, expected = np.arange(1), np.array([[1e39, 2e38, 1.0, NAN]])
    scale = np.array([[INF, INF, INF, INF]])
    result = compare(ids, rows([INF, NAN, 1, NAN]), ids, expected, scale)
    assert (result.nan, result.mismatched, result.max_rel_error) == (2, 0, 0)
    result = compare(ids, rows([INF, NAN, 1, 2]), ids, expected, scale)
    assert result.mismatched == 1
    assert result.worst.channel == 3
    result = compare(ids, rows([INF, NAN, 1, NAN]), ids, expected, np.ones((1, 4)))
    assert result.mismatched == 1, "1e39 is infinity in float32, and 2e38 is not"


def test_nothing_on_either_side():
    none, wide = np.empty(0, np.int64), np.empty((0, 2), np.float32)
    assert compare(none, wide, none, wide, wide).is_within(0)
    result = compare(none, np.empty((0, 0), np.float32), np.arange(2), rows([0, 0], [0, 0]), np.ones((2, 2)))
    assert (result.missing, result.max_rel_error) == (2, 0)
