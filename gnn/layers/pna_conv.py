"""PNAConv: several aggregates of one message beside each other, scaled by the in-degree, through a tower or several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from freshet.gnn.declarations import DenseLayer, PNAConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.kernels.kernel import inner, kernel

_SCALERS = ("identity", "amplification", "attenuation", "linear", "inverse_linear")
_IDENTITY, _AMPLIFICATION, _ATTENUATION, _LINEAR, _INVERSE_LINEAR = range(len(_SCALERS))


@inner
def _scale(scaler: int, count: float, degree: float, log_degree: float) -> float:
    """Return the factor of a scaler, given the averages of degrees and of their logarithms."""
    if scaler == _AMPLIFICATION:
        return math.log(count + 1) / log_degree
    if scaler == _ATTENUATION:
        return log_degree / math.log(max(count, 1.0) + 1)
    if scaler == _LINEAR:
        return count / degree
    if scaler == _INVERSE_LINEAR:
        return degree / max(count, 1.0)
    return 1.0


@kernel
def read_towers(
    own: np.ndarray,
    shift: np.ndarray,
    read: np.ndarray,
    count: np.ndarray,
    shifted: np.ndarray,
    scalers: np.ndarray,
    averages: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write the input of each tower's second half: its share of the own row, then each scaled aggregate.

    The target's share of the messages is added to an aggregate as often as it occurs there: never (a variance), once (a
    mean or an extremum) or `count` times (a sum); without messages it stays 0.

    Shapes: own (n, towers * size) or (n, size) if all towers read all; shift (n, towers * size); read (n, aggregates *
    towers * size); shifted (aggregates,) int64: 0, 1, or -1 for `count` times; out (towers, n, size * (1 + scalers *
    aggregates)).
    """
    towers, size, aggregates = len(out), shift.shape[1] // len(out), len(shifted)
    for t in range(towers):
        mine = t * size if own.shape[1] > size else 0
        for i in range(len(own)):
            many = np.float64(count[i])
            for c in range(size):
                out[t, i, c] = own[i, mine + c]
            at = size
            for s in range(len(scalers)):
                factor = np.float32(_scale(scalers[s], many, averages[0], averages[1]))
                for a in range(aggregates):
                    times = np.float32(0)
                    if count[i] > 0 and shifted[a] != 0:
                        times = np.float32(1 if shifted[a] > 0 else many)
                    for c in range(size):
                        value = read[i, (a * towers + t) * size + c]
                        if times != 0:
                            value += times * shift[i, t * size + c]
                        out[t, i, at + c] = value if scalers[s] == _IDENTITY else value * factor
                    at += size


