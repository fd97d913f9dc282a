"""What a synopsis promises: reading with the context."""

import numpy as np

from freshet.gnn.synopses.of_messages import InvertibleSynopsis

KINDS = [InvertibleSynopsis(kind, weighted) for kind in ("sum", "mean") for weighted in (False, True)]


def test_reading_divides_by_the_count_and_an_empty_mean_is_zero() -> None:
    state = np.float32([[6], [5], [1e-7]])
    count = np.array([3, 1, 0], np.int32)
    np.testing.assert_array_equal(InvertibleSynopsis("mean").read(state, count), np.float32([[2], [5], [0]]))
    np.testing.assert_array_equal(InvertibleSynopsis("sum").read(state, count), state)


def test_names_are_for_people() -> None:
    assert [synopsis.name for synopsis in KINDS] == ["sum", "weighted sum", "mean", "weighted mean"]
