"""Layers of DGL as layers of PyTorch Geometric with the same weights, called as DGL's with edges as the graph.

A port keeps DGL's order of arguments, `(graph, rows)`, so that a model's `forward` stays as it is; `graph` is the
`edge_index`. See docs/guide/from_dgl.md for what the same copies are by hand.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import degree


class Hop(pyg.MessagePassing):
    """One hop over scaled edges: a sum of D^-1/2 x over in-edges, times D^-1/2 of in-degrees.

    by_source: whether a row is scaled by the out-degree of its vertex, else by its in-degree.
    """

    def __init__(self, *, by_source: bool) -> None:
        super().__init__(aggr="add")
        self.by_source = by_source

    def forward(self, x: Any, edge_index: Any) -> Any:
        """Return the rows.

        Shapes: x (n, width); edge_index (2, e) int64; result (n, width)
        """
        to = degree(edge_index[1], x.size(0)).clamp(min=1).pow(-0.5).view(-1, 1)
        of = degree(edge_index[0], x.size(0)).clamp(min=1).pow(-0.5).view(-1, 1) if self.by_source else to
        return self.propagate(edge_index, x=x * of) * to


class MeanWithOwn(pyg.MessagePassing):
    """A mean over in-neighbours and the vertex itself."""

    def __init__(self) -> None:
        super().__init__(aggr="add")

    def forward(self, x: Any, edge_index: Any) -> Any:
        """Return the rows.

        Shapes: x (n, width); edge_index (2, e) int64; result (n, width)
        """
        return (self.propagate(edge_index, x=x) + x) / (degree(edge_index[1], x.size(0)).view(-1, 1) + 1)


class Port(nn.Module):
    """A layer in DGL's place: `rows` gives its result, and DGL's activation follows."""

    def __init__(self, old: Any, loops: bool) -> None:
        super().__init__()
        self.activation = getattr(old, "activation", None) or getattr(old, "_activation", None)
        self.make(old, loops)

    def make(self, old: Any, loops: bool) -> None:
        """Take the weights of DGL's layer."""
        raise NotImplementedError

    def rows(self, x: Any, edge_index: Any, *more: Any) -> Any:
        """Return the layer's result.

        Shapes: x (n, width); edge_index (2, e) int64
        """
        raise NotImplementedError

    def forward(self, graph: Any, feat: Any, *more: Any) -> Any:
        """Return what DGL's layer returns."""
        result = self.rows(feat, graph, *more)
        return result if self.activation is None else self.activation(result)


class GraphConvPort(Port):
    """GraphConv with norm="both"."""

    def make(self, old: Any, loops: bool) -> None:
        """Take the weights."""
        self.hop, self.weight, self.bias = Hop(by_source=True), old.weight, old.bias

    def rows(self, x: Any, edge_index: Any, *_: Any) -> Any:
        """Return them."""
        return self.hop(x @ self.weight, edge_index) + self.bias


class SageGcnPort(Port):
    """SAGEConv with "gcn"."""

    def make(self, old: Any, loops: bool) -> None:
        """Take the weights."""
        self.mean, self.lin, self.bias = MeanWithOwn(), old.fc_neigh, old.bias

    def rows(self, x: Any, edge_index: Any, *_: Any) -> Any:
        """Return them."""
        return self.lin(self.mean(x, edge_index)) + self.bias


class AttentionPort(Port):
    """GATConv and GATv2Conv, whose result has heads: (n, heads, channels)."""

    def make(self, old: Any, loops: bool) -> None:
        """Take the weights."""
        self.heads, self.channels = old._num_heads, old._out_feats
        options = {"heads": self.heads, "add_self_loops": loops, "negative_slope": old.leaky_relu.negative_slope}
        wide = {"bias": old.bias is not None, **options} if hasattr(old, "fc") else {"share_weights": True, **options}
        width = (old.fc if hasattr(old, "fc") else old.fc_src).in_features
        if hasattr(old, "fc"):
            self.conv = pyg.GATConv(width, self.channels, **wide)
            self.conv.lin.weight, self.conv.att_src, self.conv.att_dst = old.fc.weight, old.attn_l, old.attn_r
            if old.bias is not None:
                self.conv.bias.data = old.bias.data.reshape(-1)
        else:
            self.conv = pyg.GATv2Conv(width, self.channels, bias=False, **wide)
            self.conv.lin_l.weight, self.conv.att = old.fc_src.weight, old.attn
        self.residual = nn.Identity() if type(old.res_fc).__name__ == "Identity" else old.res_fc

    def rows(self, x: Any, edge_index: Any, *_: Any) -> Any:
        """Return them."""
        found = self.conv(x, edge_index).view(-1, self.heads, self.channels)
        return found if self.residual is None else found + self.residual(x).view(-1, self.heads, self.channels)


