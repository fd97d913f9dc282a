"""Turns PyG's attention layers into declarations and weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.gnn.declarations import AGNNConv, GATConv, GATv2Conv, SuperGATConv, TransformerConv
from freshet.gnn.pyg.refusals import HOW_WIDE
from freshet.gnn.pyg.steps import ExportError, Step, array_of, class_name
from freshet.gnn.pyg.tensors import Converted, tensors


def _check(step: Step) -> Any:
    """The module, after refusing what no attention layer here has."""
    conv: Any = step.op
    name = class_name(conv).rsplit(".", 1)[1]
    if not isinstance(conv.in_channels, int):  # -1 where the first rows said it, which is what the weights know
        msg = f"{step.name}: bipartite layers are not supported, in_channels is {conv.in_channels}"
        raise ExportError(msg)
    if getattr(conv, "lin_edge", None) is not None:
        msg = f"{step.name}: {name} with edge_dim={conv.edge_dim} is not supported yet: "
        msg += "attention reads no attributes here"
        raise ExportError(msg)
    return conv


def _sizes(conv: Any, reads: np.ndarray) -> dict[str, Any]:
    """Sizes of a conv whose rows are multiplied by the weights `reads`."""
    return {
        "in_channels": reads.shape[1],
        "out_channels": conv.heads * conv.out_channels if conv.concat else conv.out_channels,
        "heads": conv.heads,
        "concat": bool(conv.concat),
    }


def gat_conv(step: Step) -> Converted:
    """Return the declaration and weights of a GATConv."""
    conv = _check(step)
    weights = tensors(step, lin=conv.lin, **({} if conv.res is None else {"res": conv.res}))
    weights |= {name: array_of(step, getattr(conv, name))[0] for name in ("att_src", "att_dst")}
    return GATConv(**_sizes(conv, weights["lin.weight"]), **_gat_options(conv)), weights | _bias(step)


def gatv2_conv(step: Step) -> Converted:
    """Return the declaration and weights of a GATv2Conv."""
    conv = _check(step)
    modules = {"lin_l": conv.lin_l} | ({} if conv.share_weights else {"lin_r": conv.lin_r})
    weights = tensors(step, **modules, **({} if conv.res is None else {"res": conv.res}))
    weights["att"] = array_of(step, conv.att)[0]
    layer = GATv2Conv(
        **_sizes(conv, weights["lin_l.weight"]), **_gat_options(conv), share_weights=bool(conv.share_weights)
    )
    return layer, weights | _bias(step)


def super_gat_conv(step: Step) -> Converted:
    """Return the declaration and weights of a SuperGATConv as it is at inference."""
    conv = _check(step)
    weights = tensors(step, lin=conv.lin)
    if conv.attention_type == "MX":
        weights |= {name: array_of(step, getattr(conv, name))[0] for name in ("att_l", "att_r")}
    options = {name: getattr(conv, name) for name in ("attention_type", "negative_slope", "add_self_loops")}
    layer = SuperGATConv(**_sizes(conv, weights["lin.weight"]), **options, bias=conv.bias is not None)
    return layer, weights | _bias(step)


def _gat_options(conv: Any) -> dict[str, Any]:
    return {
        "negative_slope": conv.negative_slope,
        "add_self_loops": bool(conv.add_self_loops),
        "residual": conv.res is not None,
        "bias": conv.bias is not None,
    }


def _bias(step: Step) -> dict[str, Any]:
    conv: Any = step.op
    return {} if conv.bias is None else {"bias": array_of(step, conv.bias)}


def transformer_conv(step: Step) -> Converted:
    """Return the declaration and weights of a TransformerConv."""
    conv = _check(step)
    names = ["lin_key", "lin_query", "lin_value"]
    names += ["lin_skip"] if conv.root_weight else []
    names += ["lin_beta"] if conv.beta else []
    weights = tensors(step, **{name: getattr(conv, name) for name in names})
    layer = TransformerConv(
        **_sizes(conv, weights["lin_value.weight"]),
        root_weight=bool(conv.root_weight),
        beta=bool(conv.beta),
        bias=conv.lin_key.bias is not None,
    )
    return layer, weights


def agnn_conv(step: Step, width: int | None) -> Converted:
    """Return the declaration and weights of an AGNNConv, which reads rows of that width."""
    conv: Any = step.op
    if width is None:
        msg = f"{step.name}: the width of AGNNConv's rows is unknown, since no layer says it; {HOW_WIDE}"
        raise ExportError(msg)
    layer = AGNNConv(in_channels=width, out_channels=width, add_self_loops=bool(conv.add_self_loops))
    return layer, {"beta": array_of(step, conv.beta)}
