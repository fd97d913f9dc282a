"""Layers whose messages add up terms of source, target and edge before a function: CGConv and GENConv."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.gnn.declarations import CGConv, GENConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.gnn.synopses.softmax import Score, SoftmaxSynopsis


class CGConvPlan(LayerPlan):
    """x_v' = x_v + aggr_u sigmoid(f_uv) softplus(s_uv); a row is [F x | S x as source | F x | S x as target]."""

    def __init__(self, spec: CGConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        weights, width = model.weights_of(prefix), spec.in_channels
        both = np.concatenate([weights["lin_f.weight"], weights["lin_s.weight"]])
        target, source, edge = np.split(both, [width, 2 * width], axis=1)
        self._all = transposed(np.concatenate([source, target]))
        biases = [weights["lin_f.bias"], weights["lin_s.bias"]] if spec.bias else [np.zeros(2 * width, np.float32)]
        self._biases = np.concatenate([np.zeros(2 * width, np.float32), *biases])
        of_edge, cost = (partial(matmul, w=transposed(edge)), edge.size) if spec.edge_channels else (None, 0)
        self.network = EdgeNetwork(0, 2 * width, 2 * width, "sum", width, _opened, cost, of_edge)
        self.synopsis = NetworkSynopsis(synopsis_of(spec.aggr, False), self.network)
        self.message_width, self.self_width, self.reads_self = 4 * width, width, True
        self.reads_context = spec.aggr == "mean"
        self._norm = (weights["bn.scale"], weights["bn.shift"]) if spec.batch_norm else None

    def _send(self, x: Rows, ctx: Context) -> Rows:
        return np.concatenate([linear(x, self._all, self._biases), x], axis=1)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        out = np.array(self.synopsis.read(agg, ctx.count), np.float32, order="C")
        if self._norm is not None:
            out *= self._norm[0]
            out += self._norm[1]
        out += own
        return out


class GENConvPlan(LayerPlan):
    """x_v' = nn(W_dst x_v + aggr_u (relu(W_src x_u + W_e e_uv) + eps)); a row is [W_src x | W_dst x]."""

    def __init__(self, spec: GENConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        weights, width = model.weights_of(prefix), spec.out_channels
        self._both: tuple[Rows, Rows | None] | None = None
        if spec.in_channels != width:
            names = ("lin_src", "lin_dst")
            biases = np.concatenate([weights[f"{name}.bias"] for name in names]) if spec.bias else None
            self._both = transposed(np.concatenate([weights[f"{name}.weight"] for name in names])), biases
        edge, cost = None, 0
        if spec.edge_channels:
            w = transposed(weights["lin_edge.weight"])
            edge, cost = partial(linear, weight_t=w, bias=weights.get("lin_edge.bias")), w.size
        rest = partial(_positive, eps=np.float32(spec.eps))
        if spec.aggr == "softmax":
            score = Score("given", heads=width, channels=1, source=width, target=0, width=2 * width)
            scored = partial(_scored, eps=np.float32(spec.eps), t=np.float32(spec.t))
            self.network = EdgeNetwork(0, -1, width, "sum", 2 * width, scored, cost, edge)
            self.synopsis = NetworkSynopsis(SoftmaxSynopsis(score), self.network)
        else:
            self.network = EdgeNetwork(0, -1, width, "sum", width, rest, cost, edge)
            self.synopsis = NetworkSynopsis(synopsis_of(spec.aggr, False), self.network)
        self.message_width, self.reads_self, self.self_is_message = width, True, self._both is None
        self.self_width = 0 if self._both is None else width
        self.reads_context = spec.aggr == "mean"
        self._nn = Chain(model, spec.nn, [f"{prefix}.nn.{i}" for i in range(len(spec.nn))])

    def _send(self, x: Rows, ctx: Context) -> Rows:
        return x if self._both is None else linear(x, *self._both)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        return self._nn.apply(self.synopsis.read(agg, ctx.count) + own, own=True)


def _opened(terms: Rows) -> Rows:
    """Return sigmoid(f) softplus(s) of rows [f | s]."""
    gates, values = (np.ascontiguousarray(half) for half in np.split(terms, 2, axis=1))
    elementwise.sigmoid(gates.reshape(-1))
    elementwise.softplus(values.reshape(-1), 1.0, 20.0)
    gates *= values
    return gates


def _positive(terms: Rows, eps: np.float32) -> Rows:
    """Return relu(terms) + eps."""
    elementwise.relu(terms.reshape(-1))
    terms += eps
    return terms


def _scored(terms: Rows, eps: np.float32, t: np.float32) -> Rows:
    """Return [m | t m] of the messages m."""
    made = _positive(terms, eps)
    return np.concatenate([made, t * made], axis=1)
