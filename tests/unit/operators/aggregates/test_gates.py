"""Gated sums by deltas, held against a fresh pass over the same rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.operators.aggregates import gates
from freshet.operators.aggregates.gates import GatedFold
from tests.support.graphs.models import conv
from tests.support.stages.twin import Edge, Twin, twin_of

ROWS, CHANNELS = 6, 2


def twin(rows: int = ROWS) -> Twin:
    return twin_of(conv("res_gated_graph_conv", 3, CHANNELS), rows)


def fold_of(kept: Twin) -> GatedFold:
    fold = kept.store.fold
    assert isinstance(fold, GatedFold)
    return fold


def row(value: float, source: float, target: float) -> list[float]:
    return [value] * CHANNELS + [source] * CHANNELS + [target] * CHANNELS


def star(leaves: Any) -> dict[Edge, float]:
    return {(u, 0): 1.0 for u in leaves}


def assert_same(kept: Twin, scale: float = 1.0) -> None:
    np.testing.assert_allclose(kept.read(), kept.want(), rtol=1e-6, atol=1e-6 * scale)


ENDS = st.tuples(st.integers(0, ROWS - 1), st.integers(0, ROWS - 1))
EPOCHS = st.lists(
    st.tuples(st.dictionaries(ENDS, st.just(1.0), max_size=14), st.sets(st.integers(0, ROWS - 1), max_size=3)),
    min_size=1,
    max_size=10,
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(scale=st.sampled_from([0.5, 5.0, 1e4]), epochs=EPOCHS, seed=st.integers(0, 9))
def test_sums_by_deltas_are_those_of_a_fresh_pass(scale: float, epochs: list[Any], seed: int) -> None:
    kept, rng = twin(), np.random.default_rng(seed)
    for edges, moved in epochs:
        before = kept.read()
        values = {v: (rng.standard_normal(3 * CHANNELS) * scale).tolist() for v in sorted(moved)}
        touched = kept.apply(edges, values)
        with np.errstate(over="ignore"):
            assert_same(kept, scale)
        changed = {v for v in range(ROWS) if not np.array_equal(kept.read()[v], before[v])}
        assert changed <= set(touched.tolist()), "what has changed is said"


def test_a_target_whose_term_changes_is_summed_afresh_and_no_other() -> None:
    kept = twin()
    kept.apply(star([1, 2, 3]) | {(1, 4): 1.0}, {v: row(1.0 + v, 0.1 * v, 0.0) for v in range(ROWS)})
    counts = fold_of(kept).counts
    counts[:] = 0
    assert kept.apply(kept.edges, {0: row(5.0, 5.0, 1.5)}).tolist() == [0]
    assert counts.tolist() == [0, 1, 3]
    assert_same(kept)
    kept.apply(kept.edges, {0: row(6.0, 5.5, 1.5), 5: row(0.0, 0.0, 3.0)})
    assert counts[gates.AFRESH] == 1, "its term stays, or nobody has it as a target"
    kept.apply(kept.edges, {2: row(7.0, 0.2, 0.0)})
    assert counts[gates.AFRESH] == 1 and counts[gates.DELTAS] == 2, "a source comes and goes by its message"
    assert_same(kept)


@pytest.mark.parametrize("term", [800.0, -800.0, 0.0, np.inf, -np.inf])
def test_gates_are_open_or_shut_at_the_far_ends(term: float) -> None:
    kept = twin()
    kept.apply(star([1, 2]), {0: row(0.0, 0.0, 0.5), 1: row(3.0, term, 0.0), 2: row(0.25, 1.0, 0.0)})
    with np.errstate(over="ignore"):
        assert_same(kept)
    kept.apply(star([2]), {})
    assert_same(kept)


def test_what_comes_and_goes_leaves_nothing_behind() -> None:
    kept = twin()
    values = {v: row(0.1 * v, 0.3 * v, -0.2) for v in range(ROWS)}
    kept.apply(star([1, 2]), values | {3: row(1e30, 0.0, 0.0), 4: row(float("nan"), 0.0, 0.0)})
    before = kept.read()
    kept.apply(star([1, 2, 3]), {})
    kept.apply(star([1, 2, 4]), {})
    assert np.isnan(kept.read()[0]).all()
    kept.apply(star([1, 2]), {})
    np.testing.assert_array_equal(kept.read(), before)
    kept.apply({}, {})
    assert not kept.read().any(), "sums of nothing are exactly 0"
