"""Forwards that make weights of degrees, of attributes, or of both, and hand them to convs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric import nn as pyg
from torch_geometric import utils
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import add_self_loops, degree, scatter, softmax

Function = Callable[..., Any]


class Forward(nn.Module):
    """Whatever a function makes of rows and edges."""

    def __init__(self, function: Function, **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.function(self, x, edge_index)


class OfWeights(Forward):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:  # type: ignore[override]
        return self.function(self, x, edge_index, edge_weight)


class OfAttributes(Forward):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:  # type: ignore[override]
        return self.function(self, x, edge_index, edge_attr)


class Scaled(pyg.MessagePassing):
    """A conv of one's own that is handed the factor of each edge."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(into, out, bias=False)

    def forward(self, x: Any, edge_index: Any, norm: Any) -> Any:
        return self.propagate(edge_index, x=self.lin(x), norm=norm)

    def message(self, x_j: Any, norm: Any) -> Any:
        return norm.view(-1, 1) * x_j


def roots(deg: Any) -> Any:
    """1 / sqrt, and 0 in the place of infinity."""
    made = deg.pow(-0.5)
    made[made == float("inf")] = 0
    return made


def by_hand(s: Any, x: Any, edges: Any) -> Any:
    row, col = edges
    root = roots(degree(col, x.size(0), dtype=x.dtype))
    norm = root[row] * root[col]
    return s.second(s.first(x, edges, norm).relu(), edges, norm)


def in_place(s: Any, x: Any, edges: Any) -> Any:
    row, col = edges[0], edges[1]
    ones = torch.ones(edges.size(1), dtype=x.dtype)
    root = torch.zeros(x.size(0), dtype=x.dtype).scatter_add_(0, col, ones).pow_(-0.5)
    root.masked_fill_(root == float("inf"), 0.0)
    return s.conv(x, edges, root[row] * root[col])


def with_loops(s: Any, x: Any, edges: Any) -> Any:
    edges, _ = add_self_loops(edges, num_nodes=x.size(0))
    root = degree(edges[1], x.size(0), dtype=x.dtype).pow(-0.5)
    norm = root[edges[0]] * root[edges[1]]
    return s.second(s.first(x, edges, norm).relu(), edges, norm)


def by_gcn_norm(s: Any, x: Any, edges: Any, weight: Any) -> Any:
    edges, weight = s.norm(edges, weight, num_nodes=x.size(0))
    return s.second(s.first(x, edges, weight).relu(), edges, weight)


def of_rows(s: Any, x: Any, edges: Any) -> Any:
    inverse = 1 / degree(edges[1], len(x), dtype=x.dtype)
    inverse[torch.isinf(inverse)] = 0
    return s.conv(x, edges, inverse[edges[1]])


def of_weighted_rows(s: Any, x: Any, edges: Any, weight: Any) -> Any:
    total = scatter(weight, edges[1], dim=0, dim_size=x.size(0), reduce="sum")
    return s.conv(x, edges, weight / total.clamp(min=0.25)[edges[1]])


def both_ways(s: Any, x: Any, edges: Any) -> Any:
    out, into = (utils.degree(end, x.size(0), dtype=x.dtype).clamp(min=1).pow(-0.5) for end in (edges[0], edges[1]))
    return s.conv(x, edges, out[edges[0]] * into[edges[1]])


def beside_attributes(s: Any, x: Any, edges: Any, attr: Any) -> Any:
    deg = degree(edges[1], x.size(0), dtype=x.dtype)
    root = deg.pow(-0.5).masked_fill(deg == 0, 0.0)
    return s.conv(x, edges, torch.cat([attr, (root[edges[0]] * root[edges[1]]).view(-1, 1)], 1))


def degrees_as_features(s: Any, x: Any, edges: Any) -> Any:
    deg = degree(edges[1], x.size(0), dtype=x.dtype)
    return s.conv(torch.cat([x, torch.log(deg + 1).view(-1, 1)], dim=1), edges)


def around_a_conv(s: Any, x: Any, edges: Any) -> Any:
    root = degree(edges[1], x.size(0), dtype=x.dtype).clamp(min=1).pow(-0.5).unsqueeze(-1)
    return s.conv(x * root, edges) * root + x


def neighbours_by_hand(s: Any, x: Any, edges: Any) -> Any:
    """Two layers of a GCN without a conv."""
    root = roots(degree(edges[1], x.size(0), dtype=x.dtype))
    norm = (root[edges[0]] * root[edges[1]]).view(-1, 1)
    for lin in (s.first, s.second):
        h = lin(x)
        x = torch.relu(h + scatter(h[edges[0]] * norm, edges[1], dim=0, dim_size=x.size(0), reduce="sum"))
    return x


