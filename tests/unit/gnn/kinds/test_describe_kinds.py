"""A model with kinds explained: kinds, relations, layers, and the bytes of vertices and edges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshet.gnn.describe import describe_data, describe_text
from freshet.gnn.model import save_model
from tests.support.graphs.kinds import (
    KINDS,
    by_kind,
    hetero,
    kinds_model,
    many_relations,
    random_model_of_kinds,
    relation,
    sage,
    sage_everywhere,
)


@pytest.mark.parametrize("seed", range(8))
def test_every_model_can_be_described(seed: int, tmp_path: Path) -> None:
    model = random_model_of_kinds(seed)
    save_model(model, tmp_path)
    data = json.loads(json.dumps(describe_data(tmp_path)))
    assert data["kinds"] == model.kinds and data["embeddings"] == model.out_widths
    assert data["sha256"] == model.sha256()
    text = describe_text(tmp_path, width=200)
    assert all(kind in text for kind in model.kinds) and model.sha256() in text


def test_bytes_are_those_of_a_kinds_own_widths(tmp_path: Path) -> None:
    """user 768 wide sends 64 columns; item keeps a sum of 64 in float64 and a note, its own term and its result."""
    kinds = {"user": 768, "item": 8}
    relations = [relation("user", "rates", "item", edge_features=3), relation("item", "rev_rates", "user", mirrors=0)]
    relations[1]["edge_features"] = 3
    gat = {"type": "gat_conv", "in_channels": 8, "target_channels": 768, "out_channels": 16, "edge_channels": 3}
    layer = hetero({0: sage(768, 8, 64), 1: gat | {"add_self_loops": False}})
    save_model(kinds_model([layer, by_kind(item=[{"type": "relu"}])], ["item"], kinds, relations), tmp_path / "item")
    data = describe_data(tmp_path / "item")
    assert data["state_bytes_per_vertex"] == {
        "user": 4 * 768 + 4 * 64,
        "item": 4 * 8 + (8 * 64 + 16 + 4) + 4 * 8 + 4 * 64,
    }
    (layer,) = data["layers"]
    assert [one["relation"] for one in layer["relations"]] == ["rates"]
    assert layer["kinds"]["item"]["then"] == ["relu"]
    assert layer["kinds"]["user"]["out_width"] == 0
    save_model(
        kinds_model([hetero({1: gat | {"add_self_loops": False}})], ["user"], kinds, relations), tmp_path / "user"
    )
    data = describe_data(tmp_path / "user")
    assert data["layers"][0]["relations"][0]["state_bytes_per_edge"] == 20 + 4 * 3
    assert data["relations"][1] | {"name": ""} == relations[1] | {"name": ""}


def test_the_text_names_relations_with_mirrors_and_attributes(tmp_path: Path) -> None:
    eight = dict.fromkeys(KINDS, 8)
    layers = [sage_everywhere(KINDS, 8), by_kind(user=[{"type": "relu"}]), sage_everywhere(eight, 3, group="mean")]
    save_model(kinds_model(layers, ["user", "item"]), tmp_path)
    text = " ".join(describe_text(tmp_path, width=200).split())
    assert "features by kind: user 6, item 4, shop 5; embeddings: user 3, item 3; 2 layers" in text
    assert "relations: buys, rev_buys (follows buys), sells, rev_sells (follows sells), follows" in text
    assert "user > buys > item" in text and "mean of 2 relations" in text
    assert text.count("sage_conv") == 3 + 1, "relations of a layer with one conv, of one width, share a row"
    assert "up to 2 edges away" in text and "bytes per vertex with its features: user " in text


def test_many_relations_are_one_line(tmp_path: Path) -> None:
    model = many_relations(1)
    save_model(model, tmp_path)
    data = describe_data(tmp_path)
    first = data["layers"][0]["relations"][0]
    many = sum(one.source == one.target for one in model.relations)
    assert first["relation"].startswith("of_0, of_1, ") and len(data["layers"][0]["relations"]) == 3
    assert any(f"these are {many} relations" in text for text in first["incremental"])
    assert "of_0, of_1" in describe_text(tmp_path, width=200)


def test_what_a_job_keeps_of_each_kind_whose_embeddings_are_asked_for(tmp_path: Path) -> None:
    """Of kinds whose rows the last layer reads, it writes these."""
    layers = [sage_everywhere(KINDS, 6), sage_everywhere(dict.fromkeys(KINDS, 6), 4)]
    save_model(kinds_model(layers, ["user"]), tmp_path)
    data = describe_data(tmp_path)
    last = {kind: one["state_bytes_per_vertex"] for kind, one in data["layers"][1]["kinds"].items()}
    asked = data["asked"]
    assert asked["row_bytes_per_vertex"] == {kind: 4 * 6 for kind in asked["row_bytes_per_vertex"]} != {}
    assert asked["state_bytes_per_vertex"] == {
        kind: size - last.get(kind, 0) for kind, size in data["state_bytes_per_vertex"].items()
    }
    assert asked["what_if_bytes_per_vertex"] == dict.fromkeys(KINDS, 0)
    assert f"writes rows of layer 1, {', '.join(f'{kind} 24' for kind in asked['row_bytes_per_vertex'])}" in " ".join(
        describe_text(tmp_path).split()
    )
