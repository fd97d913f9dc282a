"""Softmax sums by deltas, held against a float64 pass over the same values and scores.

Two float32 passes don't agree at scores of 1e4, where one unit in the last place is 1e-3; a float64 pass over the rows
that the job itself has does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.gnn.plan import Context
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.operators.aggregates.attention import kernels
from freshet.operators.aggregates.attention.fold import AttentionFold
from freshet.operators.aggregates.attention.sides import FLIPS_AT_ONCE
from freshet.operators.aggregates.exact_sums import LAST_SERIAL, LOSSY
from freshet.operators.graph import row_kernels
from freshet.state.table import TableSet
from tests.support.graphs.models import Spec, conv
from tests.support.stages.twin import Edge, Twin, twin_of

ROWS = 6
ATTRIBUTES: Spec = {"edge_channels": 3}
KINDS: dict[str, Spec] = {
    "gat": conv("gat_conv", 4, 4, heads=2, add_self_loops=False, negative_slope=0.3),
    "gatv2": conv("gatv2_conv", 4, 4, heads=2),
    "transformer": conv("transformer_conv", 4, 4, heads=2),
    "super_gat": conv("super_gat_conv", 4, 4, heads=2),
    "super_gat_dots": conv("super_gat_conv", 4, 4, heads=2, attention_type="SD", add_self_loops=False),
    "agnn": conv("agnn_conv", 3, 3),
    "gat_attributes": conv("gat_conv", 4, 4, heads=2, add_self_loops=False, **ATTRIBUTES),
}

RELU = {"type": "relu"}
ENDS_OF_LAYERS: dict[str, list[Spec]] = {
    "gat": [conv("gat_conv", 4, 4, heads=2)],
    "gat, no loops": [KINDS["gat"]],
    "gat, mean, relu": [conv("gat_conv", 4, 3, heads=2, concat=False), RELU],
    "gat, residual": [conv("gat_conv", 4, 4, heads=2, residual=True), RELU],
    "gat, loops of means": [conv("gat_conv", 4, 4, heads=2, **ATTRIBUTES)],
    "gat, loops of a number": [conv("gat_conv", 4, 3, heads=2, concat=False, fill_value=0.5, **ATTRIBUTES), RELU],
    "gat, attributes, no loops": [KINDS["gat_attributes"]],
    "gatv2, residual, no bias": [conv("gatv2_conv", 4, 4, heads=2, residual=True, bias=False)],
    "super_gat": [conv("super_gat_conv", 4, 4, heads=2), RELU],
    "transformer": [conv("transformer_conv", 4, 4, heads=2), RELU],
    "agnn": [conv("agnn_conv", 3, 3)],
}


def fold_of(kept: Twin) -> AttentionFold:
    fold = kept.store.fold
    assert isinstance(fold, AttentionFold)
    return fold


def assert_same(kept: Twin, tolerance: float = 2e-6) -> None:
    """N / D of every vertex is what a float64 pass gives, up to the rounding of its terms."""
    synopsis, count = kept.layer.synopsis, np.zeros(kept.rows, np.int32)
    with np.errstate(all="ignore"):
        want, got = (synopsis.read(state, count) for state in (kept.want(), kept.read()))
    for vertex in range(kept.rows):
        skips = kept.layer.edge.skip_loops
        values = [kept.values[u] for (u, v) in kept.edges if v == vertex and not (skips and u == v)]
        scale = np.abs(values).max(initial=0.0)
        np.testing.assert_allclose(got[vertex], want[vertex], rtol=0, atol=tolerance * scale, err_msg=str(vertex))


def rows(kept: Twin, rng: np.random.Generator, vertices: list[int], scale: float) -> dict[int, list[float]]:
    """New rows, of which scores are about as large as `scale`."""
    return {v: (rng.standard_normal(kept.layer.message_width) * scale).tolist() for v in vertices}


ENDS = st.tuples(st.integers(0, ROWS - 1), st.integers(0, ROWS - 1))
EPOCHS = st.lists(
    st.tuples(st.dictionaries(ENDS, st.just(1.0), max_size=14), st.sets(st.integers(0, ROWS - 1), max_size=3)),
    min_size=1,
    max_size=10,
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(sorted(KINDS)), scale=st.sampled_from([0.5, 5.0, 100.0]), epochs=EPOCHS, seed=st.integers(0, 9)
)
def test_sums_by_deltas_are_those_of_a_fresh_pass(kind: str, scale: float, epochs: list[Any], seed: int) -> None:
    kept, rng = twin_of(KINDS[kind], ROWS), np.random.default_rng(seed)
    for edges, moved in epochs:
        if kept.layer.edge.skip_loops:
            edges = {(u, v): w for (u, v), w in edges.items() if u != v}
        before = kept.read()
        touched = kept.apply(edges, rows(kept, rng, sorted(moved), scale))
        assert_same(kept)
        changed = {v for v in range(ROWS) if not np.array_equal(kept.read()[v], before[v])}
        assert changed <= set(touched.tolist()), "what has changed is said"


def star(leaves: list[int]) -> dict[Edge, float]:
    return {(u, 0): 1.0 for u in leaves}


def gat_rows(kept: Twin, source: dict[int, float], target: float = 0.0) -> dict[int, list[float]]:
    """Rows of which the source's terms are these in both heads, with values that tell the vertices apart."""
    found = {}
    for vertex, term in source.items():
        values = np.random.default_rng(vertex).standard_normal(4)
        found[vertex] = [*values.tolist(), term, term, target, target]
    return found


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_the_neighbour_that_held_nearly_all_goes_and_loses_nothing(scale: float) -> None:
    kept = twin_of(KINDS["gat"], ROWS)
    terms = {1: scale, 2: -scale, 3: -scale - 1.0, 4: -scale + 0.5, 0: 0.0}
    kept.apply(star([1, 2, 3, 4]), gat_rows(kept, terms))
    assert_same(kept)
    kept.apply(star([2, 3, 4]), {})
    assert_same(kept)
    kept.apply(star([1, 2, 3, 4]), {})
    assert_same(kept)