def attention_by_hand(s: Any, x: Any, edges: Any, attr: Any) -> Any:
    h = s.lin(x)
    pairs = torch.cat([h[edges[0]], h[edges[1]], attr], dim=1)
    alpha = softmax(F.leaky_relu(s.att(pairs)).view(-1), edges[1], num_nodes=x.size(0))
    return torch.zeros_like(h).index_add_(0, edges[1], alpha.view(-1, 1) * h[edges[0]])


def by_sources(s: Any, x: Any, edges: Any) -> Any:
    root = roots(degree(edges[0], x.size(0)))
    return s.conv(x, edges, root[edges[0]] * root[edges[1]])


def counted(s: Any, x: Any, edges: Any) -> Any:
    root = roots(torch.bincount(edges[1], minlength=x.size(0)).float())
    return s.conv(x, edges, root[edges[0]] * root[edges[1]])


def scored(s: Any, x: Any, edges: Any, attr: Any) -> Any:
    return s.conv(x, edges, s.score(attr).sigmoid().squeeze(-1))


def scored_by_hand(s: Any, x: Any, edges: Any, attr: Any) -> Any:
    weight = s.score(attr).sigmoid().view(-1)
    root = roots(scatter(weight, edges[1], dim=0, dim_size=x.size(0), reduce="sum"))
    return s.conv(x, edges, root[edges[0]] * weight * root[edges[1]])


def attended(s: Any, x: Any, edges: Any, attr: Any) -> Any:
    return s.conv(x, edges, softmax(s.score(attr).view(-1), edges[1], num_nodes=x.size(0)))


def sym(into: int, out: int) -> Any:
    return pyg.GCNConv(into, out, normalize=False)


def modules(width: int, edge_width: int) -> dict[str, Callable[[], Any]]:
    """Modules by what they do with rows and attributes of these widths."""

    def score() -> Any:
        return nn.Linear(edge_width, 1)

    return {
        "by hand": lambda: Forward(by_hand, first=pyg.GraphConv(width, 4), second=Scaled(4, 3)),
        "in place": lambda: Forward(in_place, conv=sym(width, 3)),
        "with loops": lambda: Forward(with_loops, first=sym(width, 4), second=Scaled(4, 3)),
        "gcn_norm": lambda: OfWeights(by_gcn_norm, norm=gcn_norm, first=sym(width, 4), second=pyg.GraphConv(4, 3)),
        "of rows": lambda: Forward(of_rows, conv=pyg.GraphConv(width, 3)),
        "of weighted rows": lambda: OfWeights(of_weighted_rows, conv=pyg.GraphConv(width, 3)),
        "both ways": lambda: Forward(both_ways, conv=sym(width, 3)),
        "by sources": lambda: Forward(by_sources, conv=sym(width, 3)),
        "counted": lambda: Forward(counted, conv=Scaled(width, 3)),
        "scored": lambda: OfAttributes(scored, conv=pyg.GCNConv(width, 3), score=score()),
        "scored without loops": lambda: OfAttributes(
            scored, conv=pyg.GCNConv(width, 3, add_self_loops=False), score=score()
        ),
        "scored, improved": lambda: OfAttributes(scored, conv=pyg.GCNConv(width, 3, improved=True), score=score()),
        "scored hops": lambda: OfAttributes(scored, conv=pyg.SGConv(width, 3, K=2), score=score()),
        "scored by hand": lambda: OfAttributes(scored_by_hand, conv=pyg.GraphConv(width, 3), score=score()),
        "degrees as features": lambda: Forward(degrees_as_features, conv=pyg.SAGEConv(width + 1, 3)),
        "around a conv": lambda: Forward(around_a_conv, conv=pyg.GraphConv(width, width)),
        "neighbours by hand": lambda: Forward(neighbours_by_hand, first=nn.Linear(width, 4), second=nn.Linear(4, 3)),
        "attention by hand": lambda: OfAttributes(
            attention_by_hand, lin=nn.Linear(width, 3), att=nn.Linear(6 + edge_width, 1)
        ),
        "beside attributes": lambda: OfAttributes(
            beside_attributes, conv=pyg.GINEConv(nn.Linear(width, 3), edge_dim=edge_width + 1)
        ),
        "attended": lambda: OfAttributes(attended, conv=pyg.GraphConv(width, 3), score=score()),
    }
