"""Convs that are hops with linear layers and products around: exported, they give what PyG gives, with every option."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.unit.gnn.pyg.test_export import IN, assert_same, exported, inputs  # noqa: E402


class Called(nn.Module):
    """A conv behind a linear layer, which hands it weights or not."""

    def __init__(self, conv: Any, *, weighted: bool) -> None:
        super().__init__()
        conv, self.options = conv if isinstance(conv, tuple) else (conv, {})
        self.lin, self.conv, self.weighted = nn.Linear(IN, 4), conv, weighted
        self.register_buffer("largest", torch.tensor(3.0))

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        x = self.lin(x).tanh()
        options = {name: self.largest if value is None else value for name, value in self.options.items()}
        given = (x, edge_index, edge_weight) if self.weighted else (x, edge_index)
        return self.conv(*given, **options)


ALL = ["mean", "max", "min", "std", "var"]
WEIGHTED: dict[str, Any] = {
    "le": lambda: pyg.LEConv(4, 3),
    "le-mean": lambda: pyg.LEConv(4, 6, aggr="mean", bias=False),
    "wl": lambda: pyg.WLConvContinuous(),
    "arma": lambda: pyg.ARMAConv(4, 3),
    "arma-stacks": lambda: pyg.ARMAConv(4, 5, num_stacks=3, num_layers=2, dropout=0.5, act=F.elu),
    "arma-shared": lambda: pyg.ARMAConv(4, 3, num_stacks=2, num_layers=3, shared_weights=True, bias=False, act=None),
    "arma-identity": lambda: pyg.ARMAConv(4, 3, num_layers=2, act=lambda x: x),
    "arma-max": lambda: pyg.ARMAConv(4, 3, num_stacks=2, aggr="max", act=nn.PReLU()),
    "anti-symmetric": lambda: pyg.AntiSymmetricConv(4),
    "anti-symmetric-graph_conv": lambda: pyg.AntiSymmetricConv(
        4, pyg.GraphConv(4, 4, aggr="max"), num_iters=3, epsilon=0.25, gamma=0.5, act="leaky_relu",
        act_kwargs={"negative_slope": 0.25}, bias=False,
    ),
    "anti-symmetric-tag": lambda: pyg.AntiSymmetricConv(4, pyg.TAGConv(4, 4, K=2), act=None),
    "cheb-scaled": lambda: (pyg.ChebConv(4, 3, 3), {"lambda_max": 2.0}),
    "cheb-rw-scaled": lambda: (pyg.ChebConv(4, 3, 4, "rw", bias=False), {"lambda_max": 1.5}),
    "cheb-none-scaled": lambda: (pyg.ChebConv(4, 3, 2, None), {"lambda_max": None}),
    "sg-max": lambda: pyg.SGConv(4, 3, K=2, aggr="max"),
    "tag-std": lambda: pyg.TAGConv(4, 3, K=2, aggr="std"),
    "lg-mean": lambda: pyg.LGConv(aggr="mean"),
    **{f"simple-{aggr}": lambda aggr=aggr: pyg.SimpleConv(aggr=aggr, combine_root="cat") for aggr in ALL},
    **{f"loops-{aggr}": lambda aggr=aggr: pyg.SimpleConv(aggr=aggr, combine_root="self_loop") for aggr in ALL},
}  # fmt: skip
UNWEIGHTED: dict[str, Any] = {
    **{f"le-{aggr}": lambda aggr=aggr: pyg.LEConv(4, 3, aggr=aggr) for aggr in ALL},
    "film": lambda: pyg.FiLMConv(4, 3),
    "film-max": lambda: pyg.FiLMConv(4, 3, aggr="max", act=nn.Tanh()),
    "film-plain": lambda: pyg.FiLMConv(4, 3, aggr="add", act=None),
    "film-nn": lambda: pyg.FiLMConv(
        4, 3, nn=nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6)), act=nn.PReLU(), aggr="std"
    ),
    "cheb": lambda: pyg.ChebConv(4, 3, 4),
    "cheb-rw": lambda: pyg.ChebConv(4, 5, 2, "rw"),
    "cheb-none": lambda: (pyg.ChebConv(4, 3, 3, None), {"lambda_max": 8}),
    "cluster-gcn": lambda: pyg.ClusterGCNConv(4, 3),
    "cluster-gcn-lambda": lambda: pyg.ClusterGCNConv(4, 5, diag_lambda=0.75, bias=False),
    "anti-symmetric-gat": lambda: pyg.AntiSymmetricConv(4, pyg.GATConv(4, 4), act=torch.relu),
    "eg": lambda: pyg.EGConv(4, 8, num_heads=4, num_bases=3),
    "eg-several": lambda: pyg.EGConv(4, 6, ["sum", "symnorm", "max", "var"], num_heads=2, num_bases=2, cached=True),
    "eg-no-loops": lambda: pyg.EGConv(
        4, 6, ["mean", "min", "symnorm"], num_heads=2, add_self_loops=False, bias=False
    ),
    "eg-without-norm": lambda: pyg.EGConv(4, 6, ["mean", "max"], num_heads=3, add_self_loops=False),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name"), [("weighted", n) for n in WEIGHTED] + [("unweighted", n) for n in UNWEIGHTED]
)
def test_it_gives_what_pyg_gives(kind: str, name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    is_weighted = kind == "weighted"
    module = Called((WEIGHTED if is_weighted else UNWEIGHTED)[name](), weighted=is_weighted)
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)  # biases begin at 0
    model = exported(module, tmp_path)
    graph, *given = inputs()
    with torch.no_grad():
        assert_same(model, module.eval()(*given), graph)


class Within(nn.Module):
    """A Sequential of PyG's within a module that keeps what forwards take."""

    def __init__(self) -> None:
        super().__init__()
        convs = [(one, "x, edge_index -> x") for one in (pyg.GCNConv(IN, 4), pyg.GATConv(4, 3))]
        self.model = pyg.Sequential("x, edge_index", [convs[0], pyg.BatchNorm(4), nn.PReLU(), convs[1], torch.tanh])
        self.taken = [inspect.signature(conv.forward).parameters for conv, _ in convs]

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.model(x, edge_index) if "edge_index" in self.taken[0] else x


