"""A model explained: the figures follow from the widths."""

import json
from pathlib import Path

import pytest

from freshet.gnn.describe import describe_data, describe_text
from freshet.gnn.model import save_model
from tests.support.graphs.models import all_small_models, conv, linear, make_model


@pytest.mark.parametrize("name", all_small_models())
def test_every_model_can_be_described(name: str, tmp_path: Path) -> None:
    save_model(all_small_models()[name](), tmp_path)
    data = json.loads(json.dumps(describe_data(tmp_path)))
    known = {"invertible", "monotonic", "invertible + monotonic", "monotonic + invertible"}
    known |= {"invertible, reading its target", "invertible, in two sides"}
    classes = {layer["class"].partition(" + reading ")[0] for layer in data["layers"]}
    assert classes and classes <= known
    assert "bytes/vertex" in describe_text(tmp_path)


@pytest.mark.parametrize(
    ("kind", "says"),
    [("gat_conv", "moves the messages whose score changes sides")]
    + [
        (kind, "the sums of a changed target are made afresh from its in-edges")
        for kind in ("gatv2_conv", "super_gat_conv", "transformer_conv", "agnn_conv", "res_gated_graph_conv")
    ],
)
def test_what_a_changed_target_costs_is_said(kind: str, says: str, tmp_path: Path) -> None:
    save_model(make_model(0, [conv(kind, 6, 6)]), tmp_path)
    assert says in describe_data(tmp_path)["layers"][0]["incremental"][0]


def test_weights_that_a_layer_ignores_are_named(tmp_path: Path) -> None:
    layers = [conv("graph_conv", 6, 5), conv("sage_conv", 5, 4), conv("gcn_conv", 4, 4, edge_weights=False)]
    save_model(make_model(0, [*layers, {"type": "relu"}], head=[linear(4, 3)], edge_types=["a", "b"]), tmp_path)
    data = describe_data(tmp_path)
    assert [layer["edge_weights"] for layer in data["layers"]] == [
        "edge weights multiply the messages",
        "edge weights are ignored (the layer reads none)",
        "edge weights are ignored (the module hands none to the layer)",
    ]
    assert [layer["aggregate"] for layer in data["layers"]] == ["weighted sum", "mean", "sum"]
    assert data["layers"][2]["then"] == ["relu"]
    assert (data["features"], data["embedding"], data["logits"], data["head"]) == (6, 4, 3, ["linear 4 > 3"])
    text = describe_text(tmp_path, width=200)
    assert (data["hops"], data["multiplications_per_row"]) == (3, 2 * 6 * 5 + 2 * 5 * 4 + 4 * 4)
    assert "up to 3 edges away, 39 of them where each has 3" in " ".join(text.split())
    assert "edge weights are ignored" in text and "a, b" in text and "3 logits" in text


def test_state_is_synopsis_message_self_input_output_and_context(tmp_path: Path) -> None:
    save_model(make_model(0, [conv("graph_conv", 128, 128), conv("sage_conv", 128, 40)]), tmp_path)
    data = describe_data(tmp_path)
    printed = 16  # of rows that sums make again
    assert [layer["state_bytes_per_vertex"] for layer in data["layers"]] == [
        4 * 4 * 128 + printed + 16,
        4 * 4 * 40 + printed + 32,
    ]
    assert data["state_bytes_per_vertex"] == 4 * 128 + 4 * 4 * 128 + 4 * 4 * 40 + 2 * printed + 48


def test_what_a_network_costs_on_each_edge_is_said(tmp_path: Path) -> None:
    wide = conv("edge_conv", 4, 3, nn=[linear(8, 9), {"type": "relu"}, linear(9, 3)])
    towers = conv(
        "pna_conv", 4, 4, aggregators=["max"], towers=2, divide_input=True, pre=[{"type": "relu"}, linear(2, 2)]
    )
    save_model(make_model(0, [conv("edge_conv", 6, 4), wide, linear(3, 4), towers]), tmp_path)
    data = describe_data(tmp_path)
    first, second, third = data["layers"]
    assert first["on_each_edge"] == ["both ends' terms added", "relu", "linear 4 > 4"]
    assert (first["message_width"], first["multiplications_per_edge"]) == (2 * 4, 4 * 4)
    assert first["multiplications_per_row"] == 6 * 2 * 4, "both terms of the first linear layer"
    assert second["on_each_edge"][:2] == ["both ends side by side", "linear 8 > 9"]
    assert (second["message_width"], second["multiplications_per_edge"]) == (4, 8 * 9 + 9 * 3)
    assert (third["on_each_edge"][1:], third["multiplications_per_edge"]) == (["relu", "linear 2 > 2"], 2 * 2 * 2)
    assert first["incremental"][1].startswith("a network makes each message of both ends; of a changed target")
    text = " ".join(describe_text(tmp_path, width=300).split())
    assert "and 123 for the messages of an edge" in text and "each message: both ends' terms added, relu" in text


def test_what_a_job_keeps_whose_embeddings_are_asked_for(tmp_path: Path) -> None:
    layers = [conv("sage_conv", 6, 5), conv("gcn_conv", 5, 7), conv("graph_conv", 7, 3)]
    save_model(make_model(0, layers), tmp_path)
    data = describe_data(tmp_path)
    assert data["asked"] == {
        "layer": 2,
        "row_bytes_per_vertex": {"": 4 * 7},
        "state_bytes_per_vertex": {"": 4 * 6 + sum(one["state_bytes_per_vertex"] for one in data["layers"][:2])},
        "what_if_bytes_per_vertex": {"": 4 * 5},
    }
    text = " ".join(describe_text(tmp_path).split())
    assert "writes rows of layer 2, 28 bytes per vertex; its server keeps the graph, and computes layer 3" in text
    save_model(make_model(0, layers[:1]), tmp_path)
    assert "--embeddings asked: the model has one layer" in " ".join(describe_text(tmp_path).split())
