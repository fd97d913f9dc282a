"""Layers whose messages are linear in the source, by a matrix of the edge: NNConv and GMMConv."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import GMMConv, NNConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.kernels.kernel import kernel

_LEAST = 1e-15  # what PyG adds to the square of a sigma


@kernel
def multiply_by_edge(terms: np.ndarray, read: int, out: np.ndarray) -> None:
    """Write x M of rows [x | M], M row by row. Shapes: terms (n, read * (1 + width)); out (n, width)."""
    width = out.shape[1]
    for i in range(len(terms)):
        for o in range(width):
            total = np.float64(0)
            for c in range(read):
                total += np.float64(terms[i, c]) * np.float64(terms[i, read + c * width + o])
            out[i, o] = np.float32(total)


@kernel
def mix_kernels(terms: np.ndarray, kernels: int, out: np.ndarray) -> None:
    """Write sum_k w_k z_k of rows [z_1 | z_2 ... | w]. Shapes: terms (n, kernels * (width + 1)); out (n, width)."""
    width = out.shape[1]
    for i in range(len(terms)):
        for o in range(width):
            total = np.float64(0)
            for k in range(kernels):
                total += np.float64(terms[i, k * width + o]) * np.float64(terms[i, kernels * width + k])
            out[i, o] = np.float32(total)


@kernel
def weigh_kernels(attr: np.ndarray, mu: np.ndarray, factor: np.ndarray, out: np.ndarray) -> None:
    """Write exp(sum_d factor_kd (e_d - mu_kd)^2) of each kernel. Shapes: attr (n, d); mu, factor (k, d); out (n, k)."""
    for i in range(len(attr)):
        for k in range(len(mu)):
            total = np.float64(0)
            for d in range(attr.shape[1]):
                apart = np.float64(attr[i, d]) - mu[k, d]
                total += factor[k, d] * apart * apart
            out[i, k] = np.float32(np.exp(total))


class _EdgeMatrixPlan(LayerPlan):
    """x_v' = W x_v + aggr_u (what a network makes of the source's row and the edge) + b."""

    def _keep(self, spec: NNConv | GMMConv, network: EdgeNetwork, root: Rows | None, bias: Rows | None) -> None:
        """Take the network, and what is made of the vertex's own row."""
        self.network, self.synopsis = network, NetworkSynopsis(synopsis_of(spec.aggr, False), network)
        self.message_width, self.reads_context = network.size, spec.aggr == "mean"
        self.reads_self = root is not None
        self.self_width = 0 if root is None else spec.out_channels
        self._root_weight = None if root is None else transposed(root)
        self._bias = bias

    def _rows(self, x: Rows) -> Rows:
        raise NotImplementedError

    def _send(self, x: Rows, ctx: Context) -> Rows:
        row = self._rows(x)
        return row if self._root_weight is None else np.concatenate([row, matmul(x, self._root_weight)], axis=1)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        out = np.array(self.synopsis.read(agg, ctx.count), np.float32, order="C")
        if self._root_weight is not None:
            out += own
        if self._bias is not None:
            out += self._bias
        return out


class NNConvPlan(_EdgeMatrixPlan):
    """x_v' = W x_v + aggr_u x_u nn(e_uv) + b: a source sends its row, nn makes the matrix of each edge."""

    def __init__(self, spec: NNConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        weights, read, made = model.weights_of(prefix), spec.in_channels, spec.out_channels
        self._nn = Chain(model, spec.nn, [f"{prefix}.nn.{i}" for i in range(len(spec.nn))])
        cost = sum(layer.multiplications for layer in spec.nn) + read * made
        network = EdgeNetwork(
            0, -1, read, "beside", made, self._messages, cost, self._matrices, edge_size=read * made
        )  # fmt: skip
        self._keep(spec, network, weights.get("lin.weight"), weights.get("bias"))

    def _matrices(self, attr: Rows) -> Rows:
        return self._nn.apply(attr, own=False)

    def _messages(self, terms: Rows) -> Rows:
        out = np.empty((len(terms), self.out_channels), np.float32)
        multiply_by_edge(terms, self.message_width, out)
        return out

    def _rows(self, x: Rows) -> Rows:
        return x


class GMMConvPlan(_EdgeMatrixPlan):
    """x_v' = W x_v + aggr_u sum_k w_k(e_uv) G_k x_u + b: a source sends G_k x_u of all kernels."""

    def __init__(self, spec: GMMConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        weights = model.weights_of(prefix)
        self._g, self._kernels = np.ascontiguousarray(weights["g"], np.float32), spec.kernels
        self._mu = weights["mu"].astype(np.float64)
        self._factor = -0.5 / (_LEAST + weights["sigma"].astype(np.float64) ** 2)
        sent, cost = spec.kernels * spec.out_channels, spec.kernels * (spec.out_channels + 2 * spec.edge_channels)
        network = EdgeNetwork(
            0, -1, sent, "beside", spec.out_channels, self._messages, cost, self._weights, edge_size=spec.kernels
        )  # fmt: skip
        self._keep(spec, network, weights.get("root.weight"), weights.get("bias"))

    def _weights(self, attr: Rows) -> Rows:
        out = np.empty((len(attr), self._kernels), np.float32)
        weigh_kernels(np.ascontiguousarray(attr, np.float32), self._mu, self._factor, out)
        return out

    def _messages(self, terms: Rows) -> Rows:
        out = np.empty((len(terms), self.out_channels), np.float32)
        mix_kernels(terms, self._kernels, out)
        return out

    def _rows(self, x: Rows) -> Rows:
        return matmul(x, self._g)
