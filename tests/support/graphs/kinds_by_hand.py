"""Forwards with kinds that take rows along the edges of relations by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.utils import scatter, softmax

TO, SENT, NEAR = ("a", "to", "b"), ("b", "sent", "a"), ("a", "near", "a")
METADATA = (["a", "b"], [TO, SENT, NEAR])
WIDTHS = {"a": 4, "b": 3}


class ByHand(nn.Module):
    """Layers for rows of two kinds, and a function of them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.a, self.b, self.edge, self.both = nn.Linear(4, 5), nn.Linear(3, 5), nn.Linear(2, 5), nn.Linear(7, 3)
        self.key, self.value, self.out, self.conv = (
            nn.Linear(5, 5),
            nn.Linear(5, 5),
            nn.Linear(5, 2),
            pyg.SAGEConv(5, 5),
        )
        self.a4, self.b4 = nn.Linear(4, 4), nn.Linear(3, 4)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.function(self, x_dict, edge_index_dict)


class OfEdges(ByHand):
    """The same with what edges have."""

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any, edge_attr_dict: Any) -> Any:  # type: ignore[override]
        return self.function(self, x_dict, edge_index_dict, edge_weight_dict, edge_attr_dict)


def brought(rows: Any, edges: Any, targets: Any, reduce: str = "sum") -> Any:
    """Return rows of edges brought together at their targets."""
    return scatter(rows, edges[1], dim=0, dim_size=targets.size(0), reduce=reduce)


def each_relation(s: Any, x: Any, e: Any) -> Any:
    """Return means over each relation, beside the rows themselves."""
    h = {"a": s.a(x["a"]), "b": s.b(x["b"]).tanh()}
    found = {kind: [rows] for kind, rows in h.items()}
    for (source, _, target), edges in e.items():
        found[target].append(brought(h[source][edges[0]], edges, h[target], "mean"))
    return {kind: s.out(sum(rows).relu()) for kind, rows in found.items()}


def attention(s: Any, x: Any, e: Any) -> Any:
    """Return attention whose queries, keys and values are made by layers of their own."""
    (src, dst), of_a, of_b = e[TO], s.a(x["a"]).tanh(), s.b(x["b"])
    scores = softmax((s.key(of_a)[src] * of_b[dst]).sum(-1), dst, num_nodes=of_b.size(0))
    return s.out(brought(s.value(of_a)[src] * scores.view(-1, 1), e[TO], of_b))


def gates(s: Any, x: Any, edge_index: Any, edge_weight: Any) -> Any:
    """Return rows that differences from what a vertex sends to gate, without kinds."""
    made = s.there(x, edge_index).tanh()
    differences = (made[edge_index[0]] - made[edge_index[1]]).abs() ** 2.0
    gate = torch.tanh(scatter(differences.squeeze(-1), edge_index[0], 0, dim_size=x.size(0), reduce="mean"))
    return (1 - gate) * made + gate * s.back(x, edge_index, edge_weight)
