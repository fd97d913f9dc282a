"""PyG's convs that are several hops of one sum, with rows of earlier hops beside: SGC, APPNP, TAGConv and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from freshet.gnn.declarations import Linear
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.functions import Made, arithmetic
from freshet.gnn.pyg.steps import Hop, Step, array_of, class_name


class _Conv(NamedTuple):
    """A conv that is being opened: where its operations are noted, its name in the module, and the module itself."""

    ops: Operations
    name: str
    module: Any
    weighted: bool

    @property
    def width(self) -> int | None:
        """The width of the rows that it reads; of a conv that the first rows have sized (-1), its linear layer's."""
        first = next((one for one in self.module.modules() if "Linear" in type(one).__name__), None)
        found = self.module.in_channels if self.module.in_channels > 0 else getattr(first, "in_channels", -1)
        return found if found > 0 else None

    def hop(self, rows: str, number: int, *, channels: int | None = None) -> str:
        loops = getattr(self.module, "add_self_loops", False)
        normalize = getattr(self.module, "normalize", True)
        op = Hop(bool(normalize), bool(loops and normalize), channels)
        return self.ops.add(rows, Step(f"{self.name}.hop{number}", op, self.weighted))

    def scaled(self, rows: str, factor: float, label: str) -> str:
        return self._made(rows, arithmetic("mul", factor, rows_first=True), label)

    def shifted(self, rows: str, bias: Any, label: str) -> str:
        return rows if bias is None else self._made(rows, arithmetic("add", bias, rows_first=True), label)

    def linear(self, rows: str, weight: np.ndarray, label: str) -> str:
        out_channels, in_channels = weight.shape
        layer = Linear(in_channels=in_channels, out_channels=out_channels, bias=False)
        return self._made(rows, [(layer, {"weight": weight})], label)

    def lin(self, rows: str, label: str, module: Any) -> str:
        return self.ops.add(rows, Step(f"{self.name}.{label}", module))

    def added(self, one: str, other: str, label: str) -> str:
        return self.ops.join(f"{self.name}.{label}", "sum", [one, other])

    def _made(self, rows: str, layers: list[Made], label: str) -> str:
        for layer, weights in layers:
            rows = self.ops.add(rows, Step(f"{self.name}.{label}", layer, weights=weights))
        return rows


def opened_hops(ops: Operations, name: str, module: Any, rows: list[str], *, edge_weights: bool) -> str | None:
    """Note the operations of such a conv; returns the name of its rows, None for any other module.

    Raises: ExportError for an option that cannot be taken over.
    """
    kind = class_name(module)
    if kind not in _ONE and kind not in _TWO:
        return None
    _check(name, module)
    conv = _Conv(ops, name, module, edge_weights)
    if kind in _ONE and len(rows) == 1:
        return _ONE[kind](conv, rows[0])
    if kind in _TWO and len(rows) == 2:
        return _TWO[kind](conv, *rows)
    msg = f"{name}: {kind} is called with the rows of {len(rows)} layers, expected {1 if kind in _ONE else 2}"
    raise ExportError(msg)


def _check(name: str, module: Any) -> None:
    from torch_geometric.nn.aggr import SumAggregation

    if module.flow != "source_to_target":
        msg = f"{name}: flow={module.flow!r} is not supported, messages flow source_to_target"
        raise ExportError(msg)
    if type(module.aggr_module) is not SumAggregation:
        msg = f"{name}: {type(module).__name__} with aggr={module.aggr!r} is not supported; supported: add"
        raise ExportError(msg)


def _lg_conv(conv: _Conv, x: str) -> str:
    return conv.hop(x, 1)


def _sg_conv(conv: _Conv, x: str) -> str:
    for k in range(conv.module.K):
        x = conv.hop(x, k + 1, channels=conv.width)
    return conv.lin(x, "lin", conv.module.lin)


def _ssg_conv(conv: _Conv, x: str) -> str:
    out, share = conv.scaled(x, conv.module.alpha, "alpha"), (1 - conv.module.alpha) / conv.module.K
    for k in range(conv.module.K):
        x = conv.hop(x, k + 1, channels=conv.width)
        out = conv.added(out, conv.scaled(x, share, f"share{k + 1}"), f"sum{k + 1}")
    return conv.lin(out, "lin", conv.module.lin)


