"""A forward that takes what a sampler lists for each layer: all of them are the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.loader.neighbor_sampler import EdgeIndex  # noqa: E402
from torch_geometric.utils import trim_to_layer  # noqa: E402

from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.oracles import whole_graph  # noqa: E402
from freshet.gnn.plan import compile_plan  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.schema import EdgeValues, Graph  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402

IN = 4


class Net(nn.Module):
    """Three convs, and whatever a function makes of layers."""

    def __init__(self, function: Callable[[Any, Any, Any], Any] = torch.relu) -> None:
        super().__init__()
        self.function = function
        self.convs = nn.ModuleList([pyg.SAGEConv(IN, IN) for _ in range(3)])
        self.skips = nn.ModuleList([nn.Linear(IN, IN) for _ in range(3)])

    def forward(self, x: Any, adjs: Any) -> Any:
        return self.function(self, x, adjs)


def as_it_is_written(s: Any, x: Any, adjs: Any) -> Any:
    for i, (edge_index, _, size) in enumerate(adjs):
        x = s.convs[i]((x, x[: size[1]]), edge_index)
        x = x.relu() if i != len(s.convs) - 1 else x
    return x


def with_skips(s: Any, x: Any, adjs: Any) -> Any:
    for i, adj in enumerate(adjs):
        edge_index, _, size = adj.to(x.device)
        target = x[: size[1]]
        x = s.convs[i]((x, target), edge_index) + s.skips[i](target)
        x = x.relu() if i != len(adjs) - 1 else x
    return x


def side_by_side(s: Any, x: Any, adjs: Any) -> Any:
    for conv, adj in zip(s.convs, adjs, strict=False):
        x = conv((x, x[: adj.size[1]]), adj.edge_index)
    return x


def in_pairs(s: Any, x: Any, adjs: Any) -> Any:
    for i, (edge_index, size) in enumerate(adjs):
        x = s.convs[i]((x, x[: size[1]]), edge_index)
    return x


def first_two(s: Any, x: Any, adjs: Any) -> Any:
    return s.convs[1](s.convs[0](x, adjs[0].edge_index), adjs[1][0])


def of_their_number(s: Any, x: Any, adjs: Any) -> Any:
    if len(adjs) != len(s.convs):
        msg = "not as many as convs"
        raise ValueError(msg)
    return as_it_is_written(s, x, adjs)


TAKEN = {
    "as it is written": (as_it_is_written, 3),
    "with skips": (with_skips, 3),
    "side by side": (side_by_side, 3),
    "in pairs": (in_pairs, 3),
    "first two": (first_two, 2),
    "of their number": (of_their_number, 3),
}


@pytest.mark.parametrize("what", TAKEN)
def test_each_layer_is_the_whole_graph(what: str, tmp_path: Path) -> None:
    function, count = TAKEN[what]
    module = Net(function).eval()
    model = export_model(module, tmp_path)
    graph = random_graph(5, width=IN)
    edges, size = torch.from_numpy(np.stack([graph.src, graph.dst])), (len(graph.x),) * 2
    layer = (edges, size) if function is in_pairs else EdgeIndex(edges, None, size)
    with torch.no_grad():
        truth = module(torch.from_numpy(graph.x), [layer] * count).numpy()
    given = Graph(graph.x, graph.src, graph.dst, EdgeValues(len(graph.src), {}))
    [*_, rows] = whole_graph.forward(compile_plan(model), given)  # type: ignore[arg-type]
    np.testing.assert_allclose(rows, truth, rtol=0, atol=1e-4)


class Cut(Net):
    def forward(self, x: Any, adjs: Any, batch_size: Any) -> Any:  # type: ignore[override]
        return as_it_is_written(self, x, adjs)[:batch_size]


def test_the_size_of_a_batch_is_that_of_all(tmp_path: Path) -> None:
    model = export_model(Cut(), tmp_path)
    assert [layer.type for layer in model.layers if "conv" in layer.type] == ["sage_conv"] * 3


def one_conv(s: Any, x: Any, adjs: Any) -> Any:
    for edge_index, _, _ in adjs:
        x = s.convs[0](x, edge_index)
    return x


def other_third(s: Any, x: Any, adjs: Any) -> Any:
    for i, (edge_index, _, size) in enumerate(adjs):
        x = s.convs[i](x, edge_index) / (size[0] if i == 2 else 1)
    return x


def some_edges(s: Any, x: Any, adjs: Any) -> Any:
    for i, (edge_index, _, size) in enumerate(adjs):
        x = s.convs[i](x, edge_index[:, : size[0]])
    return x


REFUSED = {
    "one conv": (one_conv, "Net.forward takes as many layers in adjs as it is given: have a conv for each, as self"),
    "another third layer": (other_third, r"truediv_2 \(test_sampled_layers.py:\d+\) reads .*: a size of the graph"),
    "some edges": (some_edges, "reads something other than rows of layers, edges and constants: it changes edges"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    function, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(Net(function), tmp_path / "M")


class Hops(Net):
    """Convs of a sample's hops, which PyG trims to what the next layer needs."""

    def forward(self, x: Any, edge_index: Any, num_sampled_nodes: Any, num_sampled_edges: Any) -> Any:
        for i, conv in enumerate(self.convs):
            x, edge_index, _ = trim_to_layer(i, num_sampled_nodes, num_sampled_edges, x, edge_index)
            x = conv(x, edge_index).relu()
        return x[: num_sampled_nodes[0]]