def test_a_sequential_within_a_module(tmp_path: Path) -> None:
    model = exported(Within(), tmp_path)
    assert [one.type for one in model.layers if hasattr(one, "add_self_loops")] == ["gcn_conv", "gat_conv"]


class HandedOn(nn.Module):
    """A forward that hands weights to whatever convs it has, as the third argument."""

    def __init__(self, *convs: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        for conv in self.convs:
            x = conv(x, edge_index, edge_weight)
        return x


def test_weights_that_convs_take_for_their_size_stay_none(tmp_path: Path) -> None:
    exported(HandedOn(pyg.SAGEConv(IN, 4), pyg.SAGEConv(4, 3)), tmp_path / "one")
    with pytest.raises(ExportError, match=r"convs.0 \(test_composed.py:\d+\) reads something other"):
        export_model(HandedOn(pyg.SAGEConv(IN, 4), pyg.GCNConv(4, 3)), tmp_path / "two")


REFUSED: dict[str, tuple[Any, bool, str]] = {
    "le-max": (
        lambda: pyg.LEConv(4, 3, aggr="max"),
        True,
        "conv: LEConv with aggr='max' and edge weights is not supported: each weight .* without edge weights",
    ),
    "cluster-median": (
        *(lambda: pyg.ClusterGCNConv(4, 3, aggr="median"), False),
        "ClusterGCNConv with aggr='median' is not",
    ),
    "cluster-max": (lambda: pyg.ClusterGCNConv(4, 3, aggr="max"), False, "conv: ClusterGCNConv with aggr='max' is not"),
    "cluster-no-loops": (
        lambda: pyg.ClusterGCNConv(4, 3, add_self_loops=False),
        False,
        "conv: ClusterGCNConv with add_self_loops=False is not supported: PyG itself fails",
    ),
    "cheb-weights": (lambda: pyg.ChebConv(4, 3, 2), True, "conv: ChebConv with edge weights .* with lambda_max=2.0"),
    "cheb-none": (lambda: pyg.ChebConv(4, 3, 2, None), False, "conv: ChebConv with normalization=None scales by"),
    "cheb-max": (lambda: pyg.ChebConv(4, 3, 2, aggr="max"), False, "conv: ChebConv with aggr='max' is not supported"),
    "cheb-lambda": (
        lambda: (pyg.ChebConv(4, 3, 2), {"lambda_max": -1.0}),
        True,
        "conv: ChebConv is called with lambda_max=-1.0, expected one number above 0",
    ),
    "film-relations": (
        lambda: pyg.FiLMConv(4, 3, num_relations=2),
        False,
        "conv: FiLMConv with num_relations=2 is not supported: it reads the type of each edge",
    ),
    "eg-loops": (
        lambda: pyg.EGConv(4, 8, ["mean"]),
        False,
        "conv: EGConv with add_self_loops and without the aggregator 'symnorm' is not supported: .* Nearest: 'symnorm'",
    ),
    "phi": (lambda: pyg.AntiSymmetricConv(4, pyg.LEConv(4, 4, aggr="max")), True, "conv.phi: LEConv with aggr='max'"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_taken_is_refused_by_name(what: str, tmp_path: Path) -> None:
    make, weighted, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(Called(make(), weighted=weighted), tmp_path / "m")
    assert not (tmp_path / "m").exists()
