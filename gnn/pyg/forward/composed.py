"""PyG's convs that are hops with linear layers and products around: LEConv, ARMAConv, EGConv and others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from freshet.gnn.declarations import GCNConv, Laplacian
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.opened_conv import OpenedConv
from freshet.gnn.pyg.functions import callable_step
from freshet.gnn.pyg.steps import Hop, Step, array_of
from freshet.gnn.pyg.tensors import tensors

_OF_DIFFERENCES = ("sum", "mean")


def cheb_conv(conv: OpenedConv, x: str) -> str:
    """Note sum_k W_k T_k + b, with T_0 = x, T_1 = L x and T_k = 2 L T_(k-1) - T_(k-2), L the scaled Laplacian."""
    module, lambda_max = conv.module, conv.options.get("lambda_max")
    if conv.aggr != "sum":
        msg = f"{conv.name}: ChebConv with aggr={module.aggr!r} is not supported; supported: add"
        raise ExportError(msg)
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
            msg = f"{conv.name}: ChebConv is called with lambda_max={lambda_max}, expected one number above 0"
            raise ExportError(msg)
        return
    if conv.module.normalization is None:
        msg = f"{conv.name}: ChebConv with normalization=None scales by the largest degree of the graph, which every "
        raise ExportError(msg + "event may change: call it with a lambda_max of your own, conv(..., lambda_max=100.0)")
    if conv.weighted:
        msg = f"{conv.name}: ChebConv with edge weights scales by the largest entry of the Laplacian, which is another "
        msg += "one with negative weights in the graph: call it with lambda_max=2.0, which gives the same without them"
        raise ExportError(msg)


def le_conv(conv: OpenedConv, x: str) -> str:
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


def cluster_gcn_conv(conv: OpenedConv, x: str) -> str:
    """Note W sum_u(x_u + (1 + lambda) x_v) / d_v + b + W_root x_v: the mean of rows with the self-loop's own weight."""
    module = conv.module
    if conv.aggr != "sum":
        msg = f"{conv.name}: ClusterGCNConv with aggr={module.aggr!r} is not supported; supported: add"
        raise ExportError(msg)
    if not module.add_self_loops:
        msg = f"{conv.name}: ClusterGCNConv with add_self_loops=False is not supported: PyG itself fails where a "
        raise ExportError(msg + "vertex has no self-loop. Nearest: add_self_loops=True")
    mean = Hop(
        normalize=False, add_self_loops=True, channels=conv.width, aggr="mean", self_weight=1 + module.diag_lambda
    )
    hop = conv.hop_of(x, 1, mean, weighted=False)
    return conv.added(conv.lin(hop, "lin_out", module.lin_out), conv.lin(x, "lin_root", module.lin_root), "sum")


def wl_conv_continuous(conv: OpenedConv, x: str) -> str:
    """Note (x_v + sum_u(w_uv x_u) / sum_u(w_uv)) / 2."""
    hop = conv.hop_of(x, 1, _plain("weighted_mean"))
    return conv.scaled(conv.added(x, hop, "sum"), 0.5, "half")


def arma_conv(conv: OpenedConv, x: str) -> str:
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


def eg_conv(conv: OpenedConv, x: str) -> str:
    """Note sum_ab(w_v,hab aggr_a(bases_b)) for each head h: each product of a weight and a channel in a column."""
    module, kinds = conv.module, list(conv.module.aggregators)
    loops, width = bool(module.add_self_loops), module.num_bases * module.out_channels // module.num_heads
    if "std" in kinds:
        msg = f"{conv.name}: EGConv with the aggregator 'std' is not supported: its deviations are never below 0.003, "
        raise ExportError(msg + "unlike those of other convs. Nearest: 'var'")
    if "symnorm" not in kinds and loops:
        msg = f"{conv.name}: EGConv with add_self_loops and without the aggregator 'symnorm' is not supported: PyG "
        msg += (
            "adds self-loops only up to the last vertex that has an edge. Nearest: 'symnorm', or add_self_loops=False"
        )
        raise ExportError(msg)
    heads, several, channels = module.num_heads, module.num_bases * len(kinds), module.out_channels // module.num_heads
    bases = conv.lin(x, "bases_lin", module.bases_lin)
    of_kinds = [Hop(kind == "symnorm", loops, width, "sum" if kind == "symnorm" else kind) for kind in kinds]
    hops = [conv.hop_of(bases, number, hop, weighted=False) for number, hop in enumerate(of_kinds, 1)]
    rows = conv.joined("cat", hops, "aggregates")
    every = conv.linear(rows, np.tile(np.eye(several * channels), (heads, 1)), "every_head")
    weights = tensors(Step(conv.name, module), comb_lin=module.comb_lin)
    weight, bias = (np.repeat(weights[f"comb_lin.{name}"], channels, axis=0) for name in ("weight", "bias"))
    product = conv.joined("product", [every, conv.linear(x, weight, "comb_lin", bias)], "product")
    out = conv.linear(product, np.kron(np.eye(heads), np.tile(np.eye(channels), several)), "heads")
    return conv.shifted(out, module.bias, "bias")


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


_PYG = "torch_geometric.nn."
COMPOSED: dict[str, Callable[[OpenedConv, str], str]] = {
    _PYG + "ChebConv": cheb_conv,
    _PYG + "LEConv": le_conv,
    _PYG + "ClusterGCNConv": cluster_gcn_conv,
    _PYG + "WLConvContinuous": wl_conv_continuous,
    _PYG + "ARMAConv": arma_conv,
    _PYG + "EGConv": eg_conv,
}