class Hands(Net):
    def __init__(self) -> None:
        super().__init__()
        self.gnn = pyg.GraphSAGE(IN, 5, 2)

    def forward(self, x: Any, edge_index: Any, num_sampled_nodes_per_hop: Any, num_sampled_edges_per_hop: Any) -> Any:
        return self.gnn(
            x,
            edge_index,
            num_sampled_nodes_per_hop=num_sampled_nodes_per_hop,
            num_sampled_edges_per_hop=num_sampled_edges_per_hop,
        )


class Trims(Hops):
    def forward(self, x: Any, edge_index: Any, num_sampled_nodes: Any = None, num_sampled_edges: Any = None) -> Any:
        for i, conv in enumerate(self.convs):
            if num_sampled_nodes is not None:
                x, edge_index, _ = trim_to_layer(i, num_sampled_nodes, num_sampled_edges, x, edge_index)
            x = conv(x, edge_index).relu()
        return x


@pytest.mark.parametrize("kind", [Hops, Hands, Trims])
def test_hops_are_those_of_the_whole_graph(kind: Any, tmp_path: Path) -> None:
    module = kind().eval()
    model = export_model(module, tmp_path)
    graph = random_graph(5, width=IN)
    edges = torch.from_numpy(np.stack([graph.src, graph.dst]))
    with torch.no_grad():
        truth = module(torch.from_numpy(graph.x), edges, [len(graph.x), 0, 0], [len(graph.src), 0, 0]).numpy()
    given = Graph(graph.x, graph.src, graph.dst, EdgeValues(len(graph.src), {}))
    [*_, rows] = whole_graph.forward(compile_plan(model), given)  # type: ignore[arg-type]
    np.testing.assert_allclose(rows, truth, rtol=0, atol=1e-4)


class Counts(Net):
    def forward(self, x: Any, edge_index: Any, num_sampled_nodes: Any) -> Any:
        return self.convs[0](x, edge_index) / num_sampled_nodes[0]


def test_a_size_of_a_hop_is_none_to_compute_with(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="a size of the graph, which every event may change"):
        export_model(Counts(), tmp_path / "M")


class HopsOfKinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        relations = [("a", "to", "b"), ("b", "rev_to", "a")]
        convs = [pyg.HeteroConv({one: pyg.SAGEConv((IN, IN), IN) for one in relations}) for _ in range(2)]
        self.convs = nn.ModuleList(convs)

    def forward(
        self, x_dict: Any, edge_index_dict: Any, num_sampled_edges_dict: Any, num_sampled_nodes_dict: Any
    ) -> Any:
        for i, conv in enumerate(self.convs):
            x_dict, edge_index_dict, _ = trim_to_layer(
                i, num_sampled_nodes_dict, num_sampled_edges_dict, x_dict, edge_index_dict
            )
            x_dict = {kind: x.relu() for kind, x in conv(x_dict, edge_index_dict).items()}
        return x_dict["b"]


class HopsOfData(HopsOfKinds):
    def forward(self, batch: Any) -> Any:  # type: ignore[override]
        hops = batch.num_sampled_edges_dict, batch.num_sampled_nodes_dict
        return super().forward(batch.x_dict, batch.edge_index_dict, *hops)[: batch["b"].batch_size]


class OtherRows(HopsOfKinds):
    def forward(self, batch: Any) -> Any:  # type: ignore[override]
        return self.convs[0](batch.x_dict, batch.edge_index_dict)["b"][: batch["a"].batch_size]


@pytest.mark.filterwarnings("ignore")
def test_the_rows_of_a_kind_have_its_own_number(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"getitem .* keeps some of the rows"):
        export_model(OtherRows(), tmp_path / "M")


class HopsOfTypes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.RGCNConv(IN, IN, 2) for _ in range(2)])

    def forward(self, x: Any, edge_index: Any, edge_type: Any, num_sampled_nodes: Any, num_sampled_edges: Any) -> Any:
        for i, conv in enumerate(self.convs):
            x, edge_index, edge_type = trim_to_layer(i, num_sampled_nodes, num_sampled_edges, x, edge_index, edge_type)
            x = conv(x, edge_index, edge_type).relu()
        return x


@pytest.mark.parametrize("kind", [HopsOfKinds, HopsOfData, HopsOfTypes])
def test_hops_of_kinds_and_types(kind: Any, tmp_path: Path) -> None:
    """The export compares the model with the module on random graphs."""
    model = export_model(kind(), tmp_path)
    assert isinstance(model, KindsModel)
    assert sum(type(layer).__name__ == "HeteroConv" for layer in model.layers) == 2
