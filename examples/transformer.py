"""Attention by the dot product of a query of the target and a key of the source: PyG's TransformerConv."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet import Layer, Softmax, linear

Array = np.ndarray


class Transformer(Layer, of="torch_geometric.nn.conv.transformer_conv:TransformerConv"):
    """x_v' = sum_u softmax_u(q_v . k_u / sqrt(channels)) v_u + W x_v + b, in each head."""

    @property
    def aggregate(self) -> Softmax:
        """The softmax of as many heads as the module has."""
        return Softmax(self.options["heads"])

    def source(self, x: Array) -> Array:
        """Return [v | k]."""
        return np.concatenate([self._of("lin_value", x), self._of("lin_key", x)], axis=1)

    def target(self, x: Array) -> Array:
        """Return q."""
        return self._of("lin_query", x)

    def own(self, x: Array) -> Array:
        """Return W x + b."""
        return self._of("lin_skip", x)

    def message(self, source: Array, target: Array) -> tuple[Array, Array]:
        """Return the scores of each head, and the values."""
        value, key = np.split(source, 2, axis=1)
        by_head = (key * target).reshape(len(value), self.options["heads"], -1)
        return by_head.sum(axis=2) / np.sqrt(by_head.shape[2]).astype(value.dtype), value

    def update(self, aggregate: Array, own: Array) -> Array:
        """Return the sums with W x + b."""
        return aggregate + own

    @classmethod
    def options_of(cls, module: Any) -> dict[str, Any]:
        """Return the number of heads."""
        return {"heads": module.heads}

    def _of(self, name: str, x: Array) -> Array:
        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])