def _tag_conv(conv: _Conv, x: str) -> str:
    lins = conv.module.lins
    out = conv.lin(x, "lins.0", lins[0])
    for k in range(1, len(lins)):
        x = conv.hop(x, k, channels=conv.width)
        out = conv.added(out, conv.lin(x, f"lins.{k}", lins[k]), f"sum{k}")
    return conv.shifted(out, conv.module.bias, "bias")


def _mix_hop_conv(conv: _Conv, x: str) -> str:
    module, made = conv.module, dict[int, str]()
    for k, lin in enumerate(module.lins):
        x = conv.hop(x, k, channels=conv.width) if k else x
        if k in module.powers:
            made[k] = conv.lin(x, f"lins.{k}", lin)
    out = conv.ops.join(f"{conv.name}.powers", "cat", [made[k] for k in module.powers])
    return conv.shifted(out, module.bias, "bias")


def _simple_conv(conv: _Conv, x: str) -> str:
    hop = conv.ops.add(x, Step(f"{conv.name}.hop1", Hop(normalize=False, add_self_loops=False), conv.weighted))
    if conv.module.combine_root is None:
        return hop
    if conv.module.combine_root == "cat":
        return conv.ops.join(f"{conv.name}.cat", "cat", [x, hop])
    return conv.added(hop, x, "sum")  # a further self-loop of weight 1 is the same


def _appnp(conv: _Conv, x: str) -> str:
    alpha = conv.module.alpha
    teleport = conv.scaled(x, alpha, "alpha") if alpha and conv.module.K else x
    for k in range(conv.module.K):
        x = conv.hop(x, k + 1)
        if alpha:
            x = conv.added(conv.scaled(x, 1 - alpha, f"rest{k + 1}"), teleport, f"sum{k + 1}")
    return x


def _gcn2_conv(conv: _Conv, x: str, first: str) -> str:
    module = conv.module
    weights = [None if w is None else array_of(Step(conv.name, module), w) for w in (module.weight1, module.weight2)]
    x = conv.scaled(conv.hop(x, 1, channels=module.channels), 1 - module.alpha, "rest")
    first = conv.scaled(first, module.alpha, "alpha")
    if weights[1] is not None:  # (1 - beta) h + beta h W, of each by itself
        first = conv.linear(first, _towards_identity(weights[1], module.beta), "weight2")
        x = conv.linear(x, _towards_identity(weights[0], module.beta), "weight1")
        return conv.added(x, first, "sum")
    return conv.linear(conv.added(x, first, "sum"), _towards_identity(weights[0], module.beta), "weight1")


def light_gcn(ops: Operations, module: Any, rows: str) -> str:
    """Note the operations of LightGCN's `get_embedding`; the rows are what its table of embeddings holds."""
    alpha = [float(a) for a in module.alpha]
    conv = _Conv(ops, "LightGCN", module, weighted=True)
    out = conv.scaled(rows, alpha[0], "alpha0")
    for k, one in enumerate(module.convs, 1):
        _check(f"convs.{k - 1}", one)
        hop = Hop(bool(one.normalize), add_self_loops=False, channels=module.embedding_dim)
        rows = ops.add(rows, Step(f"convs.{k - 1}", hop, edge_weights=True))
        out = conv.added(out, conv.scaled(rows, alpha[k], f"alpha{k}"), f"sum{k}")
    return out


def _towards_identity(weight: np.ndarray | None, beta: float) -> np.ndarray:
    assert weight is not None  # weight1 is always there
    return ((1 - beta) * np.eye(len(weight)) + beta * weight.T.astype(np.float64)).astype(np.float32)


_PYG = "torch_geometric.nn."
_ONE: dict[str, Callable[[_Conv, str], str]] = {
    _PYG + "LGConv": _lg_conv,
    _PYG + "SGConv": _sg_conv,
    _PYG + "SSGConv": _ssg_conv,
    _PYG + "TAGConv": _tag_conv,
    _PYG + "APPNP": _appnp,
    _PYG + "MixHopConv": _mix_hop_conv,
    _PYG + "SimpleConv": _simple_conv,
}
_TWO: dict[str, Callable[[_Conv, str, str], str]] = {_PYG + "GCN2Conv": _gcn2_conv}
