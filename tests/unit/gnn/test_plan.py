"""The plan's send and update against the oracle, for every layer and option."""

from functools import partial

import numpy as np
import pytest

from freshet.gnn.model import Model
from freshet.gnn.oracles import whole_graph
from freshet.gnn.plan import Context, LayerPlan, compile_plan
from freshet.schema import Features, Graph
from tests.support import oracle
from tests.support.graphs.models import (
    all_small_models,
    conv,
    exact_small_models,
    is_exact,
    linear,
    make_model,
    random_model,
)
from tests.support.graphs.random_graphs import random_graph, weighted

MODELS = all_small_models()
EXACT = exact_small_models()


def both(model: Model, graph: Graph) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the rows behind each conv, of the plan and of the oracle; what the plan carries with them is left out."""
    got = whole_graph.forward(compile_plan(model), graph)
    assert got[-1].shape[1] == model.out_width
    pairs = zip(got, oracle.forward(model, graph), strict=True)
    return [(rows[:, : expected.shape[1]], expected) for rows, expected in pairs]


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * max(1.0, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_and_option_equals_the_oracle(name: str) -> None:
    model = MODELS[name]()
    for seed in range(3):
        for got, expected in both(model, random_graph(seed)):
            assert_close(got, expected)


@pytest.mark.parametrize("name", EXACT)
def test_integers_are_exact(name: str) -> None:
    model = EXACT[name]()
    for seed in range(3):
        for got, expected in both(model, random_graph(seed, integer=True, edges=120)):
            np.testing.assert_array_equal(got, expected)
            assert np.abs(expected).max() < 2**24


@pytest.mark.parametrize("seed", range(30))
def test_random_models_equal_the_oracle(seed: int) -> None:
    for got, expected in both(random_model(seed), random_graph(seed)):
        assert_close(got, expected)


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_without_edges(name: str) -> None:
    graph = random_graph(0)
    none = np.empty(0, np.int64)
    for got, expected in both(MODELS[name](), weighted(graph.x, none, none, np.empty(0, np.float32))):
        assert_close(got, expected)


@pytest.mark.parametrize("name", MODELS)
def test_no_rows_in_no_rows_out(name: str) -> None:
    plan = compile_plan(MODELS[name]())
    nobody = Context(np.empty(0, np.int32), np.empty(0, np.float64), np.empty(0, np.float32))
    for layer in plan.layers:
        sent = layer.send(np.empty((0, layer.in_width), np.float32), nobody)
        assert sent.shape == (0, layer.message_width + layer.self_width)
        own = np.empty((0, own_width(layer)), np.float32)
        agg = np.empty((0, layer.synopsis_width), np.float32)
        assert layer.update(agg, own, nobody).shape == (0, layer.out_width)


@pytest.mark.parametrize("name", MODELS)
def test_rows_have_bits_of_their_own_and_inputs_stay(name: str) -> None:
    plan = compile_plan(MODELS[name]())
    graph = random_graph(7, vertices=90, edges=500)
    ctx = whole_graph.contexts(graph)
    rng = np.random.default_rng(0)
    x = graph.x
    for layer in plan.layers:
        agg = rng.standard_normal((90, layer.synopsis_width)).astype(np.float32)
        own = rng.standard_normal((90, own_width(layer))).astype(np.float32)
        kept = x.copy(), agg.copy(), own.copy()
        sent, updated = layer.send(x, ctx), layer.update(agg, own, ctx)
        assert sent.flags.c_contiguous and updated.flags.c_contiguous
        for before, after in zip(kept, (x, agg, own), strict=True):
            np.testing.assert_array_equal(before, after)
        for pick in (np.array([0]), np.array([89]), rng.permutation(90), rng.permutation(90)[:33]):
            part = Context(*(column[pick] for column in ctx))
            np.testing.assert_array_equal(layer.send(x[pick], part).view(np.uint32), sent[pick].view(np.uint32))
            alone = layer.update(agg[pick], own[pick], part)
            np.testing.assert_array_equal(alone.view(np.uint32), updated[pick].view(np.uint32))
        x = updated


def own_width(layer: LayerPlan) -> int:
    return layer.message_width if layer.self_is_message else layer.self_width


@pytest.mark.parametrize("name", MODELS)
def test_flags_tell_the_truth(name: str) -> None:
    """What the job leaves out because a flag says so may not matter: change it and see that nothing changes."""
    plan = compile_plan(MODELS[name]())
    rng = np.random.default_rng(1)
    ctx = Context(
        rng.integers(1, 5, 20).astype(np.int32),
        rng.uniform(1, 5, 20),
        np.where(rng.random(20) < 0.5, np.nan, 1.5).astype(np.float32),
        rng.integers(1, 5, 20).astype(np.int32),
        rng.uniform(1, 5, 20),
    )
    other = Context(*(column + 1 for column in ctx))
    in_other = ctx._replace(out_count=other.out_count, out_degree=other.out_degree)
    for layer in plan.layers:
        x = rng.standard_normal((20, layer.in_width)).astype(np.float32)
        agg = rng.standard_normal((20, layer.synopsis_width)).astype(np.float32)
        own = rng.standard_normal((20, own_width(layer))).astype(np.float32)
        assert not (layer.self_is_message and layer.self_width)
        assert layer.reads_self == bool(own_width(layer))
        if layer.root_width:
            assert layer.self_is_message, "storages make roots of what their vertices send"
            root = layer.root(own)
            assert root.shape == (20, layer.root_width)
            apart, at_once = layer.update_from_root(agg, root, ctx), layer.update(agg, own, ctx)
            np.testing.assert_array_equal(apart.view(np.uint32), at_once.view(np.uint32))
            np.testing.assert_array_equal(root, layer.root(own), "it is left as it is")
        if not layer.reads_out_degrees:
            np.testing.assert_array_equal(layer.send(x, ctx), layer.send(x, in_other))
            np.testing.assert_array_equal(layer.update(agg, own, ctx), layer.update(agg, own, in_other))
        if not layer.source_scaled:
            np.testing.assert_array_equal(layer.send(x, ctx), layer.send(x, other))
        if not layer.reads_context:
            np.testing.assert_array_equal(layer.update(agg, own, ctx), layer.update(agg, own, other))


def test_widths_are_of_the_cheapest_order() -> None:
    plan = compile_plan(make_model(0, [conv("graph_conv", 128, 128), {"type": "relu"}, conv("graph_conv", 128, 40)]))
    first, second = plan.layers
    assert (first.in_width, first.message_width, first.self_width, first.out_width) == (128, 128, 128, 128)
    assert (second.in_width, second.message_width, second.self_width, second.out_width) == (128, 40, 40, 40)
    (wide,) = compile_plan(make_model(0, [conv("graph_conv", 5, 9)])).layers
    assert (wide.message_width, wide.self_width, wide.self_is_message) == (5, 0, True)


def test_dense_layers_fold_into_their_neighbours() -> None:
    layers = [
        linear(6, 4),
        conv("gcn_conv", 4, 3),
        linear(3, 8),
        {"type": "relu"},
        conv("sage_conv", 8, 2),
        linear(2, 7),
    ]
    plan = compile_plan(make_model(0, layers))
    assert [(layer.in_width, layer.out_width) for layer in plan.layers] == [(6, 8), (8, 7)]
    assert (plan.features, plan.out_width) == (Features(6), 7)


def test_gcn_of_negative_and_of_zero_degree_is_as_in_torch() -> None:
    model = make_model(0, [conv("gcn_conv", 3, 2, add_self_loops=False)])
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    src, dst = np.array([0, 1, 2, 3]), np.array([1, 0, 3, 2])
    weight = np.array([-1.0, 2.0, 0.0, 1.0], np.float32)  # degrees 2, -1, 1, 0
    (got,), (expected,) = (
        whole_graph.forward(compile_plan(model), weighted(x, src, dst, weight)),
        oracle.forward(model, weighted(x, src, dst, weight)),
    )
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert np.isnan(got[:2]).all() and np.isfinite(got[2:]).all()


def test_gcn_without_loops_keeps_infinities_of_the_vertex_itself_out() -> None:
    model = make_model(0, [conv("gcn_conv", 2, 2, add_self_loops=False)])
    x = np.array([[np.inf, 1], [1, 1]], np.float32)
    (got,) = whole_graph.forward(compile_plan(model), Graph.plain(x, np.array([1]), np.array([0])))
    assert np.isfinite(got).all()


def test_the_plan_carries_identity_types_and_head() -> None:
    make = partial(make_model, 3, [conv("graph_conv", 6, 4)], edge_types=["cites", "likes"], head=[linear(4, 3)])
    model = make()
    plan = compile_plan(model)
    assert plan.edge_types == ["cites", "likes"]
    assert plan.sha256 == compile_plan(make()).sha256 and len(plan.sha256) == 64
    rows = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    np.testing.assert_allclose(plan.logits(rows), oracle.logits(model, rows), atol=1e-6)
    assert plan.head_width == 3
    headless = compile_plan(make_model(3, [conv("graph_conv", 6, 4)]))
    assert headless.head_width == 0 and headless.logits(rows).shape == (5, 0)
    plan.warm_up()


def test_exact_models_are_what_they_claim() -> None:
    assert len(EXACT) > 20
    for seed in range(20):
        model = random_model(seed, integer=True, convs=2)
        assert is_exact(model)
        for got, expected in both(model, random_graph(seed, integer=True, edges=100)):
            np.testing.assert_array_equal(got, expected)
