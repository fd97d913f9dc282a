"""Convs as research code has them: subclasses of PyG's MessagePassing, which Freshet reads as they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn import GCNConv, MessagePassing, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, degree, remove_self_loops, scatter, softmax

from tests.support.graphs.hetero_modules import CITES, WIDTHS, WRITES, WRITTEN, Layers


class GatedConv(MessagePassing):
    """A gate of both ends."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(aggr="add")
        self.key, self.query, self.value, self.skip = (nn.Linear(into, out) for _ in range(4))

    def forward(self, x: Any, edge_index: Any) -> Any:
        out = self.propagate(edge_index, k=self.key(x), q=self.query(x), v=self.value(x))
        return out + self.skip(x)

    def message(self, k_i: Any, q_j: Any, v_j: Any) -> Any:
        return torch.sigmoid(k_i + q_j) * v_j


class DifferenceConv(MessagePassing):
    """A maximum of differences."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(aggr="max")
        self.mlp = nn.Sequential(nn.Linear(2 * into, out), nn.ReLU(), nn.Linear(out, out))

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Any, x_j: Any) -> Any:
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=-1))


class AttentionConv(MessagePassing):
    """Attention with heads."""

    def __init__(self, into: int, out: int, heads: int = 2) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.heads, self.out, self.dropout = heads, out, 0.5
        self.lin = nn.Linear(into, out * heads, bias=False)
        self.att = nn.Parameter(torch.randn(1, heads, 2 * out))
        self.bias = nn.Parameter(torch.randn(out * heads))

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = self.lin(x).view(-1, self.heads, self.out)
        out = self.propagate(edge_index, x=x)
        return out.view(-1, self.heads * self.out) + self.bias

    def message(self, x_i: Any, x_j: Any, index: Any, ptr: Any, size_i: Any) -> Any:
        alpha = (torch.cat([x_i, x_j], dim=-1) * self.att).sum(dim=-1)
        alpha = softmax(F.leaky_relu(alpha, 0.2), index, ptr, size_i)
        alpha = F.dropout(alpha, p=self.dropout, training=self.training)
        return x_j * alpha.view(-1, self.heads, 1)


class EdgeMeanConv(MessagePassing):
    """A mean with attributes of edges, and an update."""

    def __init__(self, into: int, out: int, edge_dim: int) -> None:
        super().__init__(aggr="mean")
        self.lin, self.upd = nn.Linear(into + edge_dim, out), nn.Linear(into + out, out)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j: Any, edge_attr: Any) -> Any:
        return F.relu(self.lin(torch.cat([x_j, edge_attr], dim=-1)))

    def update(self, out: Any, x: Any) -> Any:
        return F.relu(self.upd(torch.cat([x, out], dim=1)))


class PlainConv(MessagePassing):
    """A message that is linear in its source."""

    def __init__(self, into: int, out: int, aggr: Any = "add") -> None:
        super().__init__(aggr=aggr)
        self.lin = nn.Linear(into, out)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j: Any, edge_weight: Any) -> Any:
        m = self.lin(x_j)
        return m if edge_weight is None else edge_weight.view(-1, 1) * m


def changed(names: Sequence[str], edge_index: Any, values: Any, vertices: int) -> Any:
    """Return edges and their weights or attributes behind functions of `torch_geometric.utils`."""
    for name in names:
        if name == "remove_self_loops":
            edge_index, values = remove_self_loops(edge_index, values)
        else:
            add = {"add_self_loops": add_self_loops, "add_remaining_self_loops": add_remaining_self_loops}[name]
            edge_index, values = add(edge_index, values, fill_value=0.5, num_nodes=vertices)
    return edge_index, values


class LoopsConv(MessagePassing):
    """Messages of both ends, over edges that functions of `torch_geometric.utils` change."""

    def __init__(self, into: int, out: int, *loops: str, aggr: Any = "add", edge_dim: int = 0, heads: int = 0) -> None:
        super().__init__(aggr=aggr, node_dim=0)
        self.loops, self.lin, self.heads = loops, nn.Linear(into, out), heads
        self.of_edges = nn.Linear(edge_dim, out) if edge_dim else None

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        edge_index, value = changed(self.loops, edge_index, edge_weight, x.size(0))
        return self.propagate(edge_index, x=self.lin(x), value=value)

    def message(self, x_i: Any, x_j: Any, value: Any, index: Any) -> Any:
        m = F.relu(x_j - 0.5 * x_i)
        m = value.view(-1, 1) * m if self.of_edges is None else m + self.of_edges(value)
        return m * softmax(F.leaky_relu((x_i * x_j).sum(dim=-1), 0.2), index).view(-1, 1) if self.heads else m


class AttributedLoopsConv(LoopsConv):
    """The same of attributes."""

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return super().forward(x, edge_index, edge_attr)


class DegreeConv(MessagePassing):
    """The conv of PyG's tutorial: degrees by hand, of edges that functions of `torch_geometric.utils` change."""

    def __init__(self, into: int, out: int, *loops: str) -> None:
        super().__init__(aggr="add")
        self.lin, self.loops = nn.Linear(into, out, bias=False), loops
        self.bias = nn.Parameter(torch.randn(out))

    def forward(self, x: Any, edge_index: Any) -> Any:
        edge_index, _ = changed(self.loops, edge_index, None, x.size(0))
        row, col = edge_index
        deg = degree(col, x.size(0), dtype=x.dtype)
        root = deg.pow(-0.5)
        root[root == float("inf")] = 0
        return self.propagate(edge_index, x=self.lin(x), norm=root[row] * root[col]) + self.bias

    def message(self, x_j: Any, norm: Any) -> Any:
        return norm.view(-1, 1) * x_j


