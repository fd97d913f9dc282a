"""Variances by deltas, held against exact arithmetic over the same messages, in one part and merged from several."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.of_messages import MomentsSynopsis
from freshet.operators.aggregates.moments import MomentsFold
from freshet.operators.aggregates.registry import aggregate_of
from tests.support.graphs.models import conv
from tests.support.stages.twin import Edge, Twin, twin_of

WIDTH, ROWS = 2, 5


def twin(aggr: Any = "var", *, weighted: bool = False, rows: int = ROWS) -> Twin:
    if isinstance(aggr, str):
        return twin_of(conv("graph_conv", WIDTH, 4, aggr=aggr, edge_weights=weighted), rows)
    return twin_of(conv("sage_conv", WIDTH, 4, aggr=aggr), rows)


def fold_of(kept: Twin) -> MomentsFold:
    fold = kept.store.fold
    assert isinstance(fold, MomentsFold)
    return fold


def exact(values: list[float]) -> tuple[float, float]:
    """The variance of these float32 numbers and their mean square, rounded once."""
    numbers = [Fraction(float(np.float32(value))) for value in values]
    mean, of_squares = (sum(terms) / len(numbers) for terms in (numbers, [n * n for n in numbers]))
    return float(of_squares - mean * mean), float(of_squares)


def assert_exact(kept: Twin) -> None:
    """Every variance is exact up to float32's rounding of it, and 2^-43 of the mean square."""
    got = kept.read()[:, 1 + 2 * WIDTH :]
    for vertex in range(kept.rows):
        messages = [np.float32(w) * kept.values[u] for (u, v), w in kept.edges.items() if v == vertex]
        for channel in range(WIDTH):
            want, size = exact([m[channel] for m in messages]) if messages else (0.0, 0.0)
            assert abs(got[vertex, channel] - want) <= 2.0**-19 * want + 2.0**-43 * size, (vertex, channel)
    assert (kept.read()[:, 0] == [sum(v == vertex for _, v in kept.edges) for vertex in range(kept.rows)]).all()


def star(leaves: Any) -> dict[Edge, float]:
    return {(u, 0): 1.0 for u in leaves}


ENDS = st.tuples(st.integers(0, ROWS - 1), st.integers(0, ROWS - 1))
EDGES = st.dictionaries(ENDS, st.sampled_from([1.0, 1.0, 2.0, 0.0, -1.0, 0.1]), max_size=10)
NUMBERS = st.sampled_from([0.0, 1.0, 1.0, -1.0, 0.1, 0.3, 1000.1, 1000.2, 1e6, 3e-7, -1e9])
VALUES = st.dictionaries(st.integers(0, ROWS - 1), st.lists(NUMBERS, min_size=WIDTH, max_size=WIDTH), max_size=3)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(weighted=st.booleans(), epochs=st.lists(st.tuples(EDGES, VALUES), min_size=1, max_size=8))
def test_variances_are_those_of_the_messages(weighted: bool, epochs: list[Any]) -> None:
    kept = twin(weighted=weighted)
    for edges, values in epochs:
        if not weighted:
            edges = dict.fromkeys(edges, 1.0)
        before = kept.read()
        touched = kept.apply(edges, values)
        assert_exact(kept)
        changed = {v for v in range(ROWS) if not np.array_equal(kept.read()[v], before[v])}
        assert changed <= set(touched.tolist()), "what has changed is said"


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(epochs=st.lists(st.tuples(EDGES, VALUES), min_size=1, max_size=6), kind=st.sampled_from(["std", "var"]))
def test_beside_others_they_are_what_they_are_alone(epochs: list[Any], kind: str) -> None:
    kept, alone = twin(["max", kind, "sum"]), twin(kind)
    for edges, values in epochs:
        edges = dict.fromkeys(edges, 1.0)
        kept.apply(edges, values)
        alone.apply(edges, values)
        np.testing.assert_array_equal(kept.read()[:, WIDTH : 1 + 4 * WIDTH], alone.read())


