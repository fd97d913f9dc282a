"""Chains of layers of rows, with their weights by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.nn import functional

from freshet.gnn.pyg.rows import dense
from freshet.gnn.rows.layer import Layer
from freshet.gnn.torch_modules.weights import within

Weights = Mapping[str, Tensor]


def chain(layers: Sequence[Layer], weights: Weights, prefix: str, x: Tensor) -> Tensor:
    """Return the rows after a chain of layers; the names of its weights begin with `prefix.`, then a number."""
    for i, layer in enumerate(layers):
        x = dense(layer, within(weights, f"{prefix}.{i}" if prefix else str(i)), x)
    return x


def linear(x: Tensor, weights: Weights, name: str) -> Tensor:
    """Return the rows times the matrix `name.weight`, and `name.bias` where there is one."""
    made: Tensor = functional.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
    return made
