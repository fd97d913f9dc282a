"""The oracle against PyTorch Geometric, and against sums done by hand."""

import numpy as np
import pytest

from freshet.gnn.oracles import edges, own_scale, scaled, whole_graph
from freshet.gnn.plan import compile_plan
from freshet.gnn.pyg import oracle as torch_oracle
from freshet.schema import Graph
from tests.support import oracle
from tests.support.graphs.jumping import join, keep
from tests.support.graphs.models import (
    all_small_models,
    conv,
    exact_small_models,
    linear,
    make_model,
    random_model,
)
from tests.support.graphs.random_graphs import random_graph, weighted

MODELS, EXACT = all_small_models(), exact_small_models()
# PyG has no layer for programs: their export runs the module itself (tests/unit/gnn/pyg)
MODELS = {name: make for name, make in MODELS.items() if not name.startswith("message_conv")}
NONE = np.empty(0, np.int64)


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_and_option_equals_pyg(name: str) -> None:
    pytest.importorskip("torch_geometric")
    model = MODELS[name]()
    for seed in range(2):
        graph = random_graph(seed)
        for given in (graph, Graph.plain(*graph[:3])):
            expected = torch_oracle.forward(model, given, dtype=np.float64)
            for ours, theirs in zip(oracle.forward(model, given), expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_random_models_equal_pyg(seed: int) -> None:
    pytest.importorskip("torch_geometric")
    model, graph = random_model(seed), random_graph(seed)
    expected = torch_oracle.forward(model, graph, dtype=np.float64)
    for ours, theirs in zip(oracle.forward(model, graph), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_no_edges_equal_pyg(name: str) -> None:
    pytest.importorskip("torch_geometric")
    model, graph = MODELS[name](), random_graph(5)
    given = weighted(graph.x, NONE, NONE, np.empty(0, np.float32))
    expected = torch_oracle.forward(model, given, dtype=np.float64)
    for ours, theirs in zip(oracle.forward(model, given), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_negative_and_cancelling_degrees_equal_pyg() -> None:
    pytest.importorskip("torch_geometric")
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    src, dst = np.array([0, 1, 2, 3, 3, 0]), np.array([1, 0, 3, 2, 1, 0])
    weight = np.array([-1.0, 2.0, 0.0, 1.0, 1.0, -2.5], np.float32)
    for options in ({}, {"improved": True}, {"add_self_loops": False}):
        model = make_model(0, [conv("gcn_conv", 3, 2, **options)])
        expected = torch_oracle.forward(model, weighted(x, src, dst, weight), dtype=np.float64)[0]
        np.testing.assert_allclose(oracle.forward(model, weighted(x, src, dst, weight))[0], expected, atol=1e-9)


@pytest.mark.parametrize("name", EXACT)
def test_integers_are_exact_in_float32_and_float64(name: str) -> None:
    model, graph = EXACT[name](), random_graph(1, integer=True, edges=120)
    for single, double in zip(
        whole_graph.forward(compile_plan(model), graph), oracle.forward(model, graph), strict=True
    ):
        np.testing.assert_array_equal(single[:, : double.shape[1]], double)


def test_weighted_sum_and_mean_by_hand() -> None:
    x = np.array([[1.0], [10.0], [100.0]], np.float32)
    src, dst, weight = np.array([0, 1, 2]), np.array([2, 2, 2]), np.array([3.0, 0.5, 2.0], np.float32)
    for aggr, expected in (("sum", 208.0), ("mean", 208.0 / 3)):
        model = make_model(0, [conv("graph_conv", 1, 1, aggr=aggr, bias=False)])
        model.weights["layers.0.lin_rel.weight"][:] = 1
        model.weights["layers.0.lin_root.weight"][:] = 0
        got = oracle.forward(model, weighted(x, src, dst, weight))[0]
        np.testing.assert_allclose(got[:, 0], [0, 0, expected])


def test_many_edges_go_through_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(3, integer=True, edges=400)
    model = make_model(0, [conv("graph_conv", 6, 3)], integer=True)
    whole = oracle.forward(model, graph)[0]
    monkeypatch.setattr(edges, "_CHUNK_EDGES", 5)
    np.testing.assert_array_equal(oracle.forward(model, graph)[0], whole)


@pytest.mark.parametrize(
    "name",
    [
        "pna_conv-towers",
        "res_gated_graph_conv-default-2-layers",
        "graph_conv-std-2-layers",
        "graph_conv-max-2-layers",
        "sage_conv-project-2-layers",
        "gin_conv-default-2-layers",
        "gat_conv-default-2-layers",
        "transformer_conv-default-2-layers",
        "pna_conv-residual",
        "activation-first",
        "log_softmax-last",
    ],
)
def test_rows_by_edge_go_through_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, graph = MODELS[name](), random_graph(3, edges=400)
    whole = oracle.forward(model, graph)[-1], *own_scale.forward(model, graph)
    monkeypatch.setattr(edges, "_CHUNK_EDGES", 5)
    monkeypatch.setattr(edges, "_CHUNK_VERTICES", 3)
    monkeypatch.setattr(scaled, "_ROWS", 4)
    pieces = oracle.forward(model, graph)[-1], *own_scale.forward(model, graph)
    for got, expected in zip(pieces, whole, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
    nothing = np.empty(0, np.int64)
    assert oracle.forward(model, Graph.plain(graph.x[:0], nothing, nothing))[-1].shape == (0, model.out_width)


def test_rows_that_are_needed_later_are_not_overwritten() -> None:
    graph, relu = random_graph(2), {"type": "relu"}
    features = graph.x.copy()
    for before in ([], [conv("graph_conv", 6, 6)]):
        layers = [*before, relu, keep("a"), {"type": "tanh"}, keep("b"), relu, conv("sage_conv", 6, 6)]
        layers += [{"type": "sigmoid"}, join("sum", "a", "."), {"type": "elu"}, join("cat", "b", ".")]
        model = make_model(3, layers)
        got = own_scale.forward(model, graph).rows
        np.testing.assert_allclose(got, oracle.forward(model, graph)[-1], rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(graph.x, features)


def test_it_reports_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "_CHUNK_VERTICES", 3)
    reported: list[str] = []
    model = make_model(1, [conv("graph_conv", 6, 3), {"type": "relu"}, conv("gat_conv", 3, 2)])
    own_scale.forward(model, random_graph(2), report=reported.append)
    assert {"layer 1 of 3", "layer 2 of 3", "layer 3 of 3"} <= set(reported)
    assert len([one for one in reported if one.startswith("layer 1 of 3, ") and one.endswith("%")]) > 3


def test_head_equals_torch() -> None:
    pytest.importorskip("torch")
    model = make_model(0, [conv("graph_conv", 6, 4)], head=[linear(4, 5), {"type": "relu"}, linear(5, 2)])
    rows = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    np.testing.assert_allclose(oracle.logits(model, rows), torch_oracle.logits(model, rows), atol=1e-6)