class PNAConvPlan(LayerPlan):
    """x_v' = W [post_t([x_v | scaled aggregates of P_t x_v + Q_t x_u + b_t] of each tower t)] + b.

    A message is linear in both ends, so its target's share is no message: a source sends Q_t x_u for every tower, and
    mean, max and min are moved by P_t x_v + b_t when they are read, sums by that as often as there are messages;
    variances stay as they are (docs/design/aggregates.md). Where more layers make a message (`pre`), it is linear no
    more: then every part keeps the terms of both ends, and messages are made by edge.
    """

    def __init__(self, spec: PNAConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        weights, size = model.weights_of(prefix), spec.tower_in
        self.synopsis = inner = synopsis_of(spec.aggregators, weighted=False)
        self.message_width, self.self_width = spec.towers * size, spec.in_channels
        self.reads_self = self.reads_context = True
        self._towers, self._divided = spec.towers, spec.divide_input
        towers = range(spec.towers)
        self._shifts = not spec.pre  # the target's share is no message
        edge, cost = self._edge_terms(spec, weights)
        self._before_messages = [Chain(model, spec.pre, _names(f"{prefix}.pre.{t}", spec.pre)) for t in towers]
        if spec.pre or spec.edge_channels:
            width, target = spec.towers * size, spec.towers * size if spec.pre else -1
            cost += spec.towers * sum(layer.multiplications for layer in spec.pre)
            self.network = EdgeNetwork(0, target, width, "sum", width, self._messages, cost, edge)
            self.synopsis = NetworkSynopsis(inner, self.network)
            self.message_width *= 2 if spec.pre else 1
        of_target = [weights[f"pre.{t}.weight"][:, :size] for t in towers]
        of_source = [weights[f"pre.{t}.weight"][:, size : 2 * size] for t in towers]
        self._of_target, self._of_source = ([transposed(w) for w in some] for some in (of_target, of_source))
        self._shift = np.concatenate([weights[f"pre.{t}.bias"] for t in towers])
        times = {kind: 0 for kind in spec.aggregators} if spec.pre else {"sum": -1, "std": 0, "var": 0}
        self._shifted = np.array([times.get(kind, 1) for kind in spec.aggregators], np.int64)
        self._scalers = np.array([_SCALERS.index(scaler) for scaler in spec.scalers], np.int64)
        averages = weights["average_degree"][0], weights["average_log_degree"][0]
        self._averages = np.array(averages, np.float64)
        self._first = [(transposed(weights[f"post.{t}.first.weight"]), weights[f"post.{t}.first.bias"]) for t in towers]
        self._rest = [Chain(model, spec.post, _names(f"{prefix}.post.{t}", spec.post)) for t in towers]
        self._last = transposed(weights["lin.weight"]), weights["lin.bias"]

    def _edge_terms(self, spec: PNAConv, weights: dict[str, Rows]) -> tuple[Callable[[Rows], Rows] | None, int]:
        """Return what makes the terms of all towers of the attributes of edges, and its multiplications."""
        if not spec.edge_channels:
            return None, 0
        encode = transposed(weights["edge_encoder.weight"]), weights["edge_encoder.bias"]
        size = spec.tower_in
        third = transposed(np.concatenate([weights[f"pre.{t}.weight"][:, 2 * size :] for t in range(spec.towers)]))
        return lambda attr: matmul(linear(attr, *encode), third), size * (spec.edge_channels + spec.towers * size)

    def _send(self, x: Rows, ctx: Context) -> Rows:
        sent = [self._through(x, self._of_source), x]
        if not self._shifts:
            sent.insert(1, self._of_targets(x))
        return np.concatenate(sent, axis=1)

    def _of_targets(self, x: Rows) -> Rows:
        shift = self._through(x, self._of_target)
        shift += self._shift
        return shift

    def _messages(self, terms: Rows) -> Rows:
        """Run what makes the messages of each tower of the sums of both ends' terms."""
        shares = np.split(terms, self._towers, axis=1)
        made = [
            chain.apply(np.array(s, order="C"), own=True)
            for chain, s in zip(self._before_messages, shares, strict=True)
        ]
        return np.concatenate(made, axis=1)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        shift = self._of_targets(own)
        if not self._shifts:  # messages have the target's share
            shift = np.zeros_like(shift)
        read = self.synopsis.read(agg, ctx.count)
        width = shift.shape[1] // self._towers * (1 + len(self._shifted) * len(self._scalers))
        rows = np.empty((self._towers, len(own), width), np.float32)
        given = np.ascontiguousarray(own), shift, np.ascontiguousarray(read), ctx.count
        read_towers(*given, self._shifted, self._scalers, self._averages, rows)
        made = [
            rest.apply(linear(of_tower, *first), own=True)
            for of_tower, first, rest in zip(rows, self._first, self._rest, strict=True)
        ]
        return linear(np.concatenate(made, axis=1), *self._last)

    def _through(self, x: Rows, weights: list[Rows]) -> Rows:
        """Multiply the share of each tower, or all of the row, by that tower's weights; side by side."""
        shares = np.split(x, self._towers, axis=1) if self._divided else [x] * self._towers
        return np.concatenate([matmul(share, w) for share, w in zip(shares, weights, strict=True)], axis=1)


def _names(prefix: str, layers: Sequence[DenseLayer]) -> list[str]:
    return [f"{prefix}.{i}" for i in range(len(layers))]
