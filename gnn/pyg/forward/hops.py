"""PyG's convs that are hops with linear layers and products around: SGC, APPNP, ChebConv, EGConv and others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from freshet.gnn.declarations import GCNConv, Laplacian
from freshet.gnn.pyg.aggregations import AGGREGATORS
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.aggregators import aggr_of
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.forward.opened_conv import OpenedConv
from freshet.gnn.pyg.functions import callable_step
from freshet.gnn.pyg.steps import Hop, Step, array_of, class_name, is_read, tensors
from freshet.gnn.rows.functions import Clamp, SquareRoot

_OF_DIFFERENCES = ("sum", "mean")


def _cheb_conv(conv: OpenedConv, x: str) -> str:
    """Note sum_k W_k T_k + b, with T_0 = x, T_1 = L x and T_k = 2 L T_(k-1) - T_(k-2), L the scaled Laplacian."""
    module, lambda_max = conv.module, conv.options.get("lambda_max")
    if conv.aggr != "sum":
        refuse(f"{conv.name}: ChebConv with aggr={module.aggr!r} is not supported; supported: add")
    out = conv.lin(x, "lins.0", module.lins[0])
    if len(module.lins) > 1:
        _check_lambda(conv, lambda_max)
    kind: Any = module.normalization or "none"
    hop = Laplacian(
        in_channels=conv.width or 1,
        out_channels=conv.width or 1,
        normalization=kind,
        lambda_max=2.0 if lambda_max is None else float(lambda_max),
        edge_weights=conv.weighted,
    )
    before, last = x, x
    for k, lin in enumerate(module.lins[1:], 1):
        made = conv.layer(last, hop, {}, f"hop{k}")
        if k > 1:
            made = conv.added(conv.scaled(made, 2.0, f"twice{k}"), conv.scaled(before, -1.0, f"minus{k}"), f"T{k}")
        before, last = last, made
        out = conv.added(out, conv.lin(made, f"lins.{k}", lin), f"sum{k}")
    return conv.shifted(out, module.bias, "bias")


def _check_lambda(conv: OpenedConv, lambda_max: Any) -> None:
    """Refuse a ChebConv without lambda_max, where PyG takes it from the whole graph, and one that is not above 0.

    Raises: ExportError saying which one to give.
    """
    if lambda_max is not None:
        if np.asarray(lambda_max).size != 1 or not 0 < float(lambda_max) < np.inf:
            refuse(f"{conv.name}: ChebConv is called with lambda_max={lambda_max}, expected one number above 0")
        return
    if conv.module.normalization is None:
        msg = f"{conv.name}: ChebConv with normalization=None scales by the largest degree of the graph, which every "
        raise ExportError(msg + "event may change: call it with a lambda_max of your own, conv(..., lambda_max=100.0)")
    if conv.weighted:
        msg = f"{conv.name}: ChebConv with edge weights scales by the largest entry of the Laplacian, which is another "
        msg += "one with negative weights in the graph: call it with lambda_max=2.0, which gives the same without them"
        raise ExportError(msg)


def _le_conv(conv: OpenedConv, x: str) -> str:
    """Note sum_u(w_uv (W1 x_u + b1 - W2 x_v)) + W3 x_v + b3: a column of ones counts what W2 x_v is multiplied by."""
    module, own = conv.module, conv.lin(x, "lin3", conv.module.lin3)
    if conv.aggr in ("std", "var") and not conv.weighted:  # which do not change where all messages move by the same
        return conv.added(conv.hop_of(conv.lin(x, "lin1", module.lin1), 1, _plain(conv.aggr)), own, "sum")
    if conv.weighted and conv.aggr not in _OF_DIFFERENCES:
        msg = (
            f"{conv.name}: LEConv with aggr={module.aggr!r} and edge weights is not supported: each weight multiplies "
        )
        raise ExportError(msg + "a row of the target, too; aggr='add' and 'mean' are, and all without edge weights")
    weights = tensors(Step(conv.name, module), lin1=module.lin1, lin2=module.lin2)
    out_channels = module.out_channels
    bias = np.append(weights.get("lin1.bias", np.zeros(out_channels, np.float32)), np.float32(1))
    sums = conv.linear(x, np.pad(weights["lin1.weight"], ((0, 1), (0, 0))), "lin1", bias)
    sums = conv.hop_of(sums, 1, _plain(conv.aggr))
    every, count = np.eye(out_channels + 1)[:-1], np.eye(out_channels + 1)[[-1] * out_channels]
    target = conv.linear(x, -weights["lin2.weight"], "lin2")
    target = conv.joined("product", [conv.linear(sums, count, "count"), target], "target")
    return conv.joined("sum", [conv.linear(sums, every, "sums"), target, own], "sum")


def _cluster_gcn_conv(conv: OpenedConv, x: str) -> str:
    """Note W sum_u(x_u + (1 + lambda) x_v) / d_v + b + W_root x_v: the mean of rows with the self-loop's own weight."""
    module = conv.module
    if conv.aggr != "sum":
        refuse(f"{conv.name}: ClusterGCNConv with aggr={module.aggr!r} is not supported; supported: add")
    if not module.add_self_loops:
        msg = f"{conv.name}: ClusterGCNConv with add_self_loops=False is not supported: PyG itself fails where a "
        raise ExportError(msg + "vertex has no self-loop. Nearest: add_self_loops=True")
    mean = Hop(
        normalize=False, add_self_loops=True, channels=conv.width, aggr="mean", self_weight=1 + module.diag_lambda
    )
    hop = conv.hop_of(x, 1, mean, weighted=False)
    return conv.added(conv.lin(hop, "lin_out", module.lin_out), conv.lin(x, "lin_root", module.lin_root), "sum")


