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
    fill = getattr(conv, "fill_value", "mean")
    loops = getattr(conv, "lin_edge", None) is not None and getattr(conv, "add_self_loops", False)
    if loops and not (isinstance(fill, int | float) or (isinstance(fill, str) and fill == "mean")):
        msg = f"{step.name}: {name} with fill_value={fill!r} is not supported; expected 'mean' or a number"
        raise ExportError(msg)
    return conv


def _edges(conv: Any, weights: dict[str, np.ndarray]) -> dict[str, Any]:
    """Options of a conv that reads attributes of edges."""
    if conv.lin_edge is None:
        return {}
    fill = {"fill_value": conv.fill_value} if getattr(conv, "add_self_loops", False) else {}
    return {"edge_channels": weights["lin_edge.weight"].shape[1], **fill}


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
    weights = tensors(step, lin=conv.lin, **_also(conv))
    names = ("att_src", "att_dst", *(() if conv.lin_edge is None else ("att_edge",)))
    weights |= {name: array_of(step, getattr(conv, name))[0] for name in names}
    return GATConv(**_sizes(conv, weights["lin.weight"]), **_gat_options(conv, weights)), weights | _bias(step)


def gatv2_conv(step: Step) -> Converted:
    """Return the declaration and weights of a GATv2Conv."""
    conv = _check(step)
    modules = {"lin_l": conv.lin_l} | ({} if conv.share_weights else {"lin_r": conv.lin_r})
    weights = tensors(step, **modules, **_also(conv))
    weights["att"] = array_of(step, conv.att)[0]
    layer = GATv2Conv(
        **_sizes(conv, weights["lin_l.weight"]), **_gat_options(conv, weights), share_weights=bool(conv.share_weights)
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


def _also(conv: Any) -> dict[str, Any]:
    """Modules that not every conv has."""
    return {name: part for name, part in (("res", conv.res), ("lin_edge", conv.lin_edge)) if part is not None}


def _gat_options(conv: Any, weights: dict[str, np.ndarray]) -> dict[str, Any]:
    return _edges(conv, weights) | {
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
    names += [] if conv.lin_edge is None else ["lin_edge"]
    weights = tensors(step, **{name: getattr(conv, name) for name in names})
    layer = TransformerConv(
        **_sizes(conv, weights["lin_value.weight"]),
        root_weight=bool(conv.root_weight),
        beta=bool(conv.beta),
        bias=conv.lin_key.bias is not None,
        **_edges(conv, weights),
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
