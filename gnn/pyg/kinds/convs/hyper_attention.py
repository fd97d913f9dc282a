"""Attention of a HypergraphConv: convs between vertices and hyperedges that score each pair alike on both ways."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import leaky_relu
from torch_geometric.nn import HypergraphConv, MessagePassing

VERTEX, HYPEREDGE = range(2)


class _ScoredPairs(MessagePassing):
    """Base of convs along pairs of a vertex and a hyperedge, which have a score for each head."""

    def __init__(self, conv: HypergraphConv, source: int, aggr: str) -> None:
        """Take the conv, and whether sources are vertices or hyperedges."""
        super().__init__(aggr=aggr, node_dim=0)
        self.lin, self.att, self.slope = conv.lin, conv.att, conv.negative_slope
        self.heads, self.channels, self.source = conv.heads, conv.out_channels, source
        self.in_channels = conv.in_channels

    def half(self, rows: Tensor, end: int) -> Tensor:
        """Return the half of the scores that one end makes, (rows, heads)."""
        of_end = self.att.chunk(2, dim=-1)[end]
        return (self.values(rows) * of_end).sum(dim=-1)

    def values(self, rows: Tensor) -> Tensor:
        """Return the rows of a head each, (rows, heads, channels)."""
        return self.lin(rows[:, : self.in_channels]).view(-1, self.heads, self.channels)

    def ends(self, x: Any) -> dict[str, Any]:
        """Return what `propagate` is given of the scores, and the numbers of both ends."""
        source, target = x
        one, other = self.half(source, self.source), self.half(target, 1 - self.source)
        return {"one": (one, None), "other": (None, other), "size": (source.size(0), target.size(0))}

    def scores(self, one_j: Tensor, other_i: Tensor) -> Tensor:
        """Return the scores of pairs."""
        return leaky_relu(one_j + other_i, self.slope)


class LargestScore(_ScoredPairs):
    """The largest score of each target, for each head."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        """Return it. Shapes: x a pair of rows, edge_index (2, pairs); result (targets, heads)."""
        return self.propagate(edge_index, **self.ends(x))

    def message(self, one_j: Tensor, other_i: Tensor) -> Tensor:
        """Return the scores."""
        return self.scores(one_j, other_i)


class ScoreSum(_ScoredPairs):
    """The sum of the exponentials of the scores of each target, less the largest one, which stands behind its row."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        """Return it. Shapes: see LargestScore."""
        return self.propagate(edge_index, most=(None, x[1][:, self.in_channels :]), **self.ends(x))

    def message(self, one_j: Tensor, other_i: Tensor, most_i: Tensor) -> Tensor:
        """Return the exponentials."""
        return (self.scores(one_j, other_i) - most_i).exp()


class WholeScore(Module):
    """The logarithm of the sum of the exponentials of all scores, given the largest one and the sum less that."""

    def forward(self, rows0: Tensor, rows1: Tensor) -> Tensor:
        """Return it; a sum has the exponential of 0 among its terms, where it has any."""
        return rows0 + rows1.clamp(min=1).log()


class _Shared(_ScoredPairs):
    """Sums or means of rows of sources, each weighed by its pair's share of all scores of one end.

    Behind the row that scores it a hyperedge has the rows that are weighed where it is a source, and one of both ends
    has its whole score last of all.
    """

    def given(self, x: Any) -> dict[str, Any]:
        """Return what `propagate` is given beside whole scores."""
        if self.source == VERTEX:
            values = self.values(x[0])
        else:
            rows = x[0][:, self.in_channels :]
            values = rows[:, : self.heads * self.channels].view(-1, self.heads, self.channels)
        return {"values": (values, None), **self.ends(x)}

    def share(self, scores: Tensor, whole: Tensor) -> Tensor:
        """Return the shares of pairs, (pairs, heads, 1)."""
        return (scores - whole).exp().unsqueeze(-1)


class SharedBySources(_Shared):
    """Sums or means of rows of sources, each weighed by its share of the scores of its target."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        """Return it. Shapes: x a pair of rows, edge_index (2, pairs); result (targets, heads * channels)."""
        whole = x[1][:, -self.heads :]
        return self.propagate(edge_index, whole=(None, whole), **self.given(x)).flatten(1)

    def message(self, one_j: Tensor, other_i: Tensor, values_j: Tensor, whole_i: Tensor) -> Tensor:
        """Return the weighed rows."""
        return self.share(self.scores(one_j, other_i), whole_i) * values_j


class SharedByTargets(_Shared):
    """Sums or means of rows of sources, each weighed by the target's share of the scores of that source."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        """Return it. Shapes: see SharedBySources."""
        whole = x[0][:, -self.heads :]
        return self.propagate(edge_index, whole=(whole, None), **self.given(x)).flatten(1)

    def message(self, one_j: Tensor, other_i: Tensor, values_j: Tensor, whole_j: Tensor) -> Tensor:
        """Return the weighed rows."""
        return self.share(self.scores(one_j, other_i), whole_j) * values_j


class DividedBy(Module):
    """Sums divided by a number, and 0 where that is 0."""

    def forward(self, rows0: Tensor, rows1: Tensor) -> Tensor:
        """Return quotients. Shapes: rows0 (vertices, width), rows1 (vertices, 1)."""
        factor = 1 / rows1
        return rows0 * factor.masked_fill(factor == torch.inf, 0)


class HeadsAndBias(Module):
    """Rows that a HypergraphConv makes of the means of its heads."""

    def __init__(self, conv: HypergraphConv) -> None:
        """Take the conv."""
        super().__init__()
        self.heads, self.concat, self.bias = conv.heads, conv.concat, conv.bias

    def forward(self, rows0: Tensor) -> Tensor:
        """Return rows, (vertices, heads * channels) or of the mean of heads."""
        rows = rows0 if self.concat else rows0.view(len(rows0), self.heads, -1).mean(dim=1)
        return rows if self.bias is None else rows + self.bias
