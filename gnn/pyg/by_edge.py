"""Turns PyG's layers that weigh or make their messages by edge, attention among them, into declarations and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from freshet.gnn.declarations import (
    AGNNConv,
    CGConv,
    GATConv,
    GATv2Conv,
    GENConv,
    GMMConv,
    NNConv,
    ResGatedGraphConv,
    SuperGATConv,
    TransformerConv,
)
from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.norms import convert_norm
from freshet.gnn.pyg.refusals import HOW_WIDE
from freshet.gnn.pyg.steps import Converted, Step, array_of, class_name, refuse_other, tensors
from freshet.gnn.rows.layer import Layer


def _check(step: Step) -> Any:
    """The module, after refusing what no attention layer here has."""
    conv: Any = step.op
    name = class_name(conv).rsplit(".", 1)[1]
    if (
        not isinstance(conv.in_channels, int) and not step.relation
    ):  # -1 where the first rows said it, which is what the weights know
        refuse(f"{step.name}: bipartite layers are not supported, in_channels is {conv.in_channels}")
    fill = getattr(conv, "fill_value", "mean")
    loops = getattr(conv, "lin_edge", None) is not None and getattr(conv, "add_self_loops", False)
    if loops and not (isinstance(fill, int | float) or (isinstance(fill, str) and fill == "mean")):
        refuse(f"{step.name}: {name} with fill_value={fill!r} is not supported; expected 'mean' or a number")
    return conv


def _edges(conv: Any, weights: dict[str, np.ndarray]) -> dict[str, Any]:
    """Options of a conv that reads attributes of edges."""
    if conv.lin_edge is None:
        return {}
    fill = {"fill_value": conv.fill_value} if getattr(conv, "add_self_loops", False) else {}
    return {"edge_channels": weights["lin_edge.weight"].shape[1], **fill}


def _sizes(conv: Any, reads: np.ndarray, own: np.ndarray | None = None) -> dict[str, Any]:
    """Sizes of a conv whose rows are multiplied by the weights `reads`, and those of targets by `own`."""
    target = {} if own is None or own.shape == reads.shape else {"target_channels": own.shape[1]}
    return target | {
        "in_channels": reads.shape[1],
        "out_channels": conv.heads * conv.out_channels if conv.concat else conv.out_channels,
        "heads": conv.heads,
        "concat": bool(conv.concat),
    }


def gat_conv(step: Step) -> Converted:
    """Return the declaration and weights of a GATConv."""
    conv = _check(step)
    lins = {"lin": conv.lin} if conv.lin is not None else {"lin": conv.lin_src, "lin_dst": conv.lin_dst}
    weights = tensors(step, **lins, **_also(conv))
    names = ("att_src", "att_dst", *(() if conv.lin_edge is None else ("att_edge",)))
    weights |= {name: array_of(step, getattr(conv, name))[0] for name in names}
    sizes = _sizes(conv, weights["lin.weight"])
    if "lin_dst" in lins:
        sizes["target_channels"] = weights["lin_dst.weight"].shape[1]
    return GATConv(**sizes, **_gat_options(conv, weights)), weights | _bias(step)


def gatv2_conv(step: Step) -> Converted:
    """Return the declaration and weights of a GATv2Conv."""
    conv = _check(step)
    modules = {"lin_l": conv.lin_l} | ({} if conv.share_weights else {"lin_r": conv.lin_r})
    weights = tensors(step, **modules, **_also(conv))
    weights["att"] = array_of(step, conv.att)[0]
    sizes = _sizes(conv, weights["lin_l.weight"], None if conv.share_weights else weights["lin_r.weight"])
    layer = GATv2Conv(**sizes, **_gat_options(conv, weights), share_weights=bool(conv.share_weights))
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
        **_sizes(conv, weights["lin_value.weight"], weights["lin_query.weight"]),
        root_weight=bool(conv.root_weight),
        beta=bool(conv.beta),
        bias=conv.lin_key.bias is not None,
        **_edges(conv, weights),
    )
    return layer, weights


def gated_conv(step: Step) -> Converted:
    """Return the declaration and weights of a ResGatedGraphConv."""
    conv: Any = step.op
    if not isinstance(conv.act, torch.nn.Sigmoid) and conv.act not in (torch.sigmoid, torch.nn.functional.sigmoid):
        refuse(f"{step.name}: ResGatedGraphConv with act={conv.act!r} is not supported yet; expected Sigmoid()")
    _one_width(step, conv.in_channels)
    names = ["lin_key", "lin_query", "lin_value", *(["lin_skip"] if conv.root_weight else [])]
    weights = tensors(step, **{name: getattr(conv, name) for name in names})
    out_channels, reads = weights["lin_value.weight"].shape
    edges = conv.edge_dim or 0
    layer = ResGatedGraphConv(
        in_channels=reads - edges,
        out_channels=out_channels,
        root_weight=bool(conv.root_weight),
        bias=conv.bias is not None,
        edge_channels=edges,
    )
    return layer, weights | _bias(step)


def agnn_conv(step: Step, width: int | None) -> Converted:
    """Return the declaration and weights of an AGNNConv, which reads rows of that width."""
    conv: Any = step.op
    if width is None:
        refuse(f"{step.name}: the width of AGNNConv's rows is unknown, since no layer says it; {HOW_WIDE}")
    layer = AGNNConv(in_channels=width, out_channels=width, add_self_loops=bool(conv.add_self_loops))
    return layer, {"beta": array_of(step, conv.beta)}


def _one_width(step: Step, width: Any) -> int:
    if not isinstance(width, int):
        refuse(f"{step.name}: bipartite layers are not supported, in_channels is {width}")
    return width


def _root_and_bias(step: Step, name: str) -> dict[str, np.ndarray]:
    conv: Any = step.op
    weights = tensors(step, **{name: getattr(conv, name)}) if conv.root_weight else {}
    return weights if conv.bias is None else weights | {"bias": array_of(step, conv.bias)}


def nn_conv(step: Step, aggr: str, nn: list[Layer], weights: dict[str, np.ndarray], width: int) -> Converted:
    """Return the declaration and weights of an NNConv, given its nn, which reads attributes of that width."""
    conv: Any = step.op
    layer = NNConv(
        in_channels=_one_width(step, conv.in_channels),
        out_channels=conv.out_channels,
        edge_channels=width,
        aggr=aggr,  # type: ignore[arg-type]
        nn=nn,  # type: ignore[arg-type]
        root_weight=bool(conv.root_weight),
        bias=conv.bias is not None,
    )
    return layer, weights | _root_and_bias(step, "lin")


def gmm_conv(step: Step, aggr: str) -> Converted:
    """Return the declaration and weights of a GMMConv."""
    conv: Any = step.op
    if conv.separate_gaussians:
        refuse(f"{step.name}: GMMConv with separate_gaussians=True is not supported yet; expected False")
    if not conv.root_weight:
        refuse(f"{step.name}: GMMConv with root_weight=False is not supported: PyTorch Geometric cannot run it either")
    weights = {name: array_of(step, getattr(conv, name)) for name in ("g", "mu", "sigma")}
    _one_width(step, conv.in_channels)
    layer = GMMConv(
        in_channels=len(weights["g"]),
        out_channels=conv.out_channels,
        edge_channels=conv.dim,
        kernels=conv.kernel_size,
        aggr=aggr,  # type: ignore[arg-type]
        bias=conv.bias is not None,
    )
    return layer, weights | _root_and_bias(step, "root")


def cg_conv(step: Step, aggr: str) -> Converted:
    """Return the declaration and weights of a CGConv."""
    conv: Any = step.op
    weights = tensors(step, lin_f=conv.lin_f, lin_s=conv.lin_s)
    width = _one_width(step, conv.channels)
    if conv.bn is not None:
        _, of_norm = convert_norm(Step(f"{step.name}.bn", conv.bn))
        weights |= {f"bn.{name}": values for name, values in of_norm.items()}
    layer = CGConv(
        in_channels=width,
        out_channels=width,
        edge_channels=conv.dim,
        aggr=aggr,  # type: ignore[arg-type]
        batch_norm=conv.bn is not None,
        bias="lin_f.bias" in weights,
    )
    return layer, weights


def _temperature(step: Step, softmax: Any) -> float:
    """Return the one t of a softmax over messages, a number or a learned one.

    Raises: ExportError for one t a channel.
    """
    if softmax.channels != 1:
        refuse(f"{step.name}: a softmax with {softmax.channels} learned t is not supported yet; expected one t")
    return float(softmax.t.detach() if softmax.learn else softmax.t)


def gen_conv(step: Step, aggr: str, nn: list[Layer], weights: dict[str, np.ndarray]) -> Converted:
    """Return the declaration and weights of a GENConv, given its mlp."""
    conv: Any = step.op
    if hasattr(conv, "msg_norm"):
        refuse(f"{step.name}: GENConv with msg_norm=True is not supported yet; expected False")
    names = [name for name in ("lin_src", "lin_dst", "lin_edge") if hasattr(conv, name)]
    of_rows = tensors(step, **{name: getattr(conv, name) for name in names})
    for name in names:
        refuse_other(step, name, getattr(conv, name), "torch_geometric.nn.Linear")
    width, bias = _one_width(step, conv.in_channels), any(name.endswith(".bias") for name in of_rows)
    if step.attributes and "lin_edge" not in names:  # which are added as they are
        of_rows["lin_edge.weight"] = np.eye(conv.out_channels, dtype=np.float32)
        of_rows |= {"lin_edge.bias": np.zeros(conv.out_channels, np.float32)} if bias else {}
    layer = GENConv(
        in_channels=of_rows["lin_src.weight"].shape[1] if "lin_src" in names else width,
        out_channels=conv.out_channels,
        edge_channels=of_rows["lin_edge.weight"].shape[1] if "lin_edge.weight" in of_rows else 0,
        aggr=aggr,  # type: ignore[arg-type]
        eps=float(conv.eps),
        t=_temperature(step, conv.aggr_module) if aggr == "softmax" else 1.0,
        bias=bias,
        nn=nn,  # type: ignore[arg-type]
    )
    return layer, weights | of_rows
