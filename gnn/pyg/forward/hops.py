"""PyG's convs that are several hops of one sum, with rows of earlier hops beside: SGC, APPNP, TAGConv and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.aggregators import AGGREGATORS, aggr_of
from freshet.gnn.pyg.forward.composed import COMPOSED
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.forward.opened_conv import OpenedConv
from freshet.gnn.pyg.steps import Hop, Step, array_of, class_name


def opened_hops(
    ops: Operations,
    name: str,
    module: Any,
    rows: list[str],
    *,
    edge_weights: bool,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> str | None:
    """Note the operations of such a conv; returns the name of its rows, None for any other module.

    `options`: constants that it is called with.

    Raises: ExportError for an option that cannot be taken over.
    """
    kind = class_name(module)
    if kind not in _ONE and kind not in _TWO:
        return None
    conv = OpenedConv(ops, name, module, edge_weights, _checked(name, module), options)
    if kind in _ONE and len(rows) == 1:
        return _ONE[kind](conv, rows[0])
    if kind in _TWO and len(rows) == 2:
        return _TWO[kind](conv, *rows)
    msg = f"{name}: {kind} is called with the rows of {len(rows)} layers, expected {1 if kind in _ONE else 2}"
    raise ExportError(msg)


def _checked(name: str, module: Any) -> str:
    """Return a conv's aggregator.

    Raises: ExportError for one that is not known, and for messages against their edges.
    """
    if module.flow != "source_to_target":
        msg = f"{name}: flow={module.flow!r} is not supported, messages flow source_to_target. Nearest: "
        msg += "that flow, and edges the other way round in the stream"
        raise ExportError(msg)
    kind: str = aggr_of(Step(name, module), AGGREGATORS)
    return kind


def _lg_conv(conv: OpenedConv, x: str) -> str:
    return conv.hop(x, 1)


def _sg_conv(conv: OpenedConv, x: str) -> str:
    for k in range(conv.module.K):
        x = conv.hop(x, k + 1, channels=conv.width)
    return conv.lin(x, "lin", conv.module.lin)


def _ssg_conv(conv: OpenedConv, x: str) -> str:
    out, share = conv.scaled(x, conv.module.alpha, "alpha"), (1 - conv.module.alpha) / conv.module.K
    for k in range(conv.module.K):
        x = conv.hop(x, k + 1, channels=conv.width)
        out = conv.added(out, conv.scaled(x, share, f"share{k + 1}"), f"sum{k + 1}")
    return conv.lin(out, "lin", conv.module.lin)


def _tag_conv(conv: OpenedConv, x: str) -> str:
    lins = conv.module.lins
    out = conv.lin(x, "lins.0", lins[0])
    for k in range(1, len(lins)):
        x = conv.hop(x, k, channels=conv.width)
        out = conv.added(out, conv.lin(x, f"lins.{k}", lins[k]), f"sum{k}")
    return conv.shifted(out, conv.module.bias, "bias")


def _mix_hop_conv(conv: OpenedConv, x: str) -> str:
    module, made = conv.module, dict[int, str]()
    for k, lin in enumerate(module.lins):
        x = conv.hop(x, k, channels=conv.width) if k else x
        if k in module.powers:
            made[k] = conv.lin(x, f"lins.{k}", lin)
    out = conv.joined("cat", [made[k] for k in module.powers], "powers")
    return conv.shifted(out, module.bias, "bias")


def _simple_conv(conv: OpenedConv, x: str) -> str:
    hop = conv.hop_of(x, 1, Hop(normalize=False, add_self_loops=False, aggr=conv.aggr))
    if conv.module.combine_root is None:
        return hop
    if conv.module.combine_root == "cat":
        return conv.joined("cat", [x, hop], "cat")
    if conv.module.combine_root == "self_loop" and conv.aggr != "sum":
        msg = f"{conv.name}: SimpleConv with aggr={conv.module.aggr!r} and combine_root='self_loop' is not supported: "
        raise ExportError(msg + "it adds a self-loop beside those that are there. Nearest: combine_root='sum'")
    return conv.added(hop, x, "sum")  # a further self-loop of weight 1 is the same


def _appnp(conv: OpenedConv, x: str) -> str:
    alpha = conv.module.alpha
    teleport = conv.scaled(x, alpha, "alpha") if alpha and conv.module.K else x
    for k in range(conv.module.K):
        x = conv.hop(x, k + 1)
        if alpha:
            x = conv.added(conv.scaled(x, 1 - alpha, f"rest{k + 1}"), teleport, f"sum{k + 1}")
    return x


def _gcn2_conv(conv: OpenedConv, x: str, first: str) -> str:
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
    conv = OpenedConv(ops, "LightGCN", module, weighted=True, aggr="sum")
    out = conv.scaled(rows, alpha[0], "alpha0")
    for k, one in enumerate(module.convs, 1):
        kind = _checked(f"convs.{k - 1}", one)
        hop = Hop(bool(one.normalize), add_self_loops=False, channels=module.embedding_dim, aggr=kind)
        rows = ops.add(rows, Step(f"convs.{k - 1}", hop, edge_weights=True))
        out = conv.added(out, conv.scaled(rows, alpha[k], f"alpha{k}"), f"sum{k}")
    return out


def _towards_identity(weight: np.ndarray | None, beta: float) -> np.ndarray:
    assert weight is not None  # weight1 is always there
    return ((1 - beta) * np.eye(len(weight)) + beta * weight.T.astype(np.float64)).astype(np.float32)


_PYG = "torch_geometric.nn."
_ONE: dict[str, Callable[[OpenedConv, str], str]] = {
    _PYG + "LGConv": _lg_conv,
    _PYG + "SGConv": _sg_conv,
    _PYG + "SSGConv": _ssg_conv,
    _PYG + "TAGConv": _tag_conv,
    _PYG + "APPNP": _appnp,
    _PYG + "MixHopConv": _mix_hop_conv,
    _PYG + "SimpleConv": _simple_conv,
    **COMPOSED,
}
_TWO: dict[str, Callable[[OpenedConv, str, str], str]] = {_PYG + "GCN2Conv": _gcn2_conv}
