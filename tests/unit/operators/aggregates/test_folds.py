"""Extrema and several synopses beside each other, held bit by bit against a recomputation from the same messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.gnn.synopses.by_name import synopsis_of
from freshet.operators.aggregates.extrema import kernels as extrema
from freshet.operators.aggregates.extrema.extrema import ExtremaFold
from freshet.operators.aggregates.products import ProductFold
from freshet.operators.aggregates.sums.sums import SumFold
from freshet.operators.graph.edge_lists import LostUpdateError
from tests.support.graphs.models import conv
from tests.support.stages.twin import Edge, Twin, twin_of

WIDTH, ROWS = 3, 5


def twin(aggr: Any, *, weighted: bool = True, rows: int = ROWS, width: int = WIDTH) -> Twin:
    options = {"edge_weights": weighted} if isinstance(aggr, str) else {}
    kind = "graph_conv" if isinstance(aggr, str) else "sage_conv"
    return twin_of(conv(kind, width, 4, aggr=aggr, **options), rows)


def same_bits(got: np.ndarray, want: np.ndarray) -> bool:
    """Whether two arrays agree in every bit but the sign and payload of NaN."""
    nan = np.isnan(got) & np.isnan(want)
    return bool((nan | (got.view(np.uint32) == want.view(np.uint32))).all())


ENDS = st.tuples(st.integers(0, ROWS - 1), st.integers(0, ROWS - 1))
EDGES = st.dictionaries(ENDS, st.sampled_from([1.0, 1.0, 2.0, 0.0, -1.0]), max_size=18)
VALUES = st.dictionaries(
    st.integers(0, ROWS - 1),
    st.lists(
        st.sampled_from([0.0, 0.0, -0.0, 1.0, -1.0, 2.5, np.nan, np.inf, -np.inf]), min_size=WIDTH, max_size=WIDTH
    ),
    max_size=3,
)


@settings(max_examples=240, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    aggr=st.sampled_from(["max", "min"]),
    weighted=st.booleans(),
    width=st.sampled_from([WIDTH, 16, 35]),
    epochs=st.lists(st.tuples(EDGES, VALUES), min_size=1, max_size=8),
)
def test_extrema_have_the_bits_of_a_recomputation(aggr: str, weighted: bool, width: int, epochs: list[Any]) -> None:
    kept = twin(aggr, weighted=weighted, width=width)
    for edges, few in epochs:
        values = {v: np.resize([*row, *row[::-1]], width).tolist() for v, row in few.items()}
        before, had = kept.read(), {v for _, v in kept.edges}
        touched = kept.apply(edges, values)
        assert same_bits(kept.read(), kept.want())
        changed = [v for v in range(ROWS) if not same_bits(kept.read()[v], before[v])]
        assert set(changed) <= set(touched.tolist()), "what has changed is said"
        assert len(set(touched.tolist())) == touched.size
        has = {v for _, v in kept.edges}
        infinite = set(np.flatnonzero(~np.isfinite(kept.want()).all(axis=1)).tolist())
        assert set(touched.tolist()) <= set(changed) | (had ^ has) | infinite, "and nothing else"


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    aggr=st.sampled_from([["mean", "max", "min"], ["max", "sum"], ["min"], ["sum", "sum"]]),
    epochs=st.lists(st.tuples(EDGES, VALUES), min_size=1, max_size=8),
)
def test_several_beside_each_other_are_what_each_is_alone(aggr: list[str], epochs: list[Any]) -> None:
    kept = twin(aggr)
    for edges, values in epochs:
        finite = {v: np.nan_to_num(row, nan=3.0, posinf=7.0, neginf=-7.0).tolist() for v, row in values.items()}
        kept.apply(edges, finite)
        np.testing.assert_array_equal(kept.read(), kept.want())


def star(leaves: Iterable[int]) -> dict[Edge, float]:
    """An edge from each of these to vertex 0."""
    return {(u, 0): 1.0 for u in leaves}


def folds_of(kept: Twin) -> ExtremaFold:
    fold = kept.store.fold
    assert isinstance(fold, ExtremaFold)
    return fold


def test_a_deleted_neighbour_that_holds_nothing_costs_no_reading() -> None:
    kept = twin("max")
    kept.apply(star([1, 2, 3, 4]), {u: [float(u)] * WIDTH for u in range(ROWS)})
    counts = folds_of(kept).counts
    assert kept.apply(star([2, 3, 4]), {}).size == 0
    assert counts[extrema.REREAD] == counts[extrema.EXPOSED] == 0
    assert kept.apply(star([2, 3]), {}).tolist() == [0], "its three channels are exposed, and read from two in-edges"
    assert (counts[extrema.EXPOSED], counts[extrema.EXPOSED_ROWS], counts[extrema.REREAD]) == (3, 1, 2)


def test_ties_are_counted_and_read_anew_only_by_the_last_one_to_go() -> None:
    kept = twin("min")
    kept.apply(star([1, 2, 3, 4]), {u: [0.0, 0.0, 5.0] if u < 4 else [7.0] * WIDTH for u in range(1, ROWS)})
    counts = folds_of(kept).counts
    assert kept.apply(star([2, 3, 4]), {}).size == kept.apply(star([3, 4]), {}).size == 0
    assert counts[extrema.REREAD] == 0
    assert kept.apply(star([4]), {}).tolist() == [0]
    assert counts[extrema.REREAD] == 1
    assert same_bits(kept.read(), kept.want())


def test_a_better_message_in_the_same_epoch_spares_the_reading() -> None:
    kept = twin("max")
    kept.apply(star([1, 2]), {1: [3.0] * WIDTH, 2: [1.0] * WIDTH, 4: [3.0, 4.0, 5.0]})
    assert kept.apply(star([2, 4]), {}).tolist() == [0]
    assert folds_of(kept).counts[extrema.REREAD] == 0, "covered: as good or better than what went"
    assert kept.read()[0].tolist() == [3.0, 4.0, 5.0]


def test_more_messages_hold_an_extremum_than_can_be_counted() -> None:
    many = 66_000
    kept = twin("max", rows=many + 1)
    everyone = star(range(1, many + 1))
    kept.apply(everyone, {1: [-1.0] * WIDTH})
    fold = folds_of(kept)
    assert fold.holders.data[0].tolist() == [65_535] * WIDTH
    few = star(range(many - 300, many + 1))
    assert kept.apply(few, {}).size == 0, "the maximum is still held, though the count has run out"
    assert fold.counts[extrema.EXPOSED_ROWS] == 1
    assert fold.holders.data[0].tolist() == [301] * WIDTH
    assert same_bits(kept.read(), kept.want())


def test_worn_sums_beside_extrema_are_summed_afresh() -> None:
    kept = twin(["sum", "max"])
    kept.apply(star([1, 2]), {1: [1e30, 1.0, 1.0], 2: [1.0, 1.0, 1.0]})
    kept.apply(star([2]), {})
    assert kept.read()[0].tolist() == [1.0] * 6
    assert isinstance(kept.store.fold, ProductFold)
    sums, _ = kept.store.fold.folds
    assert isinstance(sums, SumFold)
    assert sums._counter[1] == 1


def test_an_edge_that_is_not_there_ends_the_job() -> None:
    kept = twin("max")
    kept.edges = star([3])  # which the store has never heard of
    with pytest.raises(LostUpdateError, match="storage 1 task 0: epoch 1 changes an edge that is not here"):
        kept.apply({}, {})
    kept = twin("max")
    kept.edges = star([3])
    with pytest.raises(LostUpdateError, match="epoch 1 changes an edge"):
        kept.apply({(3, 0): 2.0}, {})


def test_a_slot_that_is_used_again_holds_nothing() -> None:
    kept = twin("max")
    kept.apply(star([1]), {1: [5.0] * WIDTH})
    kept.apply({}, {})
    slots = np.arange(ROWS, dtype=np.int32)
    kept.store.clear(slots, slots)
    for table in kept.store.tables:
        np.testing.assert_array_equal(table.data[slots], np.full_like(table.data[slots], table.fill))


def test_the_synopsis_of_several_names() -> None:
    assert synopsis_of("max", weighted=True).name == "max of weighted messages"
    several = synopsis_of(("mean", "max"), weighted=False)
    assert (several.name, several.algebra, several.width(8)) == ("mean, max", "invertible + monotonic", 16)