@pytest.mark.parametrize("far", [50.0, 75.0, 110.0, 400.0])
def test_what_vanished_beside_a_neighbour_is_there_again_when_it_goes(far: float) -> None:
    """On one side of the LeakyReLU, where all have one shift: e^-110 is 0 in float32."""
    kept = twin_of(KINDS["gat"], ROWS)
    kept.apply(star([1]), gat_rows(kept, {0: 0.0, 1: 500.0, 2: 500.0 - far, 3: 499.0 - far}))
    kept.apply(star([1, 2, 3]), {})
    assert_same(kept)
    kept.apply(star([2, 3]), {})
    assert_same(kept)


def test_a_huge_value_that_goes_leaves_nothing_behind() -> None:
    kept = twin_of(KINDS["gat"], ROWS)
    values = gat_rows(kept, dict.fromkeys(range(4), 0.25))
    kept.apply(star([1, 2, 3]), values | {3: [1e30, -1e30, 1e30, 1.0, *values[3][4:]]})
    kept.apply(star([1, 2]), {})
    assert_same(kept)
    kept.apply({}, {})
    assert not kept.read().any(), "sums of nothing are exactly 0"


def test_a_target_that_changes_moves_what_changes_sides_and_sums_nothing_afresh() -> None:
    many = 1000
    kept, rng = twin_of(KINDS["gat"], many + 1), np.random.default_rng(1)
    terms = {v: float(rng.standard_normal()) for v in range(many + 1)}
    kept.apply(star(list(range(1, many + 1))), gat_rows(kept, terms))
    counts = fold_of(kept).counts
    counts[:] = 0
    for target in (0.01, 0.02, -0.01):
        assert kept.apply(kept.edges, gat_rows(kept, {0: 0.0}, target)).tolist() == [0]
        assert_same(kept)
    assert counts[kernels.AFRESH] == 0
    assert counts[kernels.SCANNED] == 3 * many
    assert 0 < counts[kernels.FLIPPED] < 0.05 * 3 * many
    assert counts[kernels.DELTAS] == 0


def test_other_scores_sum_the_changed_target_afresh_and_no_other() -> None:
    for kind in ("gatv2", "transformer", "super_gat", "super_gat_dots"):
        kept, rng = twin_of(KINDS[kind], ROWS), np.random.default_rng(2)
        kept.apply(star([1, 2, 3]) | {(1, 4): 1.0}, rows(kept, rng, list(range(ROWS)), 1.0))
        counts = fold_of(kept).counts
        counts[:] = 0
        kept.apply(kept.edges, rows(kept, rng, [0], 1.0))
        assert (counts[kernels.AFRESH], counts[kernels.REREAD]) == (1, 3)
        kept.apply(kept.edges, rows(kept, rng, [5], 1.0))
        assert counts[kernels.AFRESH] == 1, "nobody's target"
        assert_same(kept)


def test_scores_that_grow_for_ever_stay_in_range() -> None:
    kept = twin_of(KINDS["gat"], ROWS)
    kept.apply(star([1, 2]), gat_rows(kept, dict.fromkeys(range(ROWS), 0.0)))
    for step in range(60):
        kept.apply(kept.edges, gat_rows(kept, {1 + step % 2: 5.0 * step}))
        assert_same(kept)
    assert 5 <= fold_of(kept).counts[kernels.AFRESH] <= 25, "now and then the shift follows"


