"""Convs of PyG's that are read as they run, since they, or some of their options, have no layer here."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor, block_diag, nn
from torch.nn import functional
from torch_geometric.nn import GMMConv, MessagePassing, MFConv, aggr
from torch_geometric.nn.conv import dna_conv
from torch_geometric.utils import degree

from freshet.gnn.pyg.aggregations import AGGREGATORS, FUSED_ONCE, OF_MESSAGES, name_of
from freshet.gnn.pyg.errors import refuse


def reads_as_it_runs(full_name: str, module: Any) -> bool:
    """Return whether a conv of PyG's has no layer here, or options that its layer does not have."""
    name = full_name.removeprefix("torch_geometric.nn.")
    if name in _WITHOUT_LAYER:
        return True
    if name == "ResGatedGraphConv" and type(module.act) is not nn.Sigmoid:
        return True
    if name in _SUMS:
        return type(module.aggr_module) is not aggr.SumAggregation
    if name == "GMMConv" and module.separate_gaussians:
        return True
    if name == "GENConv" and hasattr(module, "msg_norm"):
        return True
    if name in _WITH_LOOPS and module.add_self_loops and module.edge_dim is not None:
        return isinstance(module.fill_value, str) and module.fill_value != "mean"
    part: Any = getattr(module, "aggr_module", None)
    if name == "PNAConv" and type(part) is aggr.DegreeScalerAggregation:
        return is_opened(part)
    has_softmax = name == "GENConv" and type(part) is aggr.SoftmaxAggregation and part.channels == 1
    of_messages = name_of(part) in {*OF_MESSAGES} - {*AGGREGATORS}
    return name in _AGGREGATING and not has_softmax and (of_messages or is_opened(part))


def is_opened(aggregation: Any) -> bool:
    """Return whether an aggregation is read as it runs: a softmax, a power mean, and several of which some are."""
    if type(aggregation) is aggr.DegreeScalerAggregation:
        return is_opened(aggregation.aggr)
    if type(aggregation) is aggr.MultiAggregation:
        names = list(map(name_of, aggregation.aggrs))
        known = set(names) <= {*_OPENED, *OF_MESSAGES} and all(names.count(one) < 2 for one in FUSED_ONCE)
        return known and (
            aggregation.mode in _MIXED or (aggregation.mode == "cat" and not set(names) <= {*AGGREGATORS})
        )
    return name_of(aggregation) in _OPENED


_OPENED = ("softmax", "powermean")
_MIXED = ("sum", "mean", "max", "min", "proj", "attn", "logsumexp", "std", "var")
_SUMS = ("GINEConv", "ResGatedGraphConv")
_AGGREGATING = (
    *("GraphConv", "SAGEConv", "GCNConv", "GINConv", "NNConv", "GMMConv", "CGConv", "GENConv", "EdgeConv"),
    *("SimpleConv", "LEConv", "SGConv", "SSGConv", "TAGConv", "LGConv", "MixHopConv", "APPNP", "GCN2Conv", "ARMAConv"),
)
_WITH_LOOPS = ("GATConv", "GATv2Conv")
_WITHOUT_LAYER = (
    *("DNAConv", "FAConv", "FeaStConv", "GatedGraphConv", "GeneralConv", "LabelPropagation", "PDNConv"),
    *("PPFConv", "PointGNNConv", "PointNetConv", "PointTransformerConv"),
)


class _OneMatrix(nn.Module):
    """A linear layer of DNAConv's as a product with one matrix, in which the groups are blocks."""

    def __init__(self, of: dna_conv.Linear) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(block_diag(*of.weight)), of.bias

    def forward(self, src: Tensor) -> Tensor:
        made = src @ self.weight
        return made if self.bias is None else made + self.bias


