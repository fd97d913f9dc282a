"""Convs on relations that written layers stand for, which pool linear functions of sources."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch_geometric.nn import MessagePassing

from tests.support.graphs.read_convs import both


class PlainRelation(MessagePassing):
    """A linear layer of the source alone."""

    def __init__(self, source: int, target: int, out: int, aggr: str = "add") -> None:
        super().__init__(aggr=aggr)
        self.lin = nn.Linear(source, out)

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = both(x)
        return self.propagate(edge_index, x=self.lin(x[0]), size=(len(x[0]), len(x[1])))


class MedianRelation(PlainRelation):
    """The lower median, which cannot be read; PyG's own fails where the last vertices have no messages."""

    def aggregate(self, inputs: Any, index: Any, dim_size: Any) -> Any:
        into = [inputs[index == v] for v in range(dim_size)]
        none = inputs.new_zeros(inputs.shape[1])
        return torch.stack([rows.median(dim=0).values if len(rows) else none for rows in into])


class LargestRelation(PlainRelation):
    """The maximum."""