def _wl_conv_continuous(conv: OpenedConv, x: str) -> str:
    """Note (x_v + sum_u(w_uv x_u) / sum_u(w_uv)) / 2."""
    hop = conv.hop_of(x, 1, _plain("weighted_mean"))
    return conv.scaled(conv.added(x, hop, "sum"), 0.5, "half")


def _arma_conv(conv: OpenedConv, x: str) -> str:
    """Note the layers of all stacks, which lie side by side in one row: GCNConv without self-loops, and x itself."""
    module, step = conv.module, Step(conv.name, conv.module)
    first, between, root = (array_of(step, w) for w in (module.init_weight, module.weight, module.root_weight))
    biases = None if module.bias is None else array_of(step, module.bias)
    stacks, _, out_channels = first.shape
    rows, width = x, stacks * out_channels
    for t in range(module.num_layers):
        at = 0 if module.shared_weights else t
        weight = _side_by_side(first) if t == 0 else _diagonal(between[0 if module.shared_weights else t - 1])
        layer = GCNConv(
            in_channels=weight.shape[1],
            out_channels=width,
            aggr=conv.aggr,
            add_self_loops=False,
            bias=biases is not None,
            edge_weights=conv.weighted,
        )
        given = {"lin.weight": weight} | ({} if biases is None else {"bias": biases[at].reshape(width)})
        rows = conv.layer(rows, layer, given, f"hop{t + 1}")
        rows = conv.added(rows, conv.linear(x, _side_by_side(root[at]), f"root{t + 1}"), f"sum{t + 1}")
        if module.act is not None:
            rows = conv.ops.add(rows, callable_step(f"{conv.name}.act{t + 1}", module.act))
    return rows if stacks == 1 else conv.linear(rows, np.tile(np.eye(out_channels), stacks) / stacks, "mean")


def _eg_conv(conv: OpenedConv, x: str) -> str:
    """Note sum_ab(w_v,hab aggr_a(bases_b)) for each head h: each product of a weight and a channel in a column."""
    module, kinds = conv.module, list(conv.module.aggregators)
    loops, width = bool(module.add_self_loops), module.num_bases * module.out_channels // module.num_heads
    if "symnorm" not in kinds and loops:
        msg = f"{conv.name}: EGConv with add_self_loops and without the aggregator 'symnorm' is not supported: PyG "
        msg += (
            "adds self-loops only up to the last vertex that has an edge. Nearest: 'symnorm', or add_self_loops=False"
        )
        raise ExportError(msg)
    heads, several, channels = module.num_heads, module.num_bases * len(kinds), module.out_channels // module.num_heads
    bases = conv.lin(x, "bases_lin", module.bases_lin)
    aggrs = {"symnorm": "sum", "std": "var"}
    of_kinds = [Hop(kind == "symnorm", loops, width, aggrs.get(kind, kind)) for kind in kinds]
    hops = [conv.hop_of(bases, number, hop, weighted=False) for number, hop in enumerate(of_kinds, 1)]
    for at in [at for at, kind in enumerate(kinds) if kind == "std"]:  # never below 0.003
        least = conv.layer(hops[at], Clamp(low=1e-5), {}, f"least{at}")
        hops[at] = conv.layer(least, SquareRoot(), {}, f"std{at}")
    rows = conv.joined("cat", hops, "aggregates")
    every = conv.linear(rows, np.tile(np.eye(several * channels), (heads, 1)), "every_head")
    weights = tensors(Step(conv.name, module), comb_lin=module.comb_lin)
    weight, bias = (np.repeat(weights[f"comb_lin.{name}"], channels, axis=0) for name in ("weight", "bias"))
    product = conv.joined("product", [every, conv.linear(x, weight, "comb_lin", bias)], "product")
    out = conv.linear(product, np.kron(np.eye(heads), np.tile(np.eye(channels), several)), "heads")
    return conv.shifted(out, module.bias, "bias")


