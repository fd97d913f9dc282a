"""The scale of a value: right results in float32 stay far within the tolerance, wrong ones can't hide."""

import numpy as np
import pytest

from freshet.gnn.model import Model, build_model
from freshet.gnn.oracles import own_scale, whole_graph
from freshet.gnn.plan import compile_plan
from freshet.gnn.pyg import oracle as torch_oracle
from freshet.schema import Graph
from tests.support.graphs.models import ACTIVATIONS, all_small_models, conv, linear, make_model, random_model
from tests.support.graphs.random_graphs import random_graph, weighted

MODELS = {name: make for name, make in all_small_models().items() if not name.startswith("message_conv")}  # as PyG has
TOLERANCE = 1e-4
ROUNDING = TOLERANCE / 100


def errors(model: Model, graph: Graph, got: np.ndarray) -> np.ndarray:
    expected = own_scale.forward(model, graph)
    np.testing.assert_array_less(0, expected.scale + 1)
    return np.abs(got - expected.rows) / np.maximum(expected.scale, 1e-30)


def single(model: Model, graph: Graph) -> np.ndarray:
    return whole_graph.forward(compile_plan(model), graph)[-1]


def takes_variances(model: Model) -> bool:
    """Whether there are any: a float32 pass makes them of means that may be all rounding, as no job does."""
    return bool({"std", "var"} & {kind for layer in model.layers for kind in np.atleast_1d(getattr(layer, "aggr", ""))})


@pytest.mark.parametrize("name", MODELS)
def test_the_values_are_pygs_and_float32_is_within(name: str) -> None:
    model, graph = MODELS[name](), random_graph(3)
    if torch_oracle.available():
        assert errors(model, graph, torch_oracle.forward(model, graph, dtype=np.float64)[-1]).max() < 1e-12
    assert errors(model, graph, single(model, graph)).max() < ROUNDING


def test_float32_of_random_models_is_within_and_the_scale_is_not_far_from_the_values() -> None:
    worst, ratios = 0.0, []
    for seed in range(60):
        model, graph = random_model(seed), random_graph(seed)
        if not takes_variances(model):
            worst = max(worst, float(errors(model, graph, single(model, graph)).max()))
        expected = own_scale.forward(model, graph)
        ratios.append(np.median(np.abs(expected.rows) / np.maximum(expected.scale, 1e-30)))
    assert worst < ROUNDING
    assert np.median(ratios) > 0.05


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_four_layers_whose_terms_cancel_are_within(activation: str) -> None:
    kinds = ["graph_conv", "sage_conv", "gcn_conv", "gin_conv"]
    layers = [part for k, kind in enumerate(kinds) for part in (conv(kind, 8 if k else 6, 8), {"type": activation})]
    passes = [single]
    if torch_oracle.available():
        passes.append(lambda model, graph: torch_oracle.forward(model, graph)[-1])
    for seed in range(10):
        model, graph = make_model(seed, layers[:-1]), random_graph(seed, vertices=200, edges=1500)
        rng = np.random.default_rng(seed)
        large = rng.random(200) < 0.3  # sums of neighbours of 1e6 and -1e6, beside features of about 1 and of 0
        graph.x[large] = 1e6 * np.sign(graph.x[large])
        graph.x[rng.random(200) < 0.2] = 0
        for forward in passes:
            assert errors(model, graph, forward(model, graph)).max() < ROUNDING, f"seed {seed}"


def identity(width: int, *more: dict, layers: int = 1) -> Model:
    """A vertex's own features, through so many layers and what follows them."""
    model = make_model(0, [*(conv("graph_conv", width, width, bias=False) for _ in range(layers)), *more])
    for k in range(layers):
        model.weights[f"layers.{k}.lin_rel.weight"][:] = 0
        model.weights[f"layers.{k}.lin_root.weight"][:] = np.eye(width)
    return model


def alone(*features: float) -> Graph:
    none = np.empty(0, np.int64)
    return weighted(np.array([features], np.float32), none, none, np.empty(0, np.float32))


def test_a_small_channel_has_its_own_scale_beside_a_large_one() -> None:
    graph = alone(5e7, 18.7)
    assert errors(identity(2), graph, np.array([[5e7, 16.0]]))[0, 1] == pytest.approx(2.7 / 18.7, rel=1e-3)
    assert errors(identity(2), graph, graph.x).max() < ROUNDING


