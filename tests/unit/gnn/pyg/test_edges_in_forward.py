"""What a forward does to edges and weights: moving them about is taken, changing them is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric import nn as pyg
from torch_geometric import utils
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from freshet.gnn.pyg.export import ExportError, export_model

Change = Callable[[Any, Any], Any]
GCNConv = pyg.GCNConv


class Net(nn.Module):
    """A GCN that does something with its edges or weights first."""

    def __init__(self, edges: Change = lambda e, x: e, weights: Change = lambda w, x: w) -> None:
        super().__init__()
        self.conv, self.drop = GCNConv(4, 4), nn.Dropout()
        self.edges, self.weights = edges, weights


class ByIndex(Net):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x, self.edges(edge_index, x))


class ByWeight(Net):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.conv(x, edge_index, self.weights(edge_weight, x))


class ByAttribute(Net):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.conv(x, edge_index, self.drop(self.weights(edge_attr, x)))


EDGES_KEPT: list[Change] = [
    lambda e, x: e.to(x.device),
    lambda e, x: e.to("cpu", torch.long).contiguous(),
    lambda e, x: e.long().clone().detach(),
    lambda e, x: e.int(),
    lambda e, x: e.view(2, -1).reshape(2, e.size(1)),
    lambda e, x: e.t().contiguous().t(),
    lambda e, x: e.unsqueeze(0).squeeze(0)[:, :],
    lambda e, x: torch.stack([e[0], e[1]], dim=0),
    lambda e, x: e.t() if utils.is_sparse(e) else e,
    lambda e, x: utils.dropout_edge(e, p=0.5, training=False)[0],
]
WEIGHTS_KEPT: list[Change] = [
    lambda w, x: w.float().to(x.dtype).type_as(x),
    lambda w, x: w.view(-1),
    lambda w, x: w.squeeze(-1),
    lambda w, x: torch.squeeze(w, -1).flatten(),
    lambda w, x: w.reshape(-1).ravel(),
    lambda w, x: w.unsqueeze(-1).squeeze(-1),
    lambda w, x: w.view(-1, 1)[:, 0],
    lambda w, x: w.squeeze(-1) if w.dim() == 2 else w,
    lambda w, x: functional.dropout(w, 0.5, training=False),
]
A_COLUMN: list[Change] = [
    lambda w, x: w[:, 0],
    lambda w, x: w[..., 0],
    lambda w, x: w.squeeze(1),
    lambda w, x: w.t()[0],
]


@pytest.mark.parametrize("change", range(len(EDGES_KEPT)))
def test_edges_that_are_moved_about_are_taken(change: int, tmp_path: Path) -> None:
    [layer] = export_model(ByIndex(edges=EDGES_KEPT[change]), tmp_path / "M").layers
    assert layer.type == "gcn_conv" and not layer.edge_weights


@pytest.mark.parametrize("kind", [ByWeight, ByAttribute])
@pytest.mark.parametrize("change", range(len(WEIGHTS_KEPT + A_COLUMN)))
def test_weights_that_are_moved_about_are_taken(kind: type[Net], change: int, tmp_path: Path) -> None:
    """Also attributes (edges, 1), of which forward reads the column."""
    [layer] = export_model(kind(weights=(WEIGHTS_KEPT + A_COLUMN)[change]), tmp_path / "M").layers
    assert layer.type == "gcn_conv" and layer.edge_weights


CHANGED = {
    "turned": (ByIndex, lambda e, x: e.t(), "it gets t of shape .edges, 2., expected edge_index .2, edges."),
    "the first": (ByIndex, lambda e, x: e[:, :4000], "getitem .* it changes edges"),
    "all but one": (ByIndex, lambda e, x: e[:, :-1], "getitem .* it changes edges"),
    "rounded ids": (ByIndex, lambda e, x: e.float(), "edges become torch.float32, expected torch.int64 or torch.int32"),
    "whole weights": (ByWeight, lambda w, x: w.long(), "edge weights become torch.int64, expected torch.float32"),
    "by a type's name": (ByWeight, lambda w, x: w.type("torch.LongTensor"), "type_1 .* it changes edges or their"),
    "half": (ByWeight, lambda w, x: w.half().float(), "half .* it changes edges or their weights"),
    "per edge": (ByWeight, lambda w, x: w / w.size(0), "a size of the graph, which every event may change"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_changes_edges_or_weights_is_refused_with_its_reason(what: str, tmp_path: Path) -> None:
    kind, change, message = CHANGED[what]
    with pytest.raises(ExportError, match=message):
        export_model(kind(change, change), tmp_path / "M")


OF_PYG = {
    "add_self_loops": (lambda e, x: utils.add_self_loops(e, num_nodes=x.size(0))[0], "add_self_loops=True"),
    "add_remaining_self_loops": (lambda e, x: utils.add_remaining_self_loops(e)[0], "have the conv add self-loops"),
    "contains_self_loops": (lambda e, x: e if utils.contains_self_loops(e) else e.flip(0), "out of the stream"),
    "gcn_norm": (lambda e, x: gcn_norm(e, None, x.size(0))[0], r"GCNConv\(normalize=True\)"),
    "to_undirected": (lambda e, x: utils.to_undirected(e), "--undirected"),
    "dropout_edge": (lambda e, x: utils.dropout_edge(e, p=0.5)[0], "pass training=self.training"),
    "coalesce": (lambda e, x: utils.coalesce(e), "each is there once"),
    "to_dense_adj": (lambda e, x: utils.to_dense_adj(e), "give convs edge_index itself"),
    "subgraph": (lambda e, x: utils.subgraph([0, 1], e)[0], "behind self.training"),
}


@pytest.mark.parametrize("name", OF_PYG)
def test_functions_of_edges_are_named_with_what_to_do(name: str, tmp_path: Path) -> None:
    change, instead = OF_PYG[name]
    with pytest.raises(ExportError, match=rf"{name} \(test_edges_in_forward.py:\d+\) .*{instead}"):
        export_model(ByIndex(edges=change), tmp_path / "M")


class Rows(nn.Module):
    """A GCN whose rows are read so."""

    def __init__(self, read: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self.conv, self.read = GCNConv(4, 4), read

    def forward(self, x: Any, edge_index: Any = None, batch_size: Any = None) -> Any:
        return self.read(self.conv(x, edge_index), x, batch_size)


@pytest.mark.parametrize(
    "read",
    [
        lambda h, x, n: h[:n],
        lambda h, x, n: h[:n, :],
        lambda h, x, n: h[: x.size(0)],
        lambda h, x, n: h[0 : x.shape[0]],
        lambda h, x, n: h.narrow(0, 0, x.size(0)),
        lambda h, x, n: h.view(x.size(0), -1).to(x.device),
    ],
)
def test_a_slice_that_keeps_all_rows_and_edges_with_a_default_are_taken(read: Any, tmp_path: Path) -> None:
    assert [layer.type for layer in export_model(Rows(read), tmp_path / "M").layers] == ["gcn_conv"]


@pytest.mark.parametrize(
    "read", [lambda h, x, n: h[:10], lambda h, x, n: h[:10, :2], lambda h, x, n: h[1:], lambda h, x, n: h[:100_000]]
)
def test_a_slice_that_may_not_keep_all_is_refused(read: Any, tmp_path: Path) -> None:
    """Also one that keeps all rows of the graph that an export is checked on."""
    with pytest.raises(ExportError, match=r"getitem keeps some of the rows. Taken are all, as h\[:n\] with"):
        export_model(Rows(read), tmp_path / "M")


def edges_by_name(s: Any, x: Any, *, edge_index: Any) -> Any:
    return s.conv(x, edge_index)


def edges_come_third(s: Any, x: Any, batch: Any = None, edge_index: Any = None, edge_weight: Any = None) -> Any:
    return s.conv(x, edge_index, edge_weight)


@pytest.mark.parametrize(("forward", "weighted"), [(edges_by_name, False), (edges_come_third, True)])
def test_edges_are_found_by_their_name(forward: Any, weighted: bool, tmp_path: Path) -> None:
    made = type("Made", (nn.Module,), {"forward": forward})()
    made.conv = GCNConv(4, 4)
    assert export_model(made, tmp_path / "M").layers[0].edge_weights is weighted


def lambdas(*functions: Any) -> nn.Module:
    """A Sequential of a GCN and functions of the input and of its rows."""
    return pyg.Sequential("x, e", [(GCNConv(4, 4), "x, e -> h"), *((one, "x, h -> h") for one in functions)])


def test_functions_in_a_sequential_are_traced(tmp_path: Path) -> None:
    model = export_model(lambdas(lambda a, b: a + b, lambda a, b: functional.elu(b - 0.5 * a)), tmp_path / "M")
    assert [layer.type for layer in model.layers][-2:] == ["join", "elu"]
    one = pyg.Sequential("x, e", [(GCNConv(4, 4), "x, e -> x"), (lambda x: x * 2, "x -> x")])
    assert [layer.type for layer in export_model(one, tmp_path / "N").layers] == ["gcn_conv", "scale"]
    with pytest.raises(ExportError, match=r"^module_1.mean \(test_edges_in_forward.py:\d+\): function mean"):
        export_model(lambdas(lambda a, b: b.mean(0)), tmp_path / "O")


@pytest.mark.parametrize("mode", ["sum", "max"])
def test_modes_of_lists_of_aggregators_are_read_as_they_run(mode: str, tmp_path: Path) -> None:
    several = pyg.MultiAggregation(["mean", "max"], mode=mode)
    model = export_model(nn.ModuleList([pyg.SAGEConv(4, 4, aggr=several)]), tmp_path / "M")
    assert sorted(one.aggr for one in model.layers if hasattr(one, "aggr")) == ["max", "mean"], (
        "and equal, by the check"
    )


def test_a_conv_of_one_aggregator_says_so(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="it has one aggregator here, sum or mean"):
        export_model(nn.ModuleList([pyg.GraphConv(4, 4, aggr=["mean", "max"])]), tmp_path / "M")
