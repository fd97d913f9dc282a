"""A model of every layer that Freshet knows, for equal_embed.py: one to three hops, mostly two, to 8 channels.

All but CommNet and PinSAGE, which PyTorch Geometric does not have, are its modules: they are exported, and the module
itself is the oracle. A test holds that every kind of layer is there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from freshet.gnn.model import Model, save_model
from freshet.gnn.pyg import oracle as torch_oracle
from freshet.gnn.pyg.export import export_model
from freshet.schema import Graph
from tests.support.graphs.models import make_model

HIDDEN, OUT = 16, 8
SEED = 15
AGGREGATORS = ["mean", "min", "max", "std"]
SCALERS = ["identity", "amplification", "attenuation"]
WEIGHTED = "x, edge_index, edge_weight"

Make = Callable[[int], Any]


class Gcn2(nn.Module):
    """GCN2Conv reads the first rows in every layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, HIDDEN), nn.Linear(HIDDEN, OUT)
        self.convs = nn.ModuleList(pyg.GCN2Conv(HIDDEN, alpha=0.1, theta=0.5, layer=k + 1) for k in range(2))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """Return the embeddings."""
        first = h = self.first(x).relu()
        for conv in self.convs:
            h = conv(h, first, edge_index, edge_weight).relu()
        return self.last(h)


def two(make: Callable[..., Any], *, weighted: bool = False, **options: Any) -> Make:
    """Two convs with a ReLU between them."""

    def made(width: int) -> Any:
        reads = f"{WEIGHTED if weighted else 'x, edge_index'} -> x"
        convs = make(width, HIDDEN, **options), make(HIDDEN, OUT, **options)
        return pyg.Sequential(WEIGHTED, [(convs[0], reads), nn.ReLU(), (convs[1], reads)])

    return made


def hops(make: Callable[..., Any], *, linear: bool = False) -> Make:
    """One layer of several hops that reads weights; `linear`: behind a linear layer, where it has no weights itself."""

    def made(width: int) -> Any:
        reads = f"{WEIGHTED} -> x"
        if linear:
            return pyg.Sequential(WEIGHTED, [(nn.Linear(width, OUT), "x -> x"), (make(), reads)])
        return pyg.Sequential(WEIGHTED, [(make(width, OUT), reads)])

    return made