class PageRankConv(MessagePassing):
    """Several hops with weights that were learned (GPRGNN)."""

    def __init__(self, into: int, out: int, hops: int = 2) -> None:
        super().__init__(aggr="add")
        self.lin, self.hops = nn.Linear(into, out), hops
        self.temp = nn.Parameter(torch.rand(hops + 1))

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        x = self.lin(x)
        edge_index, norm = gcn_norm(edge_index, edge_weight, num_nodes=x.size(0), dtype=x.dtype)
        out = x * self.temp[0]
        for k in range(self.hops):
            x = self.propagate(edge_index, x=x, norm=norm)
            out = out + self.temp[k + 1] * x
        return out

    def message(self, x_j: Any, norm: Any) -> Any:
        return norm.view(-1, 1) * x_j


class ScatterConv(MessagePassing):
    """An aggregate by hand, and messages of matrices of each edge."""

    def __init__(self, into: int, out: int, edge_dim: int, reduce: str = "mean") -> None:
        super().__init__(aggr=None)
        self.net, self.into, self.out, self.reduce = nn.Linear(edge_dim, into * out), into, out, reduce

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j: Any, edge_attr: Any) -> Any:
        weight = self.net(edge_attr).view(-1, self.into, self.out)
        return torch.bmm(x_j.unsqueeze(1), weight).squeeze(1)

    def aggregate(self, inputs: Any, index: Any, dim_size: Any) -> Any:
        return scatter(inputs, index, dim=0, dim_size=dim_size, reduce=self.reduce)


class WeighedAttributesConv(MessagePassing):
    """Messages of weights and attributes of edges, and of both ends."""

    def __init__(self, into: int, out: int, edge_dim: int, aggr: Any = "mean") -> None:
        super().__init__(aggr=aggr)
        self.edge_dim, self.lin, self.of_edges = edge_dim, nn.Linear(into, out), nn.Linear(edge_dim, out)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_attr: Any) -> Any:
        return self.propagate(edge_index, x=self.lin(x), edge_weight=edge_weight, edge_attr=edge_attr)

    def message(self, x_i: Any, x_j: Any, edge_weight: Any, edge_attr: Any) -> Any:
        return torch.tanh(x_j - x_i + self.of_edges(edge_attr)) * edge_weight.view(-1, 1)


