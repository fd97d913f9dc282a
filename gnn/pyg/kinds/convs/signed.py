"""SignedConv, of signed graphs: means over two sets of edges, and linear layers around them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import Module
from torch_geometric.nn import SignedConv

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRelation
from freshet.gnn.pyg.steps import Hop, Step, check_conv


def is_signed(module: Any) -> bool:
    """Return whether a module is PyG's SignedConv."""
    return type(module) is SignedConv


class _Half(Module):
    """The columns of rows that are those of balanced paths, or of unbalanced ones."""

    def __init__(self, begin: int, width: int) -> None:
        super().__init__()
        self._begin, self._width = begin, width

    def forward(self, rows0: Any) -> Any:
        return rows0[:, self._begin : self._begin + self._width]


class _Signed(Module):
    """UPDATE of a SignedConv, given its means and the rows themselves."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, rows0: Any, rows1: Any, rows2: Any, rows3: Any = None, rows4: Any = None) -> Any:
        conv, width = self.conv, self.conv.in_channels
        if conv.first_aggr:
            of = [(rows0, rows2), (rows1, rows2)]
        else:
            of = [
                (torch.cat([rows0, rows1], -1), rows4[:, :width]),
                (torch.cat([rows2, rows3], -1), rows4[:, width:]),
            ]
        (pos, pos_root), (neg, neg_root) = of
        made = conv.lin_pos_l(pos) + conv.lin_pos_r(pos_root), conv.lin_neg_l(neg) + conv.lin_neg_r(neg_root)
        return torch.cat(made, -1)


def signed_conv(ops: KindsOperations, place: str, name: str, conv: Any, rows: str, relations: list[int]) -> str:
    """Note the operations of a SignedConv; returns the name of its rows. `relations`: of positive and negative edges.

    Raises: ExportError for another aggregator than the mean.
    """
    check_conv(Step(name, conv))
    if conv.aggr != "mean":
        refuse(f"{place}: SignedConv with aggr={conv.aggr!r} is not supported; expected 'mean'")

    def mean(of: str, relation: int, what: str) -> str:
        hop = Hop(normalize=False, add_self_loops=False, aggr="mean", channels=conv.in_channels)
        return ops.conv(place, OnRelation(relation, of, of, Step(f"{name}.{what}", hop)))

    positive, negative = relations
    if conv.first_aggr:
        means = [mean(rows, positive, "pos"), mean(rows, negative, "neg")]
    else:
        balanced, unbalanced = (
            ops.function(f"{name}.{what}", _Half(begin, conv.in_channels), [rows])
            for what, begin in (("balanced", 0), ("unbalanced", conv.in_channels))
        )
        means = [
            mean(balanced, positive, "pos1"),
            mean(unbalanced, negative, "pos2"),
            mean(unbalanced, positive, "neg1"),
            mean(balanced, negative, "neg2"),
        ]
    return ops.function(name, _Signed(conv), [*means, rows])
