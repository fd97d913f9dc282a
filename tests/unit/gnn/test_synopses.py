"""What a synopsis promises: identity, merge and its inverse, reading with the context."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnn.synopses import InvertibleSynopsis

KINDS = [InvertibleSynopsis(kind, weighted) for kind in ("sum", "mean") for weighted in (False, True)]
VALUES = st.lists(st.integers(-3, 3), min_size=1, max_size=6)


@pytest.mark.parametrize("synopsis", KINDS, ids=lambda s: s.name)
@given(kept=VALUES, gone=VALUES)
def test_what_was_merged_and_taken_back_was_never_there(
    synopsis: InvertibleSynopsis, kept: list[int], gone: list[int]
) -> None:
    state, plain = synopsis.identity(1, 1), synopsis.identity(1, 1)
    for value in kept:
        synopsis.merge(plain, np.float32([[value]]))
    for value in kept + gone:
        synopsis.merge(state, np.float32([[value]]))
    for value in gone:
        synopsis.retract(state, np.float32([[value]]))
    np.testing.assert_array_equal(state, plain)


def test_reading_divides_by_the_count_and_an_empty_mean_is_zero() -> None:
    state = np.float32([[6], [5], [1e-7]])
    count = np.array([3, 1, 0], np.int32)
    np.testing.assert_array_equal(InvertibleSynopsis("mean").read(state, count), np.float32([[2], [5], [0]]))
    np.testing.assert_array_equal(InvertibleSynopsis("sum").read(state, count), state)


def test_messages_carry_weights_only_where_the_layer_reads_them() -> None:
    values, weights = np.float32([[2, 4]]), np.float32([0.5])
    np.testing.assert_array_equal(InvertibleSynopsis("sum", True).message(values, weights), np.float32([[1, 2]]))
    np.testing.assert_array_equal(InvertibleSynopsis("sum").message(values, weights), values)


def test_names_are_for_people() -> None:
    assert [synopsis.name for synopsis in KINDS] == ["sum", "weighted sum", "mean", "weighted mean"]
