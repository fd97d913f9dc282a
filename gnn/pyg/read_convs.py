"""Convs of PyG's that are read as they run, since they, or some of their options, have no layer here."""

from __future__ import annotations

from typing import Any

from torch import Tensor, block_diag, nn
from torch_geometric.nn import aggr
from torch_geometric.nn.conv import dna_conv

from freshet.gnn.pyg.aggregations import AGGREGATORS, FUSED_ONCE, OF_MESSAGES, name_of


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
_MIXED = ("sum", "mean", "max", "min", "proj")
_SUMS = ("GINEConv", "ResGatedGraphConv")
_AGGREGATING = (
    *("GraphConv", "SAGEConv", "GCNConv", "GINConv", "NNConv", "GMMConv", "CGConv", "GENConv", "EdgeConv"),
    *("SimpleConv", "LEConv", "SGConv", "SSGConv", "TAGConv", "LGConv", "MixHopConv", "APPNP", "GCN2Conv", "ARMAConv"),
)
_WITH_LOOPS = ("GATConv", "GATv2Conv")
_WITHOUT_LAYER = (
    *("DNAConv", "FAConv", "FeaStConv", "GatedGraphConv", "GeneralConv", "LabelPropagation", "PDNConv"),
    *("PointGNNConv", "PointNetConv", "PointTransformerConv"),
)


class _OneMatrix(nn.Module):
    """A linear layer of DNAConv's as a product with one matrix, in which the groups are blocks."""

    def __init__(self, of: dna_conv.Linear) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(block_diag(*of.weight)), of.bias

    def forward(self, src: Tensor) -> Tensor:
        made = src @ self.weight
        return made if self.bias is None else made + self.bias


def readable(module: nn.Module) -> nn.Module:
    """Return a module, of one's own copy, without layers that put the rows of all vertices into one matrix."""
    for parent in list(module.modules()):
        for name, part in list(parent.named_children()):
            if type(part) is dna_conv.Linear:
                setattr(parent, name, _OneMatrix(part))
    return module