class _AttentionOfRows(nn.Module):
    """Attention between several rows of each vertex, such as its aggregates or layers, each by itself."""

    batch_first = False  # for which torch's encoders have no code of their own

    def __init__(self, of: nn.MultiheadAttention) -> None:
        super().__init__()
        self.weight, self.bias, self.out, self.heads = of.in_proj_weight, of.in_proj_bias, of.out_proj, of.num_heads
        self.dim = int(of.batch_first)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *masks: Any, **options: Any) -> tuple[Tensor, Tensor]:
        masks = (*masks, *(options.get(name) for name in ("key_padding_mask", "attn_mask")))
        if any(isinstance(one, Tensor) for one in masks):
            refuse("nn.MultiheadAttention with a mask is not read between the rows of a vertex. Nearest: without")
        if query.dim() != 3:
            refuse("nn.MultiheadAttention of rows (n, width) lets each vertex read all others")
        queries, keys, values = self._of_heads(query, key, value)
        made, shown = [], []
        for of in queries:
            scores = [(of * key).sum(-1) * of.size(-1) ** -0.5 for key in keys]
            most = reduce(torch.maximum, scores)
            weights = [(one - most).exp() for one in scores]
            total = reduce(torch.add, weights)
            shares = [(one / total).unsqueeze(-1) for one in weights]
            shown.append(torch.cat(shares, dim=-1))
            mixed = reduce(torch.add, [share * value for share, value in zip(shares, values, strict=True)])
            made.append(self.out(mixed.reshape(len(mixed), -1)))
        by_head = torch.stack(shown, 2)  # (n, heads, queries, keys)
        return torch.stack(made, self.dim), by_head.mean(1) if options.get("average_attn_weights", True) else by_head

    def _of_heads(self, *inputs: Tensor) -> list[list[Tensor]]:
        """Return the heads of queries, keys and values of each row."""
        known = dict[int, list[Any]]()
        for one in inputs:
            if id(one) not in known:
                rows = one.unbind(self.dim)
                known[id(one)] = [functional.linear(row, self.weight, self.bias).chunk(3, dim=-1) for row in rows]
        found = [known[id(one)] for one in inputs]
        return [[row[n].view(len(row[n]), self.heads, -1) for row in rows] for n, rows in enumerate(found)]


class _ByDegree(MessagePassing):
    """MFConv with the matrices of all degrees, of which a vertex takes those of its own."""

    def __init__(self, of: MFConv) -> None:
        super().__init__(aggr=of.aggr_module, flow=of.flow)
        self.lins_l, self.lins_r, self.max_degree = of.lins_l, of.lins_r, of.max_degree

    def forward(self, x: Any, edge_index: Tensor, size: Any = None) -> Tensor:
        x = (x, x) if isinstance(x, Tensor) else x
        own = x[1]
        many = size[1] if own is None else own.size(0)
        most = degree(edge_index[1], many, dtype=x[0].dtype).clamp(max=self.max_degree).view(-1, 1)
        sums = self.propagate(edge_index, x=x, size=size)
        made = [
            left(sums) if own is None else left(sums) + right(own)
            for left, right in zip(self.lins_l, self.lins_r, strict=True)
        ]
        return reduce(torch.add, [(1 - (most - d).abs()).clamp(min=0) * one for d, one in enumerate(made)])


LARGEST = 1 << 24
"""Entries of a matrix that stands for a sum."""


class _ByCoordinate(MessagePassing):
    """GMMConv with Gaussians of each channel, whose coordinates are added up one by one, without a matrix of all."""

    def __init__(self, of: GMMConv) -> None:
        super().__init__(aggr=of.aggr_module, flow=of.flow)
        self.of = of

    @staticmethod
    def is_for(module: GMMConv) -> bool:
        """Return whether the matrix that adds up coordinates has too many entries to be read."""
        parameters = 0 if nn.parameter.is_lazy(module.g) else module.g.numel()
        return bool(module.separate_gaussians) and module.dim * parameters**2 > LARGEST

    def forward(self, x: Any, edge_index: Tensor, edge_attr: Tensor, size: Any = None) -> Tensor:
        x = (x, x) if isinstance(x, Tensor) else x
        out = self.propagate(edge_index, x=x, edge_attr=edge_attr, size=size)
        if x[1] is not None and self.of.root is not None:
            out = out + self.of.root(x[1])
        return out if self.of.bias is None else out + self.of.bias

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        of, channels = self.of, self.of.mu.size(0)
        shape = (1, channels, of.out_channels, of.kernel_size)
        means, spreads = of.mu.view(*shape, of.dim).unbind(-1), of.sigma.view(*shape, of.dim).unbind(-1)
        parts = [
            -0.5 * (edge_attr[:, d].view(-1, 1, 1, 1) - mean).pow(2) / (1e-15 + spread.pow(2))
            for d, (mean, spread) in enumerate(zip(means, spreads, strict=True))
        ]
        weights = (reduce(torch.add, parts).exp() * of.g.view(shape)).sum(dim=-1)
        return (x_j.view(-1, channels, 1) * weights).sum(dim=-2)


def readable(module: nn.Module) -> nn.Module:
    """Return a module, of one's own copy, without layers that put the rows of all vertices into one matrix."""
    if type(module) is MFConv:
        return _ByDegree(module)
    if type(module) is GMMConv and _ByCoordinate.is_for(module):
        return _ByCoordinate(module)
    for parent in list(module.modules()):
        for name, part in list(parent.named_children()):
            if type(part) is dna_conv.Linear:
                setattr(parent, name, _OneMatrix(part))
            if _is_plain_attention(part):
                setattr(parent, name, _AttentionOfRows(part))
    return module


def _is_plain_attention(part: nn.Module) -> bool:
    """Return whether a part is attention that is read between the rows of a vertex."""
    plain = type(part) is nn.MultiheadAttention and not part.add_zero_attn
    return plain and part.bias_k is None and part.in_proj_weight is not None