class AppnpPort(Port):
    """APPNPConv."""

    def make(self, old: Any, loops: bool) -> None:
        """Take the numbers."""
        self.hop, self.count, self.alpha = Hop(by_source=True), old._k, old._alpha

    def rows(self, x: Any, edge_index: Any, *_: Any) -> Any:
        """Return them."""
        found = x
        for _hop in range(self.count):
            found = (1 - self.alpha) * self.hop(found, edge_index) + self.alpha * x
        return found


class HopsPort(Port):
    """SGConv, TAGConv, and what DGL's scripts of MixHop and DAGNN do between hops that are scaled by in-degrees."""

    def make(self, old: Any, loops: bool) -> None:
        """Take the weights."""
        self.hop, self.kind = Hop(by_source=False), type(old).__name__
        self.count = max(old.p) if self.kind == "MixHopConv" else old.k if self.kind == "DAGNNConv" else old._k
        if self.kind == "MixHopConv":
            self.powers, self.weights, self.norm = old.p, old.weights, old.bn if old.batchnorm else nn.Identity()
        elif self.kind == "DAGNNConv":
            self.score = old.s
        else:
            self.lin = old.fc if self.kind == "SGConv" else old.lin

    def rows(self, x: Any, edge_index: Any, *_: Any) -> Any:
        """Return them."""
        found = [x]
        for _hop in range(self.count):
            found.append(self.hop(found[-1], edge_index))
        if self.kind == "SGConv":
            return self.lin(found[-1])
        if self.kind == "TAGConv":
            return self.lin(torch.cat(found, dim=-1))
        if self.kind == "DAGNNConv":
            rows = torch.stack(found, dim=1)
            scores = torch.sigmoid(torch.matmul(rows, self.score)).permute(0, 2, 1)
            return torch.matmul(scores, rows).squeeze(1)
        return self.norm(torch.cat([self.weights[str(power)](found[power]) for power in self.powers], dim=1))


class ArmaPort(Port):
    """ARMAConv of DGL's script, which adds the term of the first rows twice."""

    def make(self, old: Any, loops: bool) -> None:
        """Take the weights."""
        self.hop, self.stacks, self.depth = Hop(by_source=False), old.K, old.T
        self.first, self.later, self.own, self.bias = old.w_0, old.w, old.v, old.bias
        self.inner, self.activation = old.activation, None

    def rows(self, x: Any, edge_index: Any, *_: Any) -> Any:
        """Return them."""
        stacks = []
        for k in range(self.stacks):
            found = x
            for t in range(self.depth):
                weight = (self.later if t else self.first)[str(k)]
                found = weight(self.hop(found, edge_index)) + 2 * self.own[str(k)](x) + self.bias[k][t]
                found = found if self.inner is None else self.inner(found)
            stacks.append(found)
        return torch.stack(stacks).mean(dim=0)


class GmmPort(Port):
    """GMMConv with a sum."""

    def make(self, old: Any, loops: bool) -> None:
        """Take the weights."""
        width, channels, kernels = old.fc.in_features, old._out_feats, old._n_kernels
        self.conv = pyg.GMMConv(width, channels, old._dim, kernels, aggr="add", root_weight=False)
        self.conv.g.data = old.fc.weight.data.t().contiguous()
        self.conv.mu.data, self.conv.sigma.data = old.mu.data, 1 / old.inv_sigma.data
        self.conv.root, self.conv.bias.data = None, old.bias.data

    def rows(self, x: Any, edge_index: Any, *more: Any) -> Any:
        """Return them."""
        return self.conv(x, edge_index, more[0])


class JumpingPort(nn.Module):
    """JKNet of DGL's script, whose last sum over neighbours is a layer."""

    def __init__(self, old: Any, loops: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GraphConvPort(one, loops) for one in old.layers)
        self.jump, self.output = pyg.JumpingKnowledge(old.mode), old.output
        self.sum = pyg.SimpleConv(aggr="sum")

    def forward(self, graph: Any, feats: Any) -> Any:
        """Return the rows."""
        found = []
        for layer in self.layers:
            feats = layer(graph, feats)
            found.append(feats)
        rows = self.jump(found)
        return self.output(self.sum(rows, graph))


_PORTS: dict[str, Callable[..., nn.Module]] = {
    "GraphConv": GraphConvPort,
    "SAGEConv": SageGcnPort,
    "GATConv": AttentionPort,
    "GATv2Conv": AttentionPort,
    "APPNPConv": AppnpPort,
    "SGConv": HopsPort,
    "TAGConv": HopsPort,
    "MixHopConv": HopsPort,
    "DAGNNConv": HopsPort,
    "ARMAConv": ArmaPort,
    "GMMConv": GmmPort,
    "JKNet": JumpingPort,
}


def ported(model: nn.Module, loops: bool) -> nn.Module:
    """Return a model of DGL with layers of PyTorch Geometric; `loops`: whether each vertex has one self-loop."""
    if type(model).__name__ in _PORTS:
        return _PORTS[type(model).__name__](model, loops).eval()
    found = copy.deepcopy(model)
    for name, layer in model.named_children():
        setattr(found, name, ported(layer, loops))
    return found.eval()
