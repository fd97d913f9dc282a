"""Simulated jobs of exported modules with kinds, in 1 to 4 parts: PyTorch Geometric's rows after every epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.data import HeteroData  # noqa: E402

from freshet.gnn.kinds.declarations import HeteroConv  # noqa: E402
from freshet.gnn.own.loading import load_layers  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs.hetero_modules import METADATA, WIDTHS  # noqa: E402
from tests.support.graphs.read_convs import own_and_built_in  # noqa: E402
from tests.support.simulation.module_cases import KindInputs, hold  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def typed(module: Any) -> Callable[..., Any]:
    """Have a module of relations within a kind be called with the type of each edge."""

    def run(given: KindInputs) -> Any:
        types = torch.cat([torch.full((one.shape[1],), i) for i, one in enumerate(given.edges.values())])
        attributes = [torch.cat(list(given.attributes.values()))] if isinstance(module, of.TypedAttributes) else []
        return module(*given.x.values(), torch.cat(list(given.edges.values()), dim=1), types, *attributes)

    return run


class Han(nn.Module):
    """PyG's example han_imdb.py, in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.HANConv(WIDTHS, 6, METADATA, 2, dropout=0.5), pyg.HANConv(6, 4, METADATA)
        self.lin = nn.Linear(4, 3)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.lin(self.second(self.first(x_dict, edge_index_dict), edge_index_dict)["paper"])


@contextmanager
def frozen_at(module: Any, x: Any, edges: Any) -> Iterator[None]:
    """Have PyG's `group` weigh relations as the module does on this graph."""
    from torch_geometric.nn.conv import han_conv

    found, group, number = list[Any](), han_conv.group, -1

    def noted(rows: Any, q: Any, lin: Any) -> Any:
        made = group(rows, q, lin)
        found.append(made[1])
        return made

    def again(rows: Any, q: Any, lin: Any) -> Any:
        nonlocal number
        number += 1
        return (torch.stack(rows) * found[number % len(found)].view(-1, 1, 1)).sum(0), None

    with patch.object(han_conv, "group", noted), torch.no_grad():
        module(x, edges)
    with patch.object(han_conv, "group", again):
        yield


def statistics() -> Any:
    """A graph in which kinds and relations have rows of other sizes."""
    data, some = HeteroData(), torch.Generator().manual_seed(1)
    for kind, width in WIDTHS.items():
        data[kind].x = 2 * torch.randn(20, width, generator=some)
    for relation in METADATA[1]:
        data[relation].edge_index = torch.randint(0, 20, (2, 50), generator=some)
    return data


def test_han_by_the_weights_of_the_exports_graph(tmp_path: Path) -> None:
    module, data = of.randomised(Han()), statistics()
    model = export_model(module, tmp_path, stats_from=data)
    assert model.is_approximate
    exact = module.double()
    with frozen_at(exact, {kind: x.double() for kind, x in data.x_dict.items()}, data.edge_index_dict):
        hold(model, lambda given: exact(given.x, given.edges), (1, 3))


def test_rgat_of_several_heads_and_past_eight_types(tmp_path: Path) -> None:
    module = of.randomised(of.Typed(pyg.RGATConv(3, 4, 9, heads=2), pyg.RGATConv(8, 3, 9, heads=2, concat=False)))
    hold(export_model(module, tmp_path), typed(module.double()), (0, 2))


def test_film_of_types(tmp_path: Path) -> None:
    first, second = pyg.FiLMConv(3, 4, 3, act=nn.Sigmoid()), pyg.FiLMConv(4, 3, 3, nn=nn.Linear(4, 6), aggr="max")
    module = of.randomised(of.Typed(first, second))
    hold(export_model(module, tmp_path), typed(module.double()), (0, 1))


def test_rgat_by_products_of_scores(tmp_path: Path) -> None:
    by_products = {"attention_mode": "multiplicative-self-attention", "heads": 2}
    first = pyg.RGATConv(3, 2, 3, dim=2, **by_products)
    module = of.randomised(of.Typed(first, pyg.RGATConv(8, 3, 3, concat=False, **by_products)))
    hold(export_model(module, tmp_path), typed(module.double()), (0, 1))


def test_rgat_with_attributes_of_edges(tmp_path: Path) -> None:
    first = pyg.RGATConv(3, 2, 3, heads=2, edge_dim=2)
    second = pyg.RGATConv(4, 3, 3, edge_dim=2, attention_mechanism="within-relation")
    module = of.randomised(of.TypedAttributes(first, second))
    model: Any = export_model(module, tmp_path)
    assert [one.edge_features for one in model.relations] == [2, 2, 2]
    hold(model, typed(module.double()), (0, 1))