def test_what_cancelled_in_a_layer_before_is_uncertain_in_the_next() -> None:
    """1e8 - 1e8 + 1 in float32 may be off by 8: no error of the second layer, whose own terms are of about 1."""
    model = make_model(0, [linear(3, 1, bias=False), *identity(1).layers])
    model.weights.update({"layers.0.weight": np.ones((1, 3), np.float32), "layers.1.lin_rel.weight": np.zeros((1, 1))})
    model.weights["layers.1.lin_root.weight"] = np.ones((1, 1))
    graph = alone(1e8, -1e8, 1.0)
    assert own_scale.forward(model, graph).rows.tolist() == [[1.0]]
    assert errors(model, graph, np.array([[9.0]]))[0, 0] < ROUNDING


def test_activations_bound_what_can_be_off() -> None:
    scales = {
        name: own_scale.forward(identity(1, {"type": name}), alone(x)).scale[0, 0]
        for name, x in (("relu", -1000.0), ("tanh", 1000.0), ("sigmoid", 1000.0))
    }
    assert scales["relu"] == 0  # nothing but 0 is right
    assert scales["tanh"] == scales["sigmoid"] == 1
    near = own_scale.forward(identity(1, {"type": "relu"}), alone(1e-3)).scale[0, 0]
    assert near == pytest.approx(2e-3)


@pytest.mark.parametrize("spec", ACTIVATIONS, ids=lambda spec: "-".join(map(str, spec.values())))
def test_pytorchs_activations_are_within_where_their_terms_cancel(spec: dict) -> None:
    """In float32, far below 0 too: 1 + tanh, 1 + erf and the logarithm of hardly more than 1 lose all digits there."""
    if not torch_oracle.available():
        pytest.skip("needs torch")
    size = np.geomspace(1e-6, 1e4, 2000, dtype=np.float32)
    none = np.empty(0, np.int64)
    graph = weighted(np.stack([-size, size, 0 * size], axis=1), none, none, np.empty(0, np.float32))
    model = identity(3, spec)
    assert errors(model, graph, torch_oracle.forward(model, graph)[-1]).max() < TOLERANCE
    if spec["type"] != "identity":
        assert errors(model, graph, single(identity(3), graph)).max() > TOLERANCE  # without the activation


def test_another_gelu_is_not_within() -> None:
    """Nor one whose tail is off by a thousandth of a value of 1."""
    for own, other in ((None, "tanh"), ("tanh", None)):
        kinds = [{"type": "gelu"} | ({"approximate": of} if of else {}) for of in (own, other)]
        model, wrong = (identity(1, kind) for kind in kinds)
        graph = weighted(
            np.linspace(-6, 6, 500, dtype=np.float32)[:, None], *2 * (np.empty(0, np.int64),), np.empty(0, np.float32)
        )
        off = errors(model, graph, single(wrong, graph))
        assert off.max() > 1.5 * TOLERANCE
        low = graph.x < -4
        assert errors(model, graph, single(model, graph) + 1e-3 * low)[low].min() > TOLERANCE


def test_rows_of_length_one_move_with_their_length() -> None:
    model = make_model(0, [conv("sage_conv", 2, 2, normalize=True, bias=False)])
    model.weights["layers.0.lin_l.weight"][:] = 0
    model.weights["layers.0.lin_r.weight"][:] = np.eye(2)
    graph = alone(3e-5, 4e-5)
    assert errors(model, graph, np.array([[0.6, 0.8]])).max() < ROUNDING
    assert errors(model, graph, np.array([[0.6, 0.7]])).max() > 0.01


def test_what_may_pass_the_range_of_float32_has_no_scale() -> None:
    expected = own_scale.forward(identity(2, layers=2), alone(3e38, 1.0))
    assert np.isfinite(expected.scale).all()
    model = identity(2, layers=2)
    model.weights["layers.0.lin_root.weight"][0, 0] = 2
    expected = own_scale.forward(model, alone(3e38, 1.0))
    assert np.isinf(expected.scale[0, 0])


def test_a_deviation_may_jump_where_pygs_does_and_nowhere_else() -> None:
    layer = conv("graph_conv", 1, 1, aggr="std", edge_weights=False, bias=False)
    weights = {"layers.0.lin_rel.weight": np.ones((1, 1)), "layers.0.lin_root.weight": np.zeros((1, 1))}
    model = build_model(layers=[layer], head=[], edge_types=[], weights=weights)
    least = np.sqrt(1e-5)
    for deviation, may_jump in ((least * (1 - 1e-6), True), (least * (1 + 1e-6), True), (2 * least, False)):
        x = np.float32([[0], [2 * deviation], [0]])
        expected = own_scale.forward(model, Graph.plain(x, np.array([0, 1]), np.array([2, 2])))
        assert (1e-4 * expected.scale[2, 0] >= 0.9 * least) == may_jump