def test_what_is_not_finite_is_so_while_it_is_there() -> None:
    kept = twin_of(KINDS["gat"], ROWS)
    terms = gat_rows(kept, dict.fromkeys(range(4), 0.5))
    kept.apply(star([1, 2, 3]), terms | {3: [np.inf, 0.0, np.nan, 1.0, np.nan, 0.5, 0.0, 0.0]})
    assert np.isnan(kept.read()[0]).any()
    kept.apply(star([1, 2]), {})
    assert_same(kept)


def test_more_messages_than_are_listed_at_once_change_sides_together() -> None:
    many = 3 * FLIPS_AT_ONCE // 2
    kept, rng = twin_of(KINDS["gat"], many + 1), np.random.default_rng(4)
    terms = {v: float(rng.uniform(-1, 1)) for v in range(many + 1)}
    kept.apply(star(list(range(1, many + 1))), gat_rows(kept, terms, target=2.0))
    counts = fold_of(kept).counts
    counts[:] = 0
    kept.apply(kept.edges, gat_rows(kept, {0: 0.0}, target=-2.0))
    assert_same(kept)
    assert (counts[kernels.FLIPPED], counts[kernels.AFRESH]) == (2 * many, 0)


def test_sources_and_their_target_change_together() -> None:
    """A kept message is replaced on the side where it is, after it has changed sides with its target."""
    kept, rng = twin_of(KINDS["gat"], 40), np.random.default_rng(6)
    everybody = star(list(range(1, 40)))
    kept.apply(everybody, gat_rows(kept, {v: float(rng.standard_normal()) for v in range(40)}))
    for _ in range(5):
        moved = [0, *rng.choice(np.arange(1, 40), 20, replace=False).tolist()]
        target = float(rng.standard_normal())
        kept.apply(everybody, gat_rows(kept, {v: float(rng.standard_normal()) for v in moved}, target))
        assert_same(kept)
    kept.apply({}, {})
    assert not kept.read().any()


def test_a_target_that_changes_moves_what_changes_sides_by_the_terms_of_edges() -> None:
    """Also where attributes, sources and the target change in one epoch; nothing is summed again."""
    many = 300
    kept, rng = twin_of(KINDS["gat_attributes"], many + 1), np.random.default_rng(7)

    def edges() -> dict[Edge, float]:
        return {edge: float(rng.standard_normal()) for edge in star(list(range(1, many + 1)))}

    kept.apply(edges(), gat_rows(kept, {v: float(rng.standard_normal()) for v in range(many + 1)}))
    counts = fold_of(kept).counts
    counts[:] = 0
    for target in (0.3, -0.2):
        kept.apply(kept.edges, gat_rows(kept, {0: 0.0}, target))
        assert_same(kept)
    assert (counts[kernels.SCANNED], counts[kernels.DELTAS]) == (2 * many, 0)
    assert 0 < counts[kernels.FLIPPED] < 0.5 * 2 * many
    for target in (0.1, 1.0, -1.0):
        other = kept.edges | {edge: float(rng.standard_normal()) for edge in list(kept.edges)[::3]}
        moved = rng.choice(np.arange(1, many + 1), 50, replace=False).tolist()
        kept.apply(other, gat_rows(kept, {v: float(rng.standard_normal()) for v in [0, *moved]}, target))
        assert_same(kept)
    assert counts[kernels.AFRESH] == 0
    kept.apply({}, {})
    assert not kept.read().any()


@pytest.mark.parametrize("replaced", [False, True])
def test_the_channel_that_lost_something_is_known(replaced: bool) -> None:
    """Whether a message comes or is replaced; any other channel would have the row summed afresh."""
    heads, channels, channel = 2, 5, 7
    kept = twin_of(conv("gat_conv", 4, heads * channels, heads=heads, add_self_loops=False), ROWS)
    row = np.ones(kept.layer.message_width, np.float32)
    small, large = row.copy(), row.copy()
    large[channel], small[channel] = 2.0**40, 2.0**-20 * (1 + 2.0**-23)
    kept.apply(star([1, 2]), {1: large.tolist(), 2: row.tolist()})
    note = fold_of(kept).note.data
    assert note[0, LOSSY] == 0
    if replaced:
        kept.apply(star([1, 2]), {2: small.tolist()})
    else:
        kept.apply(star([1, 2]), {3: small.tolist()})
        kept.apply(star([1, 2, 3]), {})
    head = channel // channels
    place = (heads + head) * (1 + channels) + 1 + channel % channels  # of the side where scores are above 0
    assert note[0, LOSSY].view(np.uint32) == 1 << place
    assert fold_of(kept).counts[kernels.AFRESH] == 0


