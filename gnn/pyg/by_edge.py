"""Turns PyG's layers whose messages are made by edge, of its attributes, into declarations and weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.gnn.declarations import CGConv, GENConv, GMMConv, NNConv
from freshet.gnn.pyg.norms import convert_norm
from freshet.gnn.pyg.steps import ExportError, Step, array_of, refuse_other
from freshet.gnn.pyg.tensors import Converted, tensors
from freshet.gnn.rows.layer import Layer


def _one_width(step: Step, width: Any) -> int:
    if not isinstance(width, int):
        msg = f"{step.name}: bipartite layers are not supported, in_channels is {width}"
        raise ExportError(msg)
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
        msg = f"{step.name}: GMMConv with separate_gaussians=True is not supported yet; expected False"
        raise ExportError(msg)
    if not conv.root_weight:
        msg = f"{step.name}: GMMConv with root_weight=False is not supported: PyTorch Geometric cannot run it either"
        raise ExportError(msg)
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


def gen_conv(step: Step, aggr: str, nn: list[Layer], weights: dict[str, np.ndarray]) -> Converted:
    """Return the declaration and weights of a GENConv, given its mlp."""
    conv: Any = step.op
    if hasattr(conv, "msg_norm"):
        msg = f"{step.name}: GENConv with msg_norm=True is not supported yet; expected False"
        raise ExportError(msg)
    names = [name for name in ("lin_src", "lin_dst", "lin_edge") if hasattr(conv, name)]
    of_rows = tensors(step, **{name: getattr(conv, name) for name in names})
    for name in names:
        refuse_other(step, name, getattr(conv, name), "torch_geometric.nn.Linear")
    width = _one_width(step, conv.in_channels)
    layer = GENConv(
        in_channels=of_rows["lin_src.weight"].shape[1] if "lin_src" in names else width,
        out_channels=conv.out_channels,
        edge_channels=of_rows["lin_edge.weight"].shape[1] if "lin_edge" in names else 0,
        aggr=aggr,  # type: ignore[arg-type]
        eps=float(conv.eps),
        bias=any(name.endswith(".bias") for name in of_rows),
        nn=nn,  # type: ignore[arg-type]
    )
    return layer, weights | of_rows
