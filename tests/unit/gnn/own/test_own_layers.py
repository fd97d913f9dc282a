"""Layers that users write: their functions, what is refused, and the bits of their rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from examples.gated_sum import GatedSum
from examples.top_k import Largest
from freshet import Layer, Mean, Redone, Softmax, Sum, linear, relu
from freshet.gnn.layers.base import Context
from freshet.gnn.layers.own.own_layer import OwnLayerPlan
from freshet.gnn.model import Model, build_model, load_model, save_model
from freshet.gnn.oracles import whole_graph
from freshet.gnn.own import loading
from freshet.gnn.own.loading import LayersError, install_layers, layer_class, load_layers, sha256_of
from freshet.gnn.own.running import RunningLayer, WrittenLayerError
from freshet.gnn.plan import compile_plan
from freshet.gnn.synopses.of_messages import InvertibleSynopsis
from tests.support import oracle
from tests.support.graphs.messages import written_models
from tests.support.graphs.models import IN_WIDTH
from tests.support.graphs.random_graphs import random_graph

MODELS = written_models(IN_WIDTH)
NOBODY = Context(np.empty(0, np.int32), np.empty(0, np.float64), np.empty(0, np.float32))  # nothing reads it
Array = np.ndarray


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LOADED", {})


def running(layer: type[Layer], weights: dict[str, Array] | None = None, edge_channels: int = 0) -> RunningLayer:
    return RunningLayer(layer, weights or {}, {}, 3, edge_channels)


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_is_what_the_full_pass_makes(name: str) -> None:
    model = MODELS[name]()
    for got, want in zip(
        whole_graph.forward(compile_plan(model), random_graph(1)), oracle.forward(model, random_graph(1)), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("name", MODELS)
def test_the_bits_of_a_row_are_its_own_wherever_it_stands(name: str) -> None:
    layer = compile_plan(MODELS[name]()).layers[0]
    assert isinstance(layer, OwnLayerPlan)
    rng, own = np.random.default_rng(3), layer.running
    x = rng.standard_normal((200, IN_WIDTH)).astype(np.float32)
    order = rng.permutation(200)
    functions: list[Callable[[Array], Array]] = [own.source, lambda rows: layer.send(rows, NOBODY)]
    for function in functions:
        np.testing.assert_array_equal(function(x[order]), function(x)[order])
        np.testing.assert_array_equal(function(x[150:151]), function(x)[150:151])


def test_a_message_of_its_source_alone_is_a_difference_of_sums() -> None:
    layer = compile_plan(MODELS["power_mean"]()).layers[0]
    assert type(layer.synopsis) is InvertibleSynopsis and layer.network is None
    assert not layer.synopsis.reads_targets and compile_plan(MODELS["gated_sum"]()).layers[0].synopsis.reads_targets


def test_a_model_has_no_code_and_needs_the_same(tmp_path: Any, unloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    load_layers(["examples.gated_sum"])
    model = MODELS["gated_sum"]()
    save_model(model, tmp_path)
    assert (
        "def " not in (tmp_path / "model.json").read_text() and "sigmoid" not in (tmp_path / "model.json").read_text()
    )
    sources = loading.loaded_sources()
    monkeypatch.setattr(loading, "LOADED", {})
    there = load_model(tmp_path)
    with pytest.raises(
        LayersError, match=r"examples.gated_sum:GatedSum, whose code .*; give --layers examples.gated_s"
    ):
        compile_plan(there)
    other = {"examples.gated_sum": sources["examples.gated_sum"] + "\n# another\n"}
    install_layers(other)
    with pytest.raises(LayersError, match=r"the source of examples.gated_sum is not the one that the model was made"):
        compile_plan(there)
    with pytest.raises(LayersError, match="this process has loaded another source"):
        install_layers(sources)
    monkeypatch.setattr(loading, "LOADED", {})
    install_layers(sources)  # as in another process
    assert compile_plan(there).layers[0].name == "own_layer"


def test_modules_and_classes_that_are_not_there_are_refused(unloaded: None) -> None:
    with pytest.raises(LayersError, match=r"--layers examples.none: it cannot be imported"):
        load_layers(["examples.none"])
    load_layers(["examples.top_k"])
    for name in ("None_", "Largest", "np"):
        with pytest.raises(LayersError, match=f"examples.top_k has no class {name} that is a freshet.Layer"):
            layer_class(f"examples.top_k:{name}", sha256_of(loading.loaded_sources()["examples.top_k"]))


def test_classes_that_read_what_is_not_there_are_refused() -> None:
    with pytest.raises(TypeError, match="reads edge, expected some of source, target, weight, attr"):
        type("One", (Layer,), {"message": lambda self, source, edge: source})
    with pytest.raises(TypeError, match="`message` reads `target` where the class has that function"):
        type("Two", (Layer,), {"message": lambda self, source, target: source})
    with pytest.raises(TypeError, match="`update` reads `own` where the class has that function"):
        type("Three", (Layer,), {"own": lambda self, x: x})


class Sums(Layer):
    aggregate = Mean()

    def message(self, source: Array, weight: Array, attr: Array) -> Array:
        return source * weight + attr


class Attributed(Layer):
    def message(self, source: Array, attr: Array) -> Array:
        return source * attr


class Flat(Layer):
    def source(self, x: Array) -> Array:
        return x.sum(axis=1)


class Scored(Layer):
    aggregate = Softmax(2)  # type: ignore[assignment]

    def message(self, source: Array) -> Any:
        return source[:, :1], source


class Failing(Layer):
    def source(self, x: Array) -> Array:
        return linear(x, self.weights["weight"])


class LargestBySums(Sum):
    def fold(self, messages: Array) -> Array:
        return messages.max(axis=0)


class DeclaredLargest(Layer):
    aggregate = LargestBySums()


class InPlace(Layer):
    def message(self, source: Array) -> Array:
        source *= 2
        return source


class Ravelled(Redone):
    def fold(self, messages: Array) -> Array:
        return messages.ravel()


class OfRavelled(Layer):
    aggregate = Ravelled()  # type: ignore[assignment]


class Median(Redone):
    def fold(self, messages: Array) -> Array:
        return np.median(messages, axis=0)


class OfMedians(Layer):
    aggregate = Median()  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("layer", "edge_channels", "said"),
    [
        (Sums, 0, "reads source, weight, attr, and its entry has no edge_channels"),
        (Attributed, 0, "reads source, attr, and its entry has no edge_channels"),
        (Flat, 0, r"Flat.source: made shape \(64,\) of 64 rows, expected \(64, width\)"),
        (Scored, 0, "expected two arrays for Softmax, scores of 2 heads, and values"),
        (Failing, 0, "Failing.source reads 'weight', which it has not. Its weights: none. Its options: none"),
        (DeclaredLargest, 0, r"got .*LargestBySums.*, expected Sum\(\), .* or a Redone; a class derived from one"),
        (InPlace, 0, r"InPlace.message of \(64, 3\): ValueError: .* \(test_own_layers.py:\d+\); a function makes new"),
    ],
)
def test_functions_that_make_something_else_are_refused(layer: type[Layer], edge_channels: int, said: str) -> None:
    with pytest.raises(WrittenLayerError, match=said):
        running(layer, edge_channels=edge_channels)


def test_a_state_of_another_width_is_refused() -> None:
    with pytest.raises(WrittenLayerError, match=r"Ravelled.fold made shape \(6,\) of \(2, 3\), expected one row"):
        running(OfRavelled).fold(np.zeros((2, 3), np.float32))


def test_an_aggregate_without_merge_asks_for_one_part() -> None:
    own = running(OfMedians)
    assert not own.merges
    with pytest.raises(WrittenLayerError, match=r"Median has no `merge` .* --parts 1, or with --partitioner locality"):
        own.merge(np.zeros(3, np.float32), np.zeros(3, np.float32))


def test_another_width_than_declared_is_refused() -> None:
    made = MODELS["power_mean"]()
    layers = [layer.model_dump(mode="json") for layer in made.layers]
    layers[0]["out_channels"] = 4
    layers[2]["in_channels"] = 4
    weights = {name: w[:, :4] if name.startswith("layers.2") and w.ndim == 2 else w for name, w in made.weights.items()}
    with pytest.raises(
        ValueError, match=r"layers.0: examples.power_mean:PowerMean.update makes rows of width 5, expect"
    ):
        compile_plan(build_model(layers=layers, weights=weights))


def test_functions_of_rows_in_either_precision() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((64, 5)).astype(np.float32), rng.standard_normal((3, 5)).astype(np.float32)
    for rows in (x, x.astype(np.float64)):
        assert linear(rows, w, w[:, 0]).dtype == relu(rows).dtype == rows.dtype
        np.testing.assert_allclose(linear(rows, w, w[:, 0]), rows @ w.T + w[:, 0], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(relu(rows), np.maximum(rows, 0))
    assert GatedSum.of is not None and Largest(2).fold(x).shape == (10,)


class OfProducts(Layer):
    """Products of its rows, of some of their columns, of rows made of them, and of weights of as many rows."""

    aggregate = Sum()

    def source(self, x: Array) -> Array:
        wide, narrow = self.weights["wide"], self.weights["narrow"]
        of_weights = linear(wide, narrow)
        parts = [linear(x, narrow), linear(x[:, 1:], narrow[:, 1:]), linear(relu(linear(x, wide)), of_weights.T)]
        return np.concatenate([*parts, linear(of_weights[:, :1], of_weights[:2, :1])], axis=1)

    def message(self, source: Array) -> Array:
        return source


@pytest.mark.parametrize("count", [1, 5, 63])
def test_products_of_a_block_with_padding_have_the_bits_of_whole_ones(count: int) -> None:
    rng = np.random.default_rng(1)
    wide, narrow, x = (rng.standard_normal((n, 3)).astype(np.float32) for n in (64, 2, 64))
    own = running(OfProducts, {"wide": wide, "narrow": narrow})
    np.testing.assert_array_equal(own.source(x[:count]), own.source(x)[:count])
    got, want = own.source(x[:count])[:, 4:6], np.maximum(x[:count] @ wide.T, 0) @ (wide @ narrow.T)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_of_names_the_module_in_whose_place_it_stands(unloaded: None) -> None:
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn import ResGatedGraphConv

    assert loading.classes_of(ResGatedGraphConv) == []
    load_layers(["examples.gated_sum", "examples.top_k"])
    assert loading.classes_of(ResGatedGraphConv) == ["examples.gated_sum:GatedSum"]


def test_models_of_written_layers_are_models() -> None:
    assert all(isinstance(make(), Model) for make in MODELS.values())


def test_export_puts_a_written_layer_in_the_place_of_its_module(tmp_path: Any, unloaded: None) -> None:
    """And holds it against that module, as every export does."""
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn import ResGatedGraphConv, TransformerConv

    from freshet import export_model

    load_layers(["examples.gated_sum", "examples.transformer"])
    for module in (ResGatedGraphConv(IN_WIDTH, 4), TransformerConv(IN_WIDTH, 3, heads=2)):
        model: Any = export_model(module, tmp_path / type(module).__name__)
        assert [layer.type for layer in model.layers] == ["own_layer"]


@pytest.mark.parametrize("function", [lambda rows: rows.sum(axis=0), lambda rows: 2 * rows.max(axis=0)])
def test_a_layer_that_is_not_its_module_is_refused_by_the_smallest_graph(
    function: Any, tmp_path: Any, unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum where the module has a maximum, and a factor that it has not."""
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn import SimpleConv

    from examples import top_k
    from freshet import ExportError, export_model

    load_layers(["examples.top_k"])
    monkeypatch.setattr(top_k.TopK, "of", SimpleConv)
    monkeypatch.setattr(top_k.TopK, "weights_of", classmethod(lambda cls, module: {"weight": np.eye(3)}))
    monkeypatch.setattr(top_k.TopK, "options_of", classmethod(lambda cls, module: {"k": 1}))
    monkeypatch.setattr(top_k.Largest, "fold", lambda self, rows: function(rows))
    monkeypatch.setattr(top_k.Largest, "merge", None)
    with pytest.raises(ExportError, match=r"TopK is not the module in whose place it stands:\n") as refused:
        export_model(SimpleConv(aggr="max"), tmp_path / "M", features=3)
    *case, rows, _ = str(refused.value).splitlines()[1:]
    assert 1 <= sum(line.startswith("edge ") for line in case) <= 2 and len(case) <= 4
    assert rows.startswith("vertex 0 has [") and "but the module makes [" in rows
    assert not (tmp_path / "M").exists()