def heads(make: Callable[..., Any], **options: Any) -> Make:
    """Two attention convs, the first of two heads."""

    def made(width: int) -> Any:
        first = make(width, HIDDEN // 2, heads=2, **options)
        last = make(HIDDEN, OUT, heads=2, concat=False, **options)
        reads = "x, edge_index -> x"
        return pyg.Sequential(WEIGHTED, [(first, reads), nn.ELU(), (last, reads)])

    return made


def network(a: int, b: int) -> Any:
    """A small network of two linear layers."""
    return nn.Sequential(nn.Linear(a, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, b))


def agnn(width: int) -> Any:
    reads = "x, edge_index -> x"
    layers = [(nn.Linear(width, OUT), "x -> x"), nn.ReLU(), (pyg.AGNNConv(), reads), (pyg.AGNNConv(), reads)]
    return pyg.Sequential(WEIGHTED, layers)


def pna(width: int, out: int, **options: Any) -> Any:
    degrees = torch.tensor([1, 4, 2, 1, 3, 2, 1])
    return pyg.PNAConv(width, out, AGGREGATORS, SCALERS, degrees, **options)


def jumping(width: int) -> Any:
    return pyg.GraphSAGE(width, HIDDEN, 2, OUT, jk="cat", norm="batch_norm")


MODULES: dict[str, Make] = {
    "GCN": two(pyg.GCNConv, weighted=True),
    "GCN, improved": two(pyg.GCNConv, weighted=True, improved=True),
    "SAGE mean": two(pyg.SAGEConv),
    "SAGE max, project": two(pyg.SAGEConv, aggr="max", project=True),
    "SAGE mean+max+std, normalize": two(pyg.SAGEConv, aggr=["mean", "max", "std"], normalize=True),
    **{
        f"GraphConv {aggr}": two(pyg.GraphConv, weighted=True, aggr=aggr)
        for aggr in ("sum", "mean", "max", "min", "std", "var")
    },
    "GIN": two(lambda a, b: pyg.GINConv(network(a, b))),
    "GAT": heads(pyg.GATConv),
    "GATv2": heads(pyg.GATv2Conv),
    "Transformer": heads(pyg.TransformerConv, beta=True),
    "SuperGAT MX": heads(pyg.SuperGATConv),
    "SuperGAT SD": heads(pyg.SuperGATConv, attention_type="SD"),
    "AGNN": agnn,
    "ResGated": two(pyg.ResGatedGraphConv),
    "PNA": two(pna),
    "EdgeConv max": two(lambda a, b: pyg.EdgeConv(network(2 * a, b))),
    "EdgeConv mean": two(lambda a, b: pyg.EdgeConv(network(2 * a, b), aggr="mean")),
    "MixHop": hops(lambda a, b: pyg.MixHopConv(a, b, powers=[0, 1, 2])),
    "SG": hops(lambda a, b: pyg.SGConv(a, b, K=2)),
    "SSG": hops(lambda a, b: pyg.SSGConv(a, b, alpha=0.1, K=2)),
    "TAG": hops(lambda a, b: pyg.TAGConv(a, b, K=2)),
    "APPNP": hops(lambda: pyg.APPNP(3, 0.1), linear=True),
    "LG": hops(lambda: pyg.LGConv(), linear=True),
    "Simple": hops(lambda: pyg.SimpleConv(aggr="sum"), linear=True),
    "GCN2": Gcn2,
    "Cheb": two(pyg.ChebConv, K=2),
    "FiLM": two(pyg.FiLMConv),
    "LE": hops(lambda a, b: pyg.LEConv(a, b)),
    "ClusterGCN": two(pyg.ClusterGCNConv, diag_lambda=0.5),
    "ARMA": hops(lambda a, b: pyg.ARMAConv(a, b, num_stacks=2, num_layers=2)),
    "FeaSt": two(pyg.FeaStConv, heads=2, add_self_loops=False),
    "EG": two(pyg.EGConv, aggregators=["symnorm", "max"], num_heads=4),
    "GCN max": two(pyg.GCNConv, weighted=True, aggr="max"),
    "GIN mean": two(lambda a, b: pyg.GINConv(network(a, b), aggr="mean")),
    "JK cat, BatchNorm": jumping,
}
LIGHT_GCN = "LightGCN"  # its features are its own table
SPECS: dict[str, dict[str, Any]] = {"comm_net_conv": {}, "pin_sage_conv": {"hidden_channels": HIDDEN}}
NAMES = (*MODULES, LIGHT_GCN, *SPECS)


def make_module(name: str, graph: Graph) -> Any:
    """The module of PyTorch Geometric, with the same weights whenever it is made."""
    torch.manual_seed(SEED)
    if name != LIGHT_GCN:
        return MODULES[name](graph.x.shape[1]).eval()
    module = pyg.LightGCN(len(graph.x), graph.x.shape[1], 2).eval()
    module.embedding.weight.data = torch.from_numpy(graph.x)
    return module


def save(name: str, graph: Graph, folder: Path) -> Model:
    """Write the model; PyTorch Geometric's is exported."""
    if name not in SPECS:
        made = export_model(make_module(name, graph), folder)
        assert isinstance(made, Model)
        return made
    sizes = (graph.x.shape[1], HIDDEN), (HIDDEN, OUT)
    first, last = ({"type": name, "in_channels": a, "out_channels": b, **SPECS[name]} for a, b in sizes)
    layers = [first, {"type": "relu"}, last]
    model = make_model(SEED, layers)
    save_model(model, folder)
    return model


def embeddings(name: str, graph: Graph, model: Model, dtype: Any) -> np.ndarray:
    """Return PyTorch Geometric's result for the whole graph at once, in float32 or float64."""
    if name in SPECS:  # by PyG's GraphConv, and its SimpleConv: it has no layers of these names
        return torch_oracle.forward(model, graph, dtype=dtype)[-1]
    real = torch.float64 if np.dtype(dtype) == np.float64 else torch.float32
    module = make_module(name, graph).to(real)
    edge_index = torch.from_numpy(np.stack([graph.src, graph.dst]))
    weight = torch.from_numpy(graph.values.weight).to(real)
    with torch.no_grad():
        if name == LIGHT_GCN:
            rows = module.get_embedding(edge_index, weight)
        elif isinstance(module, pyg.GraphSAGE):
            rows = module(torch.from_numpy(graph.x).to(real), edge_index)
        else:
            rows = module(torch.from_numpy(graph.x).to(real), edge_index, weight)
    result: np.ndarray = rows.numpy()
    return result