def test_a_huge_value_that_is_replaced_leaves_nothing_behind() -> None:
    kept = twin_of(KINDS["gat"], ROWS)
    values = gat_rows(kept, dict.fromkeys(range(4), 0.25))
    kept.apply(star([1, 2, 3]), values)
    kept.apply(kept.edges, {3: [1e30, -1e30, 1e30, 1.0, *values[3][4:]]})
    kept.apply(kept.edges, {3: values[3]})
    assert_same(kept)
    assert fold_of(kept).counts[kernels.AFRESH] > 0


def test_what_is_lost_is_there_again_at_the_end_of_the_same_epoch() -> None:
    """A row that had lost nothing before: one message, exact, is replaced by one that vanishes beside it."""
    kept = twin_of(KINDS["gat"], ROWS)
    values = gat_rows(kept, dict.fromkeys(range(4), 0.25))
    kept.apply(star([1]), values | {1: [2.0**60] * 4 + values[1][4:]})
    assert fold_of(kept).note.data[0, LOSSY] == 0
    counts = fold_of(kept).counts
    counts[:] = 0
    kept.apply(kept.edges, {1: [0.1] * 4 + values[1][4:]})
    assert_same(kept)
    assert counts[kernels.AFRESH] == 1


def test_a_row_that_needs_nothing_is_not_looked_at_when_the_epoch_ends() -> None:
    kept = twin_of(KINDS["gat"], ROWS)
    kept.apply(star([1, 2]), gat_rows(kept, dict.fromkeys(range(4), 0.25)))
    kept.apply(star([1, 2, 3]), gat_rows(kept, {1: 0.5}))
    note = fold_of(kept).note.data
    assert note[0, kernels.SUSPECT] != note[0, LAST_SERIAL]
    kept.apply({}, {})
    assert note[0, kernels.SUSPECT] == note[0, LAST_SERIAL], "sums of nothing are cleared"
    assert not kept.read().any()


@pytest.mark.parametrize("name", sorted(ENDS_OF_LAYERS))
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.5, 5.0, 1e4]))
def test_update_in_one_pass_is_update_and_store(name: str, seed: int, scale: float) -> None:
    conv_of, *behind = ENDS_OF_LAYERS[name]
    kept, rng = twin_of(conv_of, ROWS, *behind), np.random.default_rng(seed)
    layer, places = kept.layer, [(u, v) for u in range(ROWS) for v in range(ROWS - 1)]
    assert isinstance(layer.epilogue, AttentionEpilogue)
    edges = {places[i]: 1.0 for i in rng.choice(len(places), 9, replace=False)}
    kept.apply(edges, rows(kept, rng, list(range(ROWS)), scale))
    own = TableSet().add("own", "f4", max(1, layer.self_width))
    own.reserve(ROWS)
    own.data[:ROWS] = rng.standard_normal((ROWS, max(1, layer.self_width)))
    table = kept.store.z if layer.self_is_message or not layer.self_width else own
    slots, forced = rng.permutation(ROWS)[:5].astype(np.int32), rng.random(5) < 0.3
    new = layer.update(kept.store.read(slots), table.data[slots], Context(slots[:0], np.empty(0), np.empty(0)))
    tables = [TableSet().add("x", "f4", layer.out_width) for _ in range(2)]
    for one in tables:
        one.reserve(ROWS)
        one.data[slots[::2]] = new[::2]  # every other row stays as it is
    changed = forced.copy()
    row_kernels.store(tables[0].view, tables[0].data.view(np.int32), slots, new.view(np.int32), changed)
    out_slots, out = np.empty(5, np.int32), np.empty((5, layer.out_width), np.float32)
    finish = kept.store.finisher(layer.epilogue, table, kept.store.z)
    group, at = rng.integers(0, 2, 5).astype(np.int16), np.zeros(2, np.int64)
    begins = np.array([0, np.count_nonzero(group == 0)])
    at[:] = begins
    finish(slots, forced, group, at, tables[1].view, out_slots, out)
    for k in range(2):
        mine, some = changed & (group == k), slice(begins[k], at[k])
        assert out_slots[some].tolist() == slots[mine].tolist()
        assert out[some].tobytes() == new[mine].tobytes()
    assert tables[1].data.tobytes() == tables[0].data.tobytes()


def test_an_update_that_is_more_has_no_epilogue() -> None:
    mixed = conv("transformer_conv", 4, 4, heads=2, beta=True)
    for made in (twin_of(mixed, ROWS), twin_of(KINDS["gat"], ROWS, {"type": "elu"})):
        assert made.layer.epilogue is None