def _mf_conv(conv: OpenedConv, x: str) -> str:
    """Note W_d sum_u(x_u) + V_d x_v + b_d, of which d is the number of in-edges: of all d, times 1 or 0.

    A column of ones counts in-edges, and 1 - |count - d| is 1 for that d, and below 1 for others.
    """
    module = conv.module
    if conv.aggr != "sum":
        refuse(f"{conv.name}: MFConv with aggr={module.aggr!r} is not supported; supported: add")
    step, width = Step(conv.name, module), int(module.in_channels)
    ones = np.append(np.zeros(width), 1)
    sums = conv.hop_of(conv.linear(x, np.eye(width + 1)[:, :width], "ones", ones), 1, _plain("sum"), weighted=False)
    most = conv.layer(conv.linear(sums, ones[None], "count"), Clamp(high=float(module.max_degree)), {}, "most")
    degrees = len(module.lins_l)
    off = conv.linear(most, np.ones((degrees, 1)), "off", -np.arange(degrees))
    off = conv.joined("max", [off, conv.scaled(off, -1.0, "minus")], "distance")
    is_degree = conv.layer(conv.shifted(conv.scaled(off, -1.0, "near"), 1.0, "is"), Clamp(low=0.0), {}, "is_degree")
    weights = [tensors(step, left=one, right=other) for one, other in zip(module.lins_l, module.lins_r, strict=True)]
    of_sums = np.concatenate([np.pad(one["left.weight"], ((0, 0), (0, 1))) for one in weights])
    biases = np.concatenate([one.get("left.bias", np.zeros(module.out_channels)) for one in weights])
    own = np.concatenate([one["right.weight"] for one in weights])
    every = conv.added(conv.linear(sums, of_sums, "lins_l", biases), conv.linear(x, own, "lins_r"), "every")
    spread = conv.linear(is_degree, np.repeat(np.eye(degrees), module.out_channels, axis=0), "spread")
    product = conv.joined("product", [every, spread], "product")
    return conv.linear(product, np.tile(np.eye(module.out_channels), degrees), "sum")


def _plain(aggr: str) -> Hop:
    return Hop(normalize=False, add_self_loops=False, aggr=aggr)


def _side_by_side(weight: np.ndarray) -> np.ndarray:
    """Return (stacks, in, out) weights as one (stacks * out, in) weight."""
    return np.concatenate([one.T for one in weight])


def _diagonal(weight: np.ndarray) -> np.ndarray:
    """Return (stacks, in, out) weights as one (stacks * out, stacks * in) weight, each stack reading its own rows."""
    stacks, into, out = weight.shape
    made = np.zeros((stacks * out, stacks * into), np.float32)
    for k, one in enumerate(weight):
        made[k * out : (k + 1) * out, k * into : (k + 1) * into] = one.T
    return made


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
    if not is_of_hops(module):
        return None
    conv = OpenedConv(ops, name, module, edge_weights, _checked(name, module), options)
    if kind in _ONE and len(rows) == 1:
        return _ONE[kind](conv, rows[0])
    if kind in _TWO and len(rows) == 2:
        return _TWO[kind](conv, *rows)
    refuse(f"{name}: {kind} is called with the rows of {len(rows)} layers, expected {1 if kind in _ONE else 2}")


def is_of_hops(module: Any) -> bool:
    """Return whether a module is such a conv, with an aggregator that hops have."""
    return class_name(module) in (*_ONE, *_TWO) and not is_read(module)


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
    beside = conv.module.combine_root == "self_loop" and conv.aggr != "sum"
    plain = _plain(conv.aggr)
    hop = conv.hop_of(x, 1, plain._replace(add_self_loops=True, existing_loops="beside") if beside else plain)
    if conv.module.combine_root is None or beside:
        return hop
    if conv.module.combine_root == "cat":
        return conv.joined("cat", [x, hop], "cat")
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
    _PYG + "ChebConv": _cheb_conv,
    _PYG + "LEConv": _le_conv,
    _PYG + "ClusterGCNConv": _cluster_gcn_conv,
    _PYG + "WLConvContinuous": _wl_conv_continuous,
    _PYG + "ARMAConv": _arma_conv,
    _PYG + "EGConv": _eg_conv,
    _PYG + "MFConv": _mf_conv,
}
_TWO: dict[str, Callable[[OpenedConv, str, str], str]] = {_PYG + "GCN2Conv": _gcn2_conv}
