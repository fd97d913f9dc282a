"""UPDATE in one pass over the tables is UPDATE by the layer followed by `store`, bit by bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.gnn.plan import Context, LayerPlan, compile_plan
from freshet.operators.aggregates.finishing import Prints
from freshet.operators.aggregates.sums.store import finish
from freshet.operators.graph import row_kernels
from freshet.operators.graph.row_prints import PRINT_WORDS, print_keys
from freshet.state.table import TableSet
from tests.support.graphs.models import conv, make_model
from tests.support.graphs.prints import plain_prints

WIDTH, ROWS = 5, 40
RELU = {"type": "relu"}
STACKS = {
    "sum": [conv("graph_conv", 7, WIDTH, aggr="sum")],
    "sum, relu": [conv("graph_conv", 7, WIDTH, aggr="sum"), RELU],
    "mean, relu": [conv("graph_conv", 7, WIDTH, aggr="mean"), RELU],
    "mean, no bias": [conv("sage_conv", 7, WIDTH, aggr="mean", bias=False)],
}
OTHERS = {
    "normalised": [conv("sage_conv", 7, WIDTH, aggr="mean", normalize=True)],
    "no self input": [conv("sage_conv", 7, WIDTH, aggr="mean", root_weight=False)],
    "another activation": [conv("graph_conv", 7, WIDTH, aggr="sum"), {"type": "tanh"}],
    "aggregated first": [conv("graph_conv", 3, WIDTH, aggr="sum")],
}
SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3e38, -1.5], np.float32)


def plan_of(stack: list) -> LayerPlan:
    return compile_plan(make_model(1, stack)).layers[0]


@pytest.mark.parametrize("name", STACKS)
@given(seed=st.integers(0, 2**32 - 1), chosen=st.integers(0, ROWS), groups=st.integers(1, 3))
def test_finish_is_update_and_store(name: str, seed: int, chosen: int, groups: int) -> None:
    layer, rng = plan_of(STACKS[name]), np.random.default_rng(seed)
    assert layer.epilogue is not None

    def values() -> np.ndarray:
        plain = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
        return np.where(rng.random(plain.shape) < 0.2, rng.choice(SPECIAL, plain.shape), plain)

    s, own, counts = values(), values(), rng.integers(0, 3, ROWS).astype(np.int32)
    slots, forced = rng.permutation(ROWS)[:chosen].astype(np.int32), rng.random(chosen) < 0.3
    context = Context(counts[slots], np.zeros(chosen), np.zeros(chosen, np.float32))
    new = layer.update(s[slots], own[slots], context)
    rows, stored = TableSet().add("x", "f4", WIDTH), TableSet().add("print", "u8", PRINT_WORDS)
    before, print_key = values(), print_keys(seed, WIDTH)
    before[slots[::2]] = new[::2]  # every other row stays as it is
    rows.reserve(ROWS)
    rows.data[:ROWS] = before
    stored.reserve(ROWS)
    stored.data[:ROWS] = plain_prints(print_key, before)
    changed = forced.copy()
    row_kernels.store(rows.view, rows.data.view(np.int32), slots, new.view(np.int32), changed)
    out_slots, out = np.empty(chosen, np.int32), np.empty((chosen, WIDTH), np.float32)
    bias, mean, relu = layer.epilogue
    group, at, keys = np.empty(chosen, np.int16), np.zeros(groups, np.int64), rng.integers(0, 2**40, ROWS)
    row_kernels.deal(slots, keys, group, at)
    begins = at.copy()
    finish(s, own, counts, bias, mean, relu, slots, forced, group, at, Prints(stored.view, print_key), out_slots, out)
    for k in range(groups):
        mine, some = changed & (keys[slots] % groups == k), slice(begins[k], at[k])
        assert out_slots[some].tolist() == slots[mine].tolist()
        assert out[some].tobytes() == new[mine].tobytes()
    assert stored.data[:ROWS].tolist() == plain_prints(print_key, rows.data[:ROWS])


@pytest.mark.parametrize("name", OTHERS)
def test_an_update_that_is_more_has_no_epilogue(name: str) -> None:
    assert plan_of(OTHERS[name]).epilogue is None
