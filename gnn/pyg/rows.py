"""The layers that read one row, by torch's own functions: what the second oracle and modules of models run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from freshet.gnn.declarations import (
    Elu,
    Gelu,
    Identity,
    LeakyRelu,
    Linear,
    PRelu,
    Relu,
    Selu,
    Sigmoid,
    Silu,
    Tanh,
)
from freshet.gnn.kinds.declarations import Grouping
from freshet.gnn.rows.functions import (
    Affine,
    Celu,
    Clamp,
    Cosine,
    DegreePower,
    Exponential,
    Logarithm,
    LogSigmoid,
    LogSoftmax,
    Mish,
    Normalize,
    Power,
    Scale,
    Sine,
    Softmax,
    Softplus,
    SquareRoot,
)
from freshet.gnn.rows.jumps import Join
from freshet.gnn.rows.layer import Layer
from freshet.gnn.rows.norms import BatchNorm, FrozenNorm, LayerNorm, RMSNorm

if TYPE_CHECKING:
    from torch import Tensor


def function_of(layer: Layer, weights: Mapping[str, Tensor]) -> Callable[[Tensor], Any] | None:
    """Return torch's function for the layer; None for a layer that reads more than a row."""
    make = _FUNCTIONS.get(type(layer))
    return None if make is None else make(layer, weights)


def join(layer: Join, rows: list[Tensor]) -> Tensor:
    """Return the rows that a join makes of these."""
    import torch

    if layer.operation == "cat":
        return torch.cat(rows, dim=1)
    if layer.operation == "times_length":
        return rows[0] * rows[1].norm(dim=1, keepdim=True)
    if layer.operation == "quotient":
        return rows[0] / rows[1]
    stacked = torch.stack(rows)
    if layer.operation in ("max", "min"):
        return getattr(stacked, layer.operation)(dim=0).values
    return stacked.sum(dim=0) if layer.operation == "sum" else stacked.prod(dim=0)


def grouped(aggr: Grouping, parts: list[Tensor]) -> Tensor:
    """Return the rows of several relations as one, as PyG's HeteroConv does; they are summed one by one."""
    import torch

    if aggr == "cat":
        return torch.cat(parts, dim=1)
    if aggr in ("sum", "mean"):
        total = reduce(torch.add, parts)
        return total if aggr == "sum" else total / len(parts)
    stacked = torch.stack(parts)
    if aggr in ("min", "max"):
        return getattr(stacked, aggr)(dim=0).values
    return stacked.prod(dim=0)


def dense(layer: Layer, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the rows after a layer of rows.

    Raises: TypeError for one that is not known here.
    """
    run = function_of(layer, weights)
    if run is None:
        msg = f"torch has no function for {type(layer).__name__}"
        raise TypeError(msg)
    rows: Tensor = run(x)
    return rows


def _functional() -> Any:
    from torch.nn import functional

    return functional


def _frozen_norm(layer: FrozenNorm, weights: Mapping[str, Tensor]) -> Callable[[Tensor], Any]:
    def run(x: Tensor) -> Any:
        x = x * weights["scale"] + weights["shift"]
        if layer.length is None:
            return x
        return layer.length * x / (layer.eps + x.norm(2, -1, keepdim=True))

    return run


_FUNCTIONS: dict[type[Layer], Callable[[Any, Any], Callable[[Any], Any]]] = {
    Clamp: lambda layer, w: lambda x: x.clamp(layer.low, layer.high),
    Softplus: lambda layer, w: lambda x: _functional().softplus(x, layer.beta, layer.threshold),
    Celu: lambda layer, w: lambda x: _functional().celu(x, layer.alpha),
    Mish: lambda layer, w: lambda x: _functional().mish(x),
    LogSigmoid: lambda layer, w: lambda x: _functional().logsigmoid(x),
    Exponential: lambda layer, w: lambda x: x.exp(),
    Logarithm: lambda layer, w: lambda x: x.log(),
    SquareRoot: lambda layer, w: lambda x: x.sqrt(),
    Sine: lambda layer, w: lambda x: x.sin(),
    Cosine: lambda layer, w: lambda x: x.cos(),
    Power: lambda layer, w: lambda x: x.pow(layer.exponent),
    DegreePower: lambda layer, w: lambda x: x.masked_fill(x == 0, 1).pow(layer.exponent).masked_fill(x == 0, 0),
    Scale: lambda layer, w: lambda x: x * layer.factor + layer.offset,
    Affine: lambda layer, w: lambda x: x * w["scale"] + w["shift"],
    BatchNorm: lambda layer, w: lambda x: x * w["scale"] + w["shift"],
    Softmax: lambda layer, w: lambda x: _functional().softmax(x, dim=-1),
    LogSoftmax: lambda layer, w: lambda x: _functional().log_softmax(x, dim=-1),
    Normalize: lambda layer, w: lambda x: _functional().normalize(x, eps=layer.eps),
    LayerNorm: lambda layer, w: (
        lambda x: _functional().layer_norm(x, (layer.channels,), w.get("weight"), w.get("bias"), layer.eps)
    ),
    RMSNorm: lambda layer, w: lambda x: _functional().rms_norm(x, (layer.channels,), w.get("weight"), layer.eps),
    FrozenNorm: _frozen_norm,
    Linear: lambda layer, w: lambda x: _functional().linear(x, w["weight"], w.get("bias")),
    PRelu: lambda layer, w: lambda x: _functional().prelu(x, w["weight"]),
    LeakyRelu: lambda layer, w: lambda x: _functional().leaky_relu(x, layer.slope),
    Elu: lambda layer, w: lambda x: _functional().elu(x, layer.alpha),
    Gelu: lambda layer, w: lambda x: _functional().gelu(x, approximate=layer.approximate),
    Identity: lambda layer, w: lambda x: x,
    Relu: lambda layer, w: lambda x: _functional().relu(x),
    Selu: lambda layer, w: lambda x: _functional().selu(x),
    Silu: lambda layer, w: lambda x: _functional().silu(x),
    Tanh: lambda layer, w: lambda x: x.tanh(),
    Sigmoid: lambda layer, w: lambda x: x.sigmoid(),
}