@pytest.mark.parametrize("written", [False, True])
def test_convs_of_ones_own_beside_those_of_pyg(written: bool, tmp_path: Path) -> None:
    """A gate, an attention and a maximum, read as they run or as written layers, a mean by hand, and SAGEConv."""
    if written:
        load_layers(["tests.support.graphs.own.written_layers"])
    module = of.randomised(own_and_built_in())
    model = export_model(module, tmp_path, metadata=METADATA)
    found = [one.conv.type for layer in model.layers if isinstance(layer, HeteroConv) for one in layer.convs]
    assert (found.count("own_layer"), found.count("message_conv")) == ((2, 1) if written else (0, 3))
    module = module.double()
    hold(model, lambda given: module(given.x, given.edges), range(4))


ENCODED: dict[str, Callable[[], Any]] = {
    "attributes": lambda: of.EncodedEdges(
        lambda: pyg.GATv2Conv(4, 4, edge_dim=3, add_self_loops=False),
        lambda: nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 3)),
    ),
    "weights": lambda: of.EncodedWeights(lambda: pyg.GraphConv(4, 4, aggr="mean"), lambda: nn.Linear(2, 1)),
}


@pytest.mark.parametrize("what", ENCODED)
def test_functions_of_attributes_in_front_of_convs(what: str, tmp_path: Path) -> None:
    module = of.randomised(ENCODED[what]())
    model: Any = export_model(module, tmp_path, metadata=METADATA)
    assert {one.edge_features for one in model.relations} == {2}
    exact = module.double()
    hold(model, lambda given: exact(given.x, given.edges, given.attributes), (0, 1))


IN, REV_IN = ("vertex", "in", "hyperedge"), ("hyperedge", "rev_in", "vertex")


class OfHyperedges(nn.Module):
    """Two HypergraphConvs, whose hyperedges are vertices of a kind of their own."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.first, self.second = pyg.HypergraphConv(3, 4), pyg.HypergraphConv(4, 2, **options)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.second(self.first(x_dict["vertex"], edge_index_dict[IN]).relu(), edge_index_dict[IN])


HYPEREDGES: dict[str, Any] = {
    "metadata": (["vertex", "hyperedge"], [IN, REV_IN]),
    "features": {"vertex": 3, "hyperedge": 1},
}


def test_hyperedges_are_vertices_of_a_kind(tmp_path: Path) -> None:
    module = of.randomised(OfHyperedges())
    model = export_model(module, tmp_path, **HYPEREDGES)
    exact = module.double()
    hold(model, lambda given: exact(given.x, given.edges), (0, 1))


class ScoredHyperedges(nn.Module):
    """A HypergraphConv that reads weights of hyperedges or scores them by what they have."""

    def __init__(self, *, weighs: bool, **options: Any) -> None:
        super().__init__()
        self.conv, self.weighs = pyg.HypergraphConv(3, 2, **options), weighs

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        x, (weight, attributes) = x_dict["vertex"], x_dict["hyperedge"].split([1, 3], dim=1)
        weight = weight.sigmoid().squeeze(-1) if self.weighs else None
        attributes = attributes if self.conv.use_attention else None
        return self.conv(x, edge_index_dict[IN], hyperedge_weight=weight, hyperedge_attr=attributes)


SCORED: dict[str, dict[str, Any]] = {
    "weights": {"weighs": True},
    "shares of members": {"weighs": False, "use_attention": True, "heads": 2},
    "weights and shares of members": {"weighs": True, "use_attention": True, "heads": 2, "concat": False},
    "shares of hyperedges": {"weighs": False, "use_attention": True, "attention_mode": "edge", "bias": False},
    "weights and shares of hyperedges": {"weighs": True, "use_attention": True, "attention_mode": "edge", "heads": 2},
}


@pytest.mark.parametrize("name", SCORED)
def test_hyperedges_with_weights_and_attention(name: str, tmp_path: Path) -> None:
    module = of.randomised(ScoredHyperedges(**SCORED[name]))
    model = export_model(module, tmp_path, **(HYPEREDGES | {"features": {"vertex": 3, "hyperedge": 4}}))
    exact = module.double()
    hold(model, lambda given: exact(given.x, given.edges), (1,))


def test_hyperedges_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is called without hyperedge_attr"):
        export_model(OfHyperedges(use_attention=True).eval(), tmp_path, **HYPEREDGES)
    with pytest.raises(ExportError, match=r"expected a relation from vertices to hyperedges.* and its mirror"):
        export_model(OfHyperedges().eval(), tmp_path, **HYPEREDGES, mirrors={})
