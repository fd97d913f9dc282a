"""PyG's aggregations by their names, and its quantiles where the first vertex has no messages."""

from __future__ import annotations

from typing import Any, get_args

from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import aggr

from freshet.gnn.declarations import Aggregator


class Quantiles(aggr.QuantileAggregation):
    """PyG's quantiles of the vertices that have messages, and `fill_value` for all others.

    PyG itself fails where the first vertex has none.
    """

    def forward(
        self, x: Tensor, index: Any = None, ptr: Any = None, dim_size: int | None = None, dim: int = -2
    ) -> Tensor:
        """Return the quantiles of messages. Shapes: see QuantileAggregation."""
        self.assert_index_present(index)
        some, places = index.unique(return_inverse=True)
        dim, many = dim % x.dim(), int(index.max()) + 1 if dim_size is None else dim_size
        shape = list(x.shape)
        shape[dim] = many
        shape[dim + 1 : dim + 2] = [n * self.q.numel() for n in shape[dim + 1 : dim + 2]]
        made = x.new_full(shape, self.fill_value)
        if not len(some):
            return made
        return made.index_copy(dim, some, super().forward(x, places, dim_size=len(some), dim=dim))


def with_quantiles(module: Module) -> Module:
    """Return a module, of one's own copy, whose quantiles are made of no messages, too."""
    for part in module.modules():
        if type(part) in (aggr.QuantileAggregation, aggr.MedianAggregation):
            part.__class__ = Quantiles
    return module


AGGREGATORS: tuple[str, ...] = get_args(Aggregator)
"""Those that every conv has."""
OF_MESSAGES = (*AGGREGATORS, "mul", "median", "quantile")
"""Those that convs have which are read as they run."""
FUSED_ONCE = ("mean", "std", "var")
"""Those of which PyG makes wrong values, where a list has one twice."""
_NAMES: dict[type, str] = {
    aggr.SumAggregation: "sum",
    aggr.MeanAggregation: "mean",
    aggr.MaxAggregation: "max",
    aggr.MinAggregation: "min",
    aggr.StdAggregation: "std",
    aggr.VarAggregation: "var",
    aggr.SoftmaxAggregation: "softmax",
    aggr.PowerMeanAggregation: "powermean",
    aggr.MulAggregation: "mul",
    aggr.MedianAggregation: "median",
    aggr.QuantileAggregation: "quantile",
    Quantiles: "quantile",
}


def name_of(aggregation: Any) -> str:
    """Return the name of one of PyG's aggregations; empty for another, and for several."""
    return _NAMES.get(type(aggregation), "")
