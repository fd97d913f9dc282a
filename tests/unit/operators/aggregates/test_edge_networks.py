"""Synopses of a network's messages, held bit by bit against those of the same messages made at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.operators.aggregates import edge_networks
from freshet.operators.aggregates.edge_networks import NetworkFold
from tests.support.graphs.models import conv, linear
from tests.support.stages.twin import Edge, Twin, twin_of

ROWS, WIDTH = 6, 3
WIDE = [linear(4, 5), {"type": "elu"}, linear(5, WIDTH)]  # 5 is more than twice the 2 channels that come in


def twin(aggr: Any, *, rows: int = ROWS, wide: bool = False) -> Twin:
    several = 1 if isinstance(aggr, str) else len(aggr)
    width = 2 if wide else WIDTH
    nn = WIDE if wide else [linear(2 * width, WIDTH), {"type": "elu"}, linear(WIDTH, WIDTH)]
    return twin_of(conv("edge_conv", width, WIDTH * several, aggr=aggr, nn=nn), rows)


def fold_of(kept: Twin) -> NetworkFold:
    fold = kept.store.fold
    assert isinstance(fold, NetworkFold)
    return fold


def values(seed: int, kept: Twin, vertices: Any) -> dict[int, list[float]]:
    rng = np.random.default_rng(seed)
    return {v: rng.standard_normal(kept.layer.message_width).tolist() for v in vertices}


def star(leaves: Any) -> dict[Edge, float]:
    return {(u, 0): 1.0 for u in leaves}


def same_bits(got: np.ndarray, want: np.ndarray) -> bool:
    nan = np.isnan(got) & np.isnan(want)
    return bool((nan | (got.view(np.uint32) == want.view(np.uint32))).all())


ENDS = st.tuples(st.integers(0, ROWS - 1), st.integers(0, ROWS - 1))
EPOCHS = st.lists(
    st.tuples(st.dictionaries(ENDS, st.just(1.0), max_size=14), st.sets(st.integers(0, ROWS - 1), max_size=3)),
    min_size=1,
    max_size=8,
)
SPECIAL = st.sampled_from([None, None, np.nan, np.inf, -np.inf, 0.0])


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(aggr=st.sampled_from(["max", "min"]), wide=st.booleans(), epochs=EPOCHS, seed=st.integers(0, 9), special=SPECIAL)
def test_extrema_have_the_bits_of_a_recomputation(
    aggr: str, wide: bool, epochs: list[Any], seed: int, special: float | None
) -> None:
    kept = twin(aggr, wide=wide)
    for number, (edges, moved) in enumerate(epochs):
        before = kept.read()
        rows = values(seed + number, kept, sorted(moved))
        if special is not None and rows and number % 2:
            rows[min(rows)][0] = special
        touched = kept.apply(edges, rows)
        assert same_bits(kept.read(), kept.want())
        changed = {v for v in range(ROWS) if not same_bits(kept.read()[v], before[v])}
        assert changed <= set(touched.tolist()), "what has changed is said"
        assert len(set(touched.tolist())) == touched.size


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    aggr=st.sampled_from(["sum", "std", ["mean", "max", "var"], ["min", "sum"]]),
    epochs=EPOCHS,
    seed=st.integers(0, 9),
    wide=st.booleans(),
)
def test_sums_and_variances_are_those_of_a_fresh_pass(aggr: Any, epochs: list[Any], seed: int, wide: bool) -> None:
    kept = twin(aggr, wide=wide)
    for number, (edges, moved) in enumerate(epochs):
        touched = kept.apply(edges, values(seed + number, kept, sorted(moved)))
        np.testing.assert_allclose(kept.read(), kept.want(), rtol=1e-6, atol=1e-6)
        assert len(set(touched.tolist())) == touched.size


def test_a_changed_target_has_its_row_made_anew_and_no_other() -> None:
    kept = twin("max")
    kept.apply(star([1, 2, 3]) | {(1, 4): 1.0}, values(1, kept, range(ROWS)))
    counts = fold_of(kept).counts
    counts[:] = 0
    assert kept.apply(kept.edges, values(2, kept, [0])).tolist() == [0]
    assert counts.tolist() == [0, 1, 3]
    assert same_bits(kept.read(), kept.want())
    kept.apply(kept.edges, values(3, kept, [5]))
    assert counts.tolist() == [0, 1, 3], "nobody reads it"
    kept.apply(kept.edges, values(4, kept, [0, 1]))
    assert counts[edge_networks.MADE] == 2, "of the source's messages, those to vertex 4"
    assert same_bits(kept.read(), kept.want())


def test_a_source_whose_target_term_stays_costs_its_own_messages() -> None:
    kept = twin("max")
    kept.apply(star([1, 2, 3]), values(1, kept, range(ROWS)))
    counts = fold_of(kept).counts
    counts[:] = 0
    row = kept.values[2].copy()
    row[:WIDTH] = 1e3  # the terms as a source
    kept.apply(kept.edges, {2: row.tolist()})
    assert counts[edge_networks.MADE] == 2, "the old message and the new one"
    assert same_bits(kept.read(), kept.want())


def test_the_last_holder_that_goes_has_the_row_made_anew() -> None:
    kept = twin("max")
    kept.apply(star([1, 2, 3, 4]), values(1, kept, range(ROWS)))
    holders = {u for u in range(1, 5) if np.array_equal(without(kept, u), kept.read()[0])}
    counts = fold_of(kept).counts
    counts[:] = 0
    for u in sorted(holders):
        assert kept.apply({edge: 1.0 for edge in kept.edges if edge != (u, 0)}, {}).size == 0
    assert counts[edge_networks.AFRESH] == 0, "what holds nothing is compared, no more"
    kept.apply(dict(list(kept.edges.items())[1:]), {})
    assert counts[edge_networks.AFRESH] == 1
    assert same_bits(kept.read(), kept.want())


def without(kept: Twin, u: int) -> np.ndarray:
    """The extremum of vertex 0 without one of its sources."""
    synopsis = kept.layer.synopsis
    src = np.array([s for s, _ in kept.edges if s != u])
    return synopsis.whole(kept.values[src], np.zeros(src.size, np.int64), kept.values)[0]


@pytest.mark.parametrize("aggr", ["max", "sum", ["mean", "std"]])
def test_a_row_of_more_messages_than_are_made_at_a_time(aggr: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_networks, "_BLOCK", 64)
    monkeypatch.setattr(edge_networks, "_AT_ONCE", 256)
    kept = twin(aggr, rows=600)
    many = star(range(1, 500)) | {(u, v): 1.0 for u in range(20) for v in range(500, 600)}
    kept.apply(many, values(1, kept, range(600)))
    kept.apply(many, values(2, kept, [0, *range(490, 600)]))
    assert fold_of(kept).counts[edge_networks.AFRESH] >= 101
    if aggr == "max":
        assert same_bits(kept.read(), kept.want())
    np.testing.assert_allclose(kept.read(), kept.want(), rtol=1e-5, atol=1e-5)


def test_the_bits_of_a_message_do_not_depend_on_its_block() -> None:
    kept = twin("max")
    assert isinstance(kept.layer.synopsis, NetworkSynopsis)
    network, rng = kept.layer.synopsis.network, np.random.default_rng(0)
    ends = rng.standard_normal((2, 200, kept.layer.message_width)).astype(np.float32)
    together = network.of(*ends)
    order = rng.permutation(200)
    np.testing.assert_array_equal(network.of(*ends[:, order]), together[order])
    np.testing.assert_array_equal(network.of(*ends[:, :1]), together[:1])


def test_what_comes_and_goes_leaves_nothing_behind() -> None:
    kept = twin(["sum", "max", "var"])
    kept.apply(star([1, 2]), values(1, kept, range(ROWS)))
    before = kept.read()
    far = [1e30] * kept.layer.message_width
    kept.apply(star([1, 2, 3, 4]), {3: far, 4: [float("nan")] * kept.layer.message_width})
    assert np.isnan(kept.read()[0]).any()
    kept.apply(star([1, 2]), {})
    np.testing.assert_allclose(kept.read(), before, rtol=1e-6)
    kept.apply({}, {})
    assert not kept.read().any(), "synopses of nothing are exactly 0"
