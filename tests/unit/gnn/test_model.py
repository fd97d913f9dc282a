"""Model folders: round trips, and errors that say what to mend."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from freshet.gnn.model import Model, ModelError, build_model, load_model, save_model
from freshet.gnn.plan import compile_plan
from tests.support.graphs.models import all_small_models, conv, linear, make_model, random_model

MODELS = all_small_models()


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_comes_back(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    save_model(model, tmp_path / "m")
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == ["model.json", "model.safetensors"]
    again = load_model(tmp_path / "m")
    assert again.layers == model.layers
    assert again.sha256() == model.sha256()
    for key, weight in model.weights.items():
        np.testing.assert_array_equal(again.weights[key], weight)


@given(seed=st.integers(0, 10_000))
def test_random_models_are_sound(seed: int) -> None:
    model = random_model(seed)
    assert isinstance(model, Model) and model.out_width >= 1


def test_head_and_edge_types_come_back(tmp_path: Path) -> None:
    model = make_model(0, [conv("gin_conv", 6, 4)], head=[linear(4, 3)], edge_types=["a", "b"])
    save_model(model, tmp_path)
    again = load_model(tmp_path)
    assert again.edge_types == ["a", "b"] and again.head == model.head


def test_sha256_changes_with_layers_and_with_weights() -> None:
    model = make_model(0, [conv("graph_conv", 3, 2)])
    other = make_model(0, [conv("graph_conv", 3, 2, aggr="mean")])
    touched = make_model(0, [conv("graph_conv", 3, 2)])
    touched.weights["layers.0.lin_rel.bias"][0] += 1
    assert len({model.sha256(), other.sha256(), touched.sha256()}) == 3


def test_an_unknown_layer_type_names_the_supported_ones() -> None:
    with pytest.raises(
        ModelError, match=r"layers\.1: layer type 'gated_conv' is not supported; supported are graph_conv, sage"
    ):
        build_model(layers=[conv("graph_conv", 3, 2), {"type": "gated_conv"}], weights={})
    with pytest.raises(ModelError, match=r"layers\.0\.nn\.0: layer type 'conv' is not supported; supported are linear"):
        build_model(layers=[conv("gin_conv", 3, 2, nn=[{"type": "conv"}])], weights={})
    with pytest.raises(ModelError, match=r"layers\.0\.nn\.0: layer type 'conv' is not supported"):
        build_model(layers=[conv("edge_conv", 3, 2, nn=[{"type": "conv"}])], weights={})
    with pytest.raises(ModelError, match=r"layers\.0\.nn\.0: layer type 'conv' is not supported"):
        build_model(layers=[conv("nn_conv", 3, 2, edge_channels=2, nn=[{"type": "conv"}])], weights={})
    with pytest.raises(ModelError, match=r"head\.0: layer type 'graph_conv' is not supported"):
        build_model(layers=[conv("graph_conv", 3, 2)], head=[conv("graph_conv", 2, 2)], weights={})


BAD = {
    "widths": (
        [conv("graph_conv", 3, 2), conv("graph_conv", 4, 2)],
        r"layers\.1 \(graph_conv\) reads rows of width 4, got 2",
    ),
    "edge widths": (
        [conv("edge_conv", 3, 4, aggr=["max", "sum"], nn=[linear(6, 3)])],
        "rows of width 6, expected out_ch",
    ),
    "messages of a tower": (
        [conv("pna_conv", 4, 4, aggregators=["max"], pre=[linear(4, 3)])],
        "pre makes messages of width 3, expected what a tower reads, 4",
    ),
    "gin widths": ([conv("gin_conv", 3, 2, nn=[linear(3, 5)])], "nn makes rows of width 5, expected out_channels 2"),
    "no conv": ([linear(3, 2)], "needs 1 to 64 convs, got 0"),
    "too many convs": ([conv("graph_conv", 2, 2)] * 65, "needs 1 to 64 convs, got 65"),
    "aggr": ([conv("graph_conv", 3, 2, aggr="median")], r"aggr: Input should be .*'std' or 'var' \(got 'median'\)"),
    "quantile": (
        [conv("message_conv", 3, 3, aggr={"q": 1.5}, program=[{"op": "cat", "of": ["source"]}])],
        r"less than or equal to 1 \(got 1.5\)",
    ),
    "choices": (
        [conv("message_conv", 3, 3, edge_channels=2, program=[{"op": "where", "of": ["attr", "source", "target"]}])],
        "where of rows of widths 2, 3, 3, expected one width, or 1",
    ),
    "columns of self-loops": (
        [
            conv("message_conv", 3, 2, edge_channels=2, program=[{"op": "cat", "of": ["attr"]}])
            | {"add_self_loops": True, "existing_loops": "drop", "self_columns": 2}
        ],
        "self_columns 2 needs add_self_loops, edge_channels, no other columns for loops, and x with columns up to 4",
    ),
    "messages of self-loops": (
        [
            conv("message_conv", 3, 2, edge_channels=2, program=[{"op": "cat", "of": ["attr"]}])
            | {"add_self_loops": True, "existing_loops": "drop", "self_columns": 0, "self_messages": 1}
        ],
        "self_columns 0 needs add_self_loops, edge_channels, no other columns for loops, and x with columns up to 2",
    ),
    "unknown option": ([conv("sage_conv", 3, 2, heads=4)], r"heads: Extra inputs are not permitted \(got 4\)"),
    "zero width": ([conv("graph_conv", 0, 2)], "greater than or equal to 1"),
    "loops": ([conv("gcn_conv", 3, 2, normalize=False)], "add_self_loops needs normalize"),
    "weights": (
        [conv("graph_conv", 3, 2, bias=False)],
        r"missing \['layers.0.lin_rel.weight', 'layers.0.lin_root.weight'\]",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_makes_no_sense_is_refused_with_the_reason(what: str) -> None:
    layers, message = BAD[what]
    with pytest.raises(ModelError, match=message):
        build_model(layers=layers, weights={})


def test_a_weight_of_another_shape_or_name_is_refused() -> None:
    weights = dict(make_model(0, [conv("graph_conv", 3, 2)]).weights)
    with pytest.raises(ModelError, match=r"layers.0.lin_rel.bias: got shape \(3,\), expected \(2,\)"):
        build_model(layers=[conv("graph_conv", 3, 2)], weights={**weights, "layers.0.lin_rel.bias": np.zeros(3)})
    with pytest.raises(ModelError, match=r"unknown \['layers.0.extra'\]"):
        build_model(layers=[conv("graph_conv", 3, 2)], weights={**weights, "layers.0.extra": np.zeros(3)})


def test_edge_types_are_distinct() -> None:
    weights = make_model(0, [conv("graph_conv", 3, 2)]).weights
    with pytest.raises(ModelError, match="expected distinct, non-empty names"):
        build_model(layers=[conv("graph_conv", 3, 2)], weights=weights, edge_types=["a", "a"])


def test_broken_folders_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model folder: model\.json is missing"):
        load_model(tmp_path)
    save_model(make_model(0, [conv("graph_conv", 3, 2)]), tmp_path)
    good = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(ModelError, match=r"model\.json is not JSON"):
        load_model(tmp_path)
    (tmp_path / "model.json").write_text("[]")
    with pytest.raises(ModelError, match="got list, expected an object"):
        load_model(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps({**json.loads(good), "version": 9}))
    with pytest.raises(ModelError, match="version 9: this Freshet reads version 1"):
        load_model(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps({**json.loads(good), "colour": "red"}))
    with pytest.raises(ModelError, match=r"model\.json: colour: Extra inputs"):
        load_model(tmp_path)
    (tmp_path / "model.json").write_text(good)
    (tmp_path / "model.safetensors").write_bytes(b"\x80\x04 pickle")
    with pytest.raises(ModelError, match="not a safetensors file"):
        load_model(tmp_path)


def test_a_model_of_before_has_the_identity_that_it_had() -> None:
    """Options that came later and are not used are no part of it: a job knows its model by that."""
    entry = conv("pna_conv", 4, 4, aggregators=["max"])
    assert "pre" not in make_model(0, [entry]).model_dump(mode="json")["layers"][0]
    with_pre = make_model(0, [entry | {"pre": [{"type": "relu"}]}]).model_dump(mode="json")
    assert [one["type"] for one in with_pre["layers"][0]["pre"]] == ["relu"]


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        (
            [1.0, np.nan],
            "float32",
            "weights: layers.0.lin_rel.bias: 1 of 2 values are NaN or infinite; export the model",
        ),
        ([-np.inf, np.inf], "float32", "2 of 2 values are NaN or infinite"),
        ([1e300, 1.0], "float64", "weights: layers.0.lin_rel.bias: 1 of 2 values are past float32"),
        ([True, False], "bool", "weights: layers.0.lin_rel.bias: got bool, expected numbers"),
    ],
)
def test_weights_that_float32_does_not_hold_are_named(
    values: list[Any], dtype: str, message: str, tmp_path: Path
) -> None:
    """Also in a folder that something else has written."""
    weights = make_model(0, [conv("graph_conv", 3, 2)]).weights | {"layers.0.lin_rel.bias": np.array(values, dtype)}
    with pytest.raises(ModelError, match=message):
        build_model(layers=[conv("graph_conv", 3, 2)], weights=weights)
    save_model(make_model(0, [conv("graph_conv", 3, 2)]), tmp_path)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path)


def test_options_that_are_no_numbers_are_refused() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ModelError, match=r"eps: Input should be a finite number"):
            build_model(layers=[conv("gin_conv", 3, 2, eps=value, nn=[linear(3, 2)])], weights={})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "is not JSON: it is nested too deeply"),
        ('{"layers": ' + "[" * 100_000 + "]" * 100_000 + "}", "is not JSON: it is nested too deeply"),
        ('{"layers": [{"type": []}]}', r"layers.0: got a type that is a list, expected an object with a type, one of"),
        ('{"layers": [{"type": {}}]}', r"layers.0: got a type that is a dict"),
        ('{"layers": [3]}', r"layers.0: got no type, expected an object with a type"),
        ('{"layers": [{"type": "gin_conv", "nn": [{"type": []}]}]}', r"layers.0.nn.0: got a type that is a list"),
        ('{"layers": [], "head": [[]]}', "head.0: got no type"),
    ],
)
def test_a_damaged_description_is_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    save_model(make_model(0, [conv("graph_conv", 3, 2)]), tmp_path)
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelError, match=message) as refused:
        load_model(tmp_path)
    assert len(str(refused.value).splitlines()) == 1


ODD = (None, [], {}, "", "x", -1, 0, 1e999, 10**30, True, [[]], {"type": []}, "\ud800", 1.5, 2**63)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is something in what JSON holds."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*path, key)
        yield from places(one, (*path, key))


@pytest.mark.parametrize("name", ["gin_conv", "pna_conv", "gat_conv"])
def test_any_damage_of_a_folder_is_a_sentence_or_a_model(name: str, tmp_path: Path) -> None:
    made = next(make for key, make in MODELS.items() if key.startswith(name))
    save_model(made(), tmp_path)
    files = [tmp_path / "model.json", tmp_path / "model.safetensors"]
    whole, rng, refused = [file.read_bytes() for file in files], random.Random(7), 0
    for _ in range(150):
        for file, data in zip(files, whole, strict=True):
            file.write_bytes(data)
        file, data = rng.choice(list(zip(files, whole, strict=True)))
        at = rng.randrange(min(len(data), 500))
        if file.name == "model.json" and rng.random() < 0.6:
            spec = json.loads(data)
            *path, last = rng.choice(list(places(spec)))
            inner = spec
            for key in path:
                inner = inner[key]
            inner[last] = rng.choice(ODD)
            file.write_text(json.dumps(spec))
        else:
            file.write_bytes(data[:at] + bytes([rng.randrange(256)]) * rng.choice((0, 1)) + data[at + 1 :])
        try:
            compile_plan(load_model(tmp_path))
        except ModelError:
            refused += 1
    assert refused > 75