class GatedUpdateConv(MessagePassing):
    """Rows of length 1 and functions before messages, slopes that were learned within, and a gated unit behind."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(aggr="mean")
        self.lin, self.act, self.unit = nn.Linear(into, out), nn.PReLU(out), nn.GRUCell(out, into)

    def forward(self, x: Any, edge_index: Any) -> Any:
        unit = F.normalize(x, dim=-1)
        return self.unit(self.propagate(edge_index, x=self.lin(x), u=unit, e=torch.exp(-unit.abs())), x)

    def message(self, x_j: Any, u_i: Any, u_j: Any, e_j: Any) -> Any:
        return self.act(x_j * (u_i * u_j).sum(dim=-1, keepdim=True) + e_j.mean(dim=-1, keepdim=True))


class MeanByHandConv(MessagePassing):
    """A sum divided by the degrees of targets."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(into, out)

    def forward(self, x: Any, edge_index: Any) -> Any:
        col = edge_index[1]
        norm = 1 / degree(col, x.size(0), dtype=x.dtype).clamp(min=1)
        return self.propagate(edge_index, x=self.lin(x), norm=norm[col])

    def message(self, x_j: Any, norm: Any) -> Any:
        return norm.view(-1, 1) * x_j


class FiveConvs(nn.Module):
    """The first five of these beside two of PyG's."""

    def __init__(self, into: int, edge_dim: int) -> None:
        super().__init__()
        self.gate, self.most, self.attend = GatedConv(into, 5), DifferenceConv(5, 4), AttentionConv(4, 3)
        self.mean, self.plain = EdgeMeanConv(6, 4, edge_dim), PlainConv(4, 4)
        self.gcn, self.sage = GCNConv(4, 4), SAGEConv(4, 3)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        x = F.relu(self.gate(x, edge_index))
        x = F.elu(self.attend(self.most(x, edge_index), edge_index))
        x = self.mean(x, edge_index, edge_attr)
        x = self.gcn(self.plain(x, edge_index), edge_index)
        return self.sage(x, edge_index)


def both(x: Any) -> Any:
    """The rows of sources and of targets."""
    return (x, x) if isinstance(x, torch.Tensor) else x


class GatedRelation(MessagePassing):
    """A gate of both ends, and a linear layer of the own row."""

    def __init__(self, source: int, target: int, out: int, aggr: str = "mean") -> None:
        super().__init__(aggr=aggr)
        self.key, self.query = nn.Linear(target, out), nn.Linear(source, out)
        self.value, self.skip = nn.Linear(source, out), nn.Linear(target, out)

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = both(x)
        out = self.propagate(edge_index, k=self.key(x[1]), q=self.query(x[0]), v=self.value(x[0]))
        return out + self.skip(x[1])

    def message(self, k_i: Any, q_j: Any, v_j: Any) -> Any:
        return torch.sigmoid(k_i + q_j) * v_j


class AttentionRelation(MessagePassing):
    """Attention with heads, and what is linear behind it."""

    def __init__(self, source: int, target: int, out: int, heads: int = 2) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.heads, self.size = heads, out
        self.left, self.right = nn.Linear(source, out * heads), nn.Linear(target, out * heads)
        self.att, self.lin = nn.Parameter(torch.randn(1, heads, out)), nn.Linear(out * heads, out)

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = both(x)
        left, right = (
            lin(one).view(-1, self.heads, self.size) for lin, one in zip((self.left, self.right), x, strict=True)
        )
        out = self.propagate(edge_index, x=(left, right), size=(left.size(0), right.size(0)))
        return self.lin(out.flatten(1))

    def message(self, x_i: Any, x_j: Any, index: Any, ptr: Any, size_i: Any) -> Any:
        alpha = (F.leaky_relu(x_i + x_j, 0.2) * self.att).sum(dim=-1)
        return x_j * softmax(alpha, index, ptr, size_i).unsqueeze(-1)


