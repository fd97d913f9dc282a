"""A sum of the sources' values, each channel through a gate that both ends of an edge open: PyG's ResGatedGraphConv."""

from __future__ import annotations

import numpy as np

from freshet import Layer, Sum, linear

Array = np.ndarray


class GatedSum(Layer, of="torch_geometric.nn.conv.res_gated_graph_conv:ResGatedGraphConv"):
    """x_v' = sum_u sigmoid(k_v + q_u) v_u + W x_v + b."""

    aggregate = Sum()

    def source(self, x: Array) -> Array:
        """Return [v | q]."""
        return np.concatenate([self._of("lin_value", x), self._of("lin_query", x)], axis=1)

    def target(self, x: Array) -> Array:
        """Return k."""
        return self._of("lin_key", x)

    def own(self, x: Array) -> Array:
        """Return W x."""
        return linear(x, self.weights["lin_skip.weight"])

    def message(self, source: Array, target: Array) -> Array:
        """Return the values behind their gates."""
        half = source.shape[1] // 2  # np.split takes longer
        value, query = source[:, :half], source[:, half:]
        return value / (1 + np.exp(-(query + target)))

    def update(self, aggregate: Array, own: Array) -> Array:
        """Return the sums with W x + b."""
        return aggregate + own + self.weights["bias"]

    def _of(self, name: str, x: Array) -> Array:
        return linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])
