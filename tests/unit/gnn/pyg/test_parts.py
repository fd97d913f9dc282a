"""Modules of which a part is exported: an encoder, one of several results, another method; and those with kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from freshet.gnn.model import Model
from freshet.gnn.pyg.export import ExportError, export_model
from freshet.schema import Graph
from tests.support import oracle
from tests.support.graphs.random_graphs import random_graph

METADATA = (["a", "b"], [("a", "to", "b"), ("b", "rev", "a"), ("a", "cites", "a")])


class Encoder(nn.Module):
    """What a VGAE is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.mu, self.logstd = pyg.GCNConv(4, 5), pyg.GCNConv(5, 3), pyg.GCNConv(5, 3)

    def encode(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.mu(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    def decode(self, rows: Any, pairs: Any) -> Any:
        return (rows[pairs[0]] * rows[pairs[1]]).sum(-1)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        rows = self.first(x, edge_index, edge_weight).relu()
        return self.mu(rows, edge_index, edge_weight), self.logstd(rows - rows.mean(0), edge_index)


class Named(Encoder):
    def forward(self, x: Any, edge_index: Any) -> Any:
        rows = self.first(x, edge_index).relu()
        return {"mu": self.mu(rows, edge_index), "logstd": self.logstd(rows, edge_index)}


class Links(Encoder):
    def forward(self, x: Any, edge_index: Any, edge_label_index: Any) -> Any:
        return self.decode(self.encode(x, edge_index), edge_label_index)


def assert_gives(model: Model, expected: Any, graph: Any) -> None:
    np.testing.assert_allclose(oracle.forward(model, graph)[-1], expected.detach().numpy(), rtol=0, atol=3e-5)


def test_one_of_several_results_and_another_method(tmp_path: Path) -> None:
    """What only another result needs is not looked into."""
    graph = random_graph(11, width=4)
    x, weight = torch.from_numpy(graph.x), torch.from_numpy(graph.values.weight)
    edges = torch.from_numpy(np.stack([graph.src, graph.dst]))
    module = Encoder()
    assert_gives(export_model(module, tmp_path / "a", output=0), module.encode(x, edges, weight), graph)
    assert_gives(export_model(module, tmp_path / "b", method="encode"), module.encode(x, edges, weight), graph)
    named = Named()
    for key in ("mu", "logstd"):
        unweighted = Graph.plain(*graph[:3])
        assert_gives(export_model(named, tmp_path / key, output=key), named(x, edges)[key], unweighted)
    layers = [(pyg.GCNConv(4, 4), "x, e -> h"), (lambda x, h: (x, h.relu()), "x, h -> x, h")]
    made = pyg.Sequential("x, e", layers)
    assert [one.type for one in export_model(made, tmp_path / "c", output=1).layers] == ["gcn_conv", "relu"]


WRONG = {
    "several": (Encoder, {}, r"several things. Say which one .*output=0 \(mu\), output=1 \(logstd\)"),
    "by key": (Named, {}, r"several things. .*output='mu' \(mu\), output='logstd'"),
    "no such place": (Encoder, {"output": 2}, "output=2: Encoder.forward returns 0, 1"),
    "one thing": (
        Encoder,
        {"output": 0, "method": "encode"},
        "output=0: Encoder.encode returns one thing, not several",
    ),
    "a whole model": (lambda: pyg.GCN(4, 4, 2), {"output": 0}, "output=0: GCN.forward returns one thing"),
    "no method": (
        Encoder,
        {"method": "embed"},
        "method='embed' is no method of Encoder; it has decode, encode, forward",
    ),
    "VGAE": (lambda: pyg.VGAE(Encoder()), {}, "give its .encoder, with output=0 for the means"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_results_and_methods_are_refused_with_those_there_are(what: str, tmp_path: Path) -> None:
    make, options, message = WRONG[what]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "M", **options)


class Pair(nn.Module):
    def forward(self, x: Any) -> Any:
        return x, x.relu()


def test_a_part_that_gives_several_rows_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"0\.nn returns the rows of 2 layers, expected one"):
        export_model(nn.ModuleList([pyg.GINConv(Pair(), train_eps=True)]), tmp_path / "M", features=4)


class Decoding(nn.Module):
    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.enc, self.dec, self.decoder = pyg.GCN(4, 4, 2), nn.Linear(4, 1), decoder

    def forward(self, x: Any, edge_index: Any, pairs: Any = None) -> Any:
        return self.decoder(self.enc(x, edge_index), edge_index)


@pytest.mark.parametrize(
    "decoder",
    [
        lambda z, e: torch.sigmoid(z @ z.t()),
        lambda z, e: (z[e[0]] * z[e[1]]).sum(-1),
        lambda z, e: z.mean(0),
    ],
)
def test_an_encoder_with_a_decoder_is_refused_with_the_name_of_the_encoder(decoder: Any, tmp_path: Path) -> None:
    module = Decoding(decoder)
    with pytest.raises(ExportError, match=r"If its \.enc makes the rows .*export_model\(model\.enc, folder\)$"):
        export_model(module, tmp_path / "M")
    assert len(export_model(module.enc, tmp_path / "M").layers) == 3


def test_what_needs_pairs_is_refused_with_the_method_that_does_not(tmp_path: Path) -> None:
    message = r"edge_label_index are pairs, .* by link_head.* export_model\(model, folder, method='encode'\)$"
    with pytest.raises(ExportError, match=message):
        export_model(Links(), tmp_path / "M")
    export_model(Links(), tmp_path / "M", method="encode")


class ByEdge(nn.Module):
    """A score for each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.score = pyg.GCNConv(4, 4), nn.Linear(8, 1)

    def encode(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x.data, edge_index)

    def forward(self, x: Any, edge_index: Any) -> Any:
        z = self.encode(x, edge_index)
        return self.score(torch.cat([z[edge_index[0]], z[edge_index[1]]], -1))


def test_a_row_for_each_edge_is_refused_with_the_method_that_makes_none(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"^score is a row for each edge.* by link_head. If ByEdge\.encode makes"):
        export_model(ByEdge(), tmp_path / "M")
    export_model(ByEdge(), tmp_path / "M", method="encode")


class OfDicts(nn.Module):
    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return {kind: rows.relu() for kind, rows in self.conv(x_dict, edge_index_dict).items()}


class BySubscript(OfDicts):
    def forward(self, x: Any, edge_index: Any) -> Any:  # type: ignore[override]
        return self.conv(x["paper"], edge_index)


class ByItems(OfDicts):
    def forward(self, x: Any, edge_index: Any) -> Any:  # type: ignore[override]
        return self.conv({kind: rows.relu() for kind, rows in x.items()}, edge_index)


KINDS = {
    "han": (lambda: OfDicts(pyg.HANConv(4, 4, METADATA)), "^conv .*HANConv weighs the 2 relations into 'a' by means"),
    "han by other names": (lambda: ByItems(pyg.HANConv(4, 4, METADATA)), "HANConv weighs the 2 relations into 'a'"),
    "rows of one kind": (lambda: BySubscript(pyg.GCNConv(4, 4)), r"reads its input as a dict.* metadata=\(kinds, rel"),
    "kinds by items": (lambda: ByItems(pyg.GCNConv(4, 4)), r"reads its input as a dict.* metadata=\(kinds, relations"),
}


@pytest.mark.parametrize("what", KINDS)
def test_what_reads_kinds_and_is_not_taken_is_named_with_what_will_do(what: str, tmp_path: Path) -> None:
    make, message = KINDS[what]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "M")


def test_a_part_that_stands_in_two_places_is_taken_twice(tmp_path: Path) -> None:
    act, lin, conv = nn.PReLU(init=-0.5), nn.Linear(4, 4), pyg.SAGEConv(4, 4)
    twice = nn.Sequential(lin, act, nn.Linear(4, 4), act, lin)
    module = nn.ModuleList([conv, act, nn.ModuleList([conv]), act, twice, pyg.GINConv(twice)])
    graph = Graph.plain(*random_graph(3, width=4)[:3])
    x, edges = torch.from_numpy(graph.x), torch.from_numpy(np.stack([graph.src, graph.dst]))
    rows = conv(act(conv(x, edges)), edges)
    assert_gives(export_model(module, tmp_path / "m"), module[5](twice(act(rows)), edges), graph)