def test_a_heavy_neighbour_that_goes_leaves_nothing_behind() -> None:
    kept = twin()
    light = {u: [0.1 * u, 1000 + 0.01 * u] for u in range(1, 4)}
    kept.apply(star([1, 2, 3]), light | {4: [3e7, -2e12]})
    fold = fold_of(kept)
    afresh = int(fold.counter[1])
    kept.apply(star([1, 2, 3, 4]), {})
    kept.apply(star([1, 2, 3]), {})
    assert_exact(kept)
    assert fold.counter[1] > afresh, "what the light ones lost beside it had to be read again"
    kept.apply({}, {})
    assert not kept.read().any(), "moments of nothing are exactly 0"
    assert not fold.s.data.any() and not fold.lost.data.any()


def test_neighbours_that_are_all_alike_have_no_variance_and_cost_no_reading() -> None:
    many = 1000
    kept = twin("std", rows=many + 1)
    for last in range(many - 200, many):
        kept.apply(star(range(1, last)), {u: [0.1, 1000.3] for u in range(1, many)} if last == many - 200 else {})
    assert not kept.layer.synopsis.read(kept.read(), np.empty(0)).any()
    assert fold_of(kept).counter[2] < 5 * many


def test_small_differences_about_a_large_mean_are_kept_through_many_updates() -> None:
    """Where float32 sums of squares have nothing left: a mean of 1e4, deviations of 0.01."""
    kept, rng = twin(rows=101), np.random.default_rng(1)
    rows = {u: (1e4 + 0.01 * rng.standard_normal(WIDTH)).tolist() for u in range(1, 101)}
    kept.apply(star(range(1, 101)), rows)
    for _ in range(100):
        some = rng.choice(np.arange(1, 101), 20, replace=False)
        kept.apply(
            star(set(range(1, 101)) - set(some[:10].tolist())),
            {int(u): (1e4 + 0.01 * rng.standard_normal(WIDTH)).tolist() for u in some},
        )
        assert_exact(kept)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 3e38])
def test_what_is_not_finite_is_so_while_it_is_there(bad: float) -> None:
    kept = twin()
    kept.apply(star([1, 2, 3]), {1: [1.0, 2.0], 2: [0.5, 0.1], 3: [bad, 1.0]})
    assert not np.isfinite(kept.read()[0, 1 + 2 * WIDTH])
    kept.apply(star([1, 2]), {})
    assert_exact(kept)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.tuples(NUMBERS, NUMBERS)), min_size=1, max_size=12),
    kinds=st.sampled_from([("var",), ("max", "var", "sum")]),
)
def test_partials_of_several_parts_make_the_whole(rows: list[Any], kinds: tuple[Any, ...]) -> None:
    synopsis = synopsis_of(kinds, weighted=False)
    parts = sorted({part for part, _ in rows})
    partial = np.concatenate([_state(synopsis, [values for p, values in rows if p == part]) for part in parts])
    index = np.full((1, 4), -1, np.int32)
    index[0, parts] = np.arange(len(parts))
    out = np.empty((1, partial.shape[1]), np.float32)
    merge = aggregate_of(synopsis).merger(synopsis)
    merge(index, partial, np.zeros(1, np.int32), out, (31, 31), (0, out.shape[1]))
    first = 1 + (WIDTH if len(kinds) > 1 else 0) + 2 * WIDTH
    for channel in range(WIDTH):
        want, size = exact([values[channel] for _, values in rows])
        assert abs(out[0, first + channel] - want) <= 2.0**-22 * want + 2.0**-44 * size
    assert out[0, first - 1 - 2 * WIDTH] == len(rows)


def _state(synopsis: Any, messages: list[Any]) -> np.ndarray:
    rows = np.array(messages, np.float32)
    state: np.ndarray = synopsis.whole(rows, np.zeros(len(rows), np.int64), np.zeros((1, WIDTH), np.float32))
    return state


def test_a_standard_deviation_below_pygs_least_is_nothing() -> None:
    state = np.float32([[2, 0, 0, 0, 0, 1e-5, 1.1e-5], [2, 0, 0, 0, 0, 4.0, np.nan], [0] * 7])
    read = MomentsSynopsis("std").read(state, np.array([2, 2, 0], np.int32))
    np.testing.assert_array_equal(read, np.float32([[0, np.sqrt(np.float32(1.1e-5))], [2, np.nan], [0, 0]]))
    np.testing.assert_array_equal(MomentsSynopsis("var").read(state, np.zeros(3)), state[:, 5:])
