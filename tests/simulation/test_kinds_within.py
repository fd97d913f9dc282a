"""Simulated jobs of convs on a relation within one kind that are several convs: PyG's rows after every epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.nn.conv.gcn_conv import gcn_norm  # noqa: E402

from freshet.gnn.kinds.declarations import HeteroConv  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs import read_convs as own  # noqa: E402
from tests.support.simulation.module_cases import hold  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
KNOWS, BUYS = ("user", "knows", "user"), ("item", "of", "user")
METADATA = ["user", "item"], [KNOWS, BUYS]
WIDTHS = {"user": 4, "item": 3}


class Within(nn.Module):
    """A conv among users beside what items send them, and a layer behind both."""

    def __init__(self, conv: Any, out: int) -> None:
        super().__init__()
        self.conv, self.lin = pyg.HeteroConv({KNOWS: conv, BUYS: pyg.SAGEConv((3, 4), out)}), nn.Linear(out, 2)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.lin(self.conv(x_dict, edge_index_dict)["user"].tanh())


class Weighted(Within):
    """The same with weights of the edges among users."""

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any) -> Any:  # type: ignore[override]
        weights = {KNOWS: edge_weight_dict[KNOWS]}
        return self.lin(self.conv(x_dict, edge_index_dict, edge_weight_dict=weights)["user"].tanh())


class Attributed(Within):
    """The same with attributes of these edges."""

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:  # type: ignore[override]
        attributes = {KNOWS: edge_attr_dict[KNOWS]}
        return self.lin(self.conv(x_dict, edge_index_dict, edge_attr_dict=attributes)["user"].tanh())


class OfFirst(Within):
    """A conv that reads the rows of the first layer, too."""

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        x, edges = x_dict["user"], edge_index_dict[KNOWS]
        conv, other = self.conv.convs.values()
        return self.lin(conv(x.tanh(), x, edges) + other((x_dict["item"], x), edge_index_dict[BUYS]))


class UnlearnedConv(pyg.MessagePassing):
    """Two hops without anything that says how wide rows are."""

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        edge_index, norm = gcn_norm(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        for _ in range(2):
            x = self.propagate(edge_index, x=x, norm=norm)
        return x

    def message(self, x_j: Any, norm: Any) -> Any:
        return norm.view(-1, 1) * x_j


GOES_ON = "x, edge_index -> x"
REMOVED, ADDED, REMAINING = "remove_self_loops", "add_self_loops", "add_remaining_self_loops"
CONVS: dict[str, tuple[Callable[[], Any], int]] = {
    "SGConv": (lambda: Weighted(pyg.SGConv(4, 3, K=2), 3), 2),
    "SSGConv": (lambda: Within(pyg.SSGConv(4, 3, 0.1, K=2), 3), 2),
    "TAGConv": (lambda: Weighted(pyg.TAGConv(4, 3, K=2), 3), 2),
    "APPNP": (lambda: Within(pyg.APPNP(2, 0.1), 4), 2),
    "MixHopConv": (lambda: Within(pyg.MixHopConv(4, 2), 6), 2),
    "ARMAConv": (lambda: Weighted(pyg.ARMAConv(4, 3, num_stacks=2, num_layers=2), 3), 2),
    "ClusterGCNConv": (lambda: Within(pyg.ClusterGCNConv(4, 3), 3), 1),
    "EGConv": (lambda: Within(pyg.EGConv(4, 4, ["symnorm", "max"], num_heads=2), 4), 2),
    "GCN2Conv": (lambda: OfFirst(pyg.GCN2Conv(4, 0.2, theta=0.5, layer=1, shared_weights=False), 4), 1),
    "FAConv": (lambda: OfFirst(pyg.FAConv(4, 0.3), 4), 2),
    "FAConv without loops": (lambda: OfFirst(pyg.FAConv(4, add_self_loops=False), 4), 2),
    "PDNConv": (lambda: Attributed(pyg.PDNConv(4, 3, 2, 5), 3), 4),
    "WLConvContinuous": (lambda: Weighted(pyg.WLConvContinuous(), 4), 1),
    "FeaStConv": (lambda: Within(pyg.FeaStConv(4, 3, heads=2), 3), 1),
    "SimpleConv": (lambda: Within(pyg.SimpleConv("sum", "self_loop"), 4), 1),
    "loops that are there": (lambda: Weighted(own.LoopsConv(4, 3, REMAINING, aggr="mean"), 3), 1),
    "loops beside others": (lambda: Weighted(own.LoopsConv(4, 3, ADDED, aggr="max"), 3), 1),
    "other loops": (lambda: Weighted(own.LoopsConv(4, 3, REMOVED, ADDED, heads=1), 3), 1),
    "no loops": (lambda: Weighted(own.LoopsConv(4, 3, REMOVED), 3), 1),
    "loops with attributes": (
        lambda: Attributed(own.AttributedLoopsConv(4, 3, REMOVED, ADDED, aggr=["max", "std"], edge_dim=2), 6), 1,
    ),
    "degrees by hand": (lambda: Within(own.DegreeConv(4, 3, REMAINING), 3), 1),
    "a mean by hand": (lambda: Within(own.MeanByHandConv(4, 3), 3), 2),
    "GatedGraphConv, which widens": (lambda: Within(pyg.GatedGraphConv(6, 2), 6), 2),
    "AntiSymmetricConv": (lambda: Within(pyg.AntiSymmetricConv(4), 4), 1),
    "a model of convs": (lambda: Weighted(pyg.GCN(4, 5, 2, 3), 3), 2),
    "a layer with norm": (lambda: Within(pyg.DeepGCNLayer(pyg.SGConv(4, 4, 2), nn.LayerNorm(4), nn.ReLU()), 4), 2),
    "a Sequential": (
        lambda: Within(
            pyg.Sequential("x, edge_index", [(pyg.GINConv(of.mlp(4, 4)), GOES_ON), (pyg.SAGEConv(4, 3), GOES_ON)]), 3
        ),
        2,
    ),
    "nothing learned": (lambda: Weighted(UnlearnedConv(), 4), 2),
    "hops of one's own": (lambda: Weighted(own.PageRankConv(4, 3), 3), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVS)
def test_several_convs_on_a_relation_within_one_kind(name: str, tmp_path: Path) -> None:
    make, convs = CONVS[name]
    module = of.randomised(make())
    edges = 2 if isinstance(module, Attributed) else None
    model: Any = export_model(module, tmp_path, metadata=METADATA, features=WIDTHS, edge_features=edges)
    found = [one.relation for layer in model.layers if isinstance(layer, HeteroConv) for one in layer.convs]
    assert found.count(0) == convs and found.count(1) == 1
    module.double()

    def run(given: Any) -> Any:
        more = [given.weights] if isinstance(module, Weighted) else []
        return module(given.x, given.edges, *more, *([given.attributes] if edges else []))

    hold(model, run, (1, 2))