class AttributedRelation(MessagePassing):
    """A maximum of messages of attributes of edges, and of weights where it is given any, and an update of both."""

    def __init__(self, source: int, target: int, out: int, edge_dim: int) -> None:
        super().__init__(aggr="max")
        self.edge_dim, self.lin, self.upd = edge_dim, nn.Linear(source + edge_dim, out), nn.Linear(target + out, out)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any, edge_weight: Any = None) -> Any:
        return self.propagate(edge_index, x=both(x), edge_attr=edge_attr, edge_weight=edge_weight)

    def message(self, x_j: Any, edge_attr: Any, edge_weight: Any) -> Any:
        m = torch.tanh(self.lin(torch.cat([x_j, edge_attr], dim=-1)))
        return m if edge_weight is None else m * edge_weight.view(-1, 1)

    def update(self, out: Any, x: Any) -> Any:
        return F.relu(self.upd(torch.cat([x[1], out], dim=-1)))


class WeightedRelation(MessagePassing):
    """Rows of sources times weights of edges: their sum beside their maximum."""

    def __init__(self, source: int, target: int, out: int) -> None:
        super().__init__(aggr=["sum", "max"])
        self.lin, self.out = nn.Linear(source, out), nn.Linear(2 * out, out)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.out(self.propagate(edge_index, x=both(x), edge_weight=edge_weight))

    def message(self, x_j: Any, edge_weight: Any) -> Any:
        return self.lin(x_j) if edge_weight is None else edge_weight.view(-1, 1) * self.lin(x_j)


class DegreesRelation(MessagePassing):
    """A sum, divided by the number of in-edges in the update."""

    def __init__(self, source: int, target: int, out: int) -> None:
        super().__init__(aggr="add")
        self.lin, self.root = nn.Linear(source, out, bias=False), nn.Linear(target, out)

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = both(x)
        counts = degree(edge_index[1], len(x[1]), dtype=x[1].dtype).clamp(min=1)
        return self.lin(self.propagate(edge_index, x=x)) / counts.unsqueeze(1) + self.root(x[1])


class DoubledSAGE(pyg.SAGEConv):
    """A conv of PyG's with a message of one's own."""

    def message(self, x_j: Any) -> Any:
        return 2 * x_j


Make = Callable[[int, int, int], Any]


def on_relations(make: Make, out: int = 6) -> Any:
    """A HeteroConv with such a conv on each relation."""
    papers, authors = WIDTHS["paper"], WIDTHS["author"]
    ends = {CITES: (papers, papers), WRITES: (authors, papers), WRITTEN: (papers, authors)}
    return pyg.HeteroConv({relation: make(*widths, out) for relation, widths in ends.items()})


def own_and_built_in() -> Any:
    """Two layers, each of convs of one's own beside PyG's."""
    papers, authors = WIDTHS["paper"], WIDTHS["author"]
    first = {CITES: GatedRelation(papers, papers, 6), WRITES: pyg.SAGEConv((authors, papers), 6)}
    second = {CITES: pyg.GATConv(6, 4, add_self_loops=False), WRITES: AttentionRelation(6, 6, 4)}
    first[WRITTEN], second[WRITTEN] = DegreesRelation(papers, authors, 6), GatedRelation(6, 6, 4, "max")
    return Layers([pyg.HeteroConv(first), pyg.HeteroConv(second)], nn.Linear(4, 3))


class GatedTwice(nn.Module):
    """A model of one kind, for to_hetero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = GatedRelation(width, width, 5), AttentionRelation(5, 5, 3)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class OfEdges(nn.Module):
    """Attributes of edges in one conv, perhaps with weights, and weights in another, for to_hetero."""

    def __init__(self, width: int, edge_dim: int, *, both: bool = False) -> None:
        super().__init__()
        self.both, self.first, self.second = (
            both,
            AttributedRelation(width, width, 5, edge_dim),
            WeightedRelation(5, 5, 4),
        )

    def forward(self, x: Any, edge_index: Any, edge_attr: Any, edge_weight: Any) -> Any:
        more = {"edge_weight": edge_weight} if self.both else {}
        return self.second(self.first(x, edge_index, edge_attr, **more).relu(), edge_index, edge_weight)
