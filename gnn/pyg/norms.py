"""Norms of torch and PyTorch Geometric: exact where they read a row alone, frozen where they read the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from freshet.gnn.declarations import BatchNorm
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.functions import FLOAT32_EPS
from freshet.gnn.pyg.refusals import whole_graph_norm
from freshet.gnn.pyg.steps import Step, array_of, class_name, refuse_other
from freshet.gnn.rows.layer import Layer
from freshet.gnn.rows.norms import Frozen, LayerNorm, RMSNorm

Converted = tuple[Layer, dict[str, np.ndarray]]

_PYG = "torch_geometric.nn."
_WHOLE_GRAPH: dict[str, Frozen] = {
    _PYG + "GraphNorm": "graph_norm",
    _PYG + "PairNorm": "pair_norm",
    _PYG + "MeanSubtractionNorm": "mean_subtraction_norm",
    _PYG + "GraphSizeNorm": "graph_size_norm",
}
_BATCH_NORMS = ("torch.nn.BatchNorm1d", "torch.nn.SyncBatchNorm", _PYG + "BatchNorm")
_SHOWN = {"layer_norm": "LayerNorm(mode='graph'), PyG's default,"}
_EXACT = {
    "LayerNorm(mode='graph'), PyG's default,": "LayerNorm(mode='node'), trained so",
    "InstanceNorm": "InstanceNorm with track_running_stats=True, or BatchNorm",
    "BatchNorm without running statistics": "train it with track_running_stats=True",
}


def reads_whole_graph(module: Any) -> Frozen | None:
    """Return which norm over all vertices a module is; None for anything else."""
    name = class_name(module)
    if name in _WHOLE_GRAPH:
        return _WHOLE_GRAPH[name]
    if name == _PYG + "LayerNorm" and module.mode == "graph":
        return "layer_norm"
    if name == _PYG + "InstanceNorm" and not _has_statistics(module):
        return "instance_norm"
    if name in _BATCH_NORMS and not _has_statistics(_inner(module)):
        return "batch_norm"
    return None


def convert_norm(step: Step) -> Converted:
    """Return the layer and weights of a norm.

    Raises: ExportError for one that reads the whole graph where no graph was given.
    """
    kind = reads_whole_graph(step.op)
    if kind is None:
        return _ROW_NORMS[class_name(step.op)](step)
    if step.frozen is None:
        name = _SHOWN.get(kind) or class_name(step.op).rsplit(".", 1)[1]
        name += " without running statistics" if kind == "batch_norm" else ""
        raise ExportError(whole_graph_norm(step.name, name, _EXACT))
    return step.frozen(step)


def _has_statistics(norm: Any) -> bool:
    return norm.running_mean is not None and norm.running_var is not None


def _inner(module: Any) -> Any:
    return getattr(module, "module", module)  # PyG's BatchNorm wraps torch's


def _batch_norm(step: Step) -> Converted:
    norm = _inner(step.op)
    refuse_other(step, "module", norm, *_BATCH_NORMS, _PYG + "InstanceNorm")
    mean, var = (array_of(step, value).astype(np.float64) for value in (norm.running_mean, norm.running_var))
    scale = 1.0 / np.sqrt(var + norm.eps)
    if norm.weight is not None:
        scale *= array_of(step, norm.weight)
    shift = -mean * scale
    if norm.bias is not None:
        shift += array_of(step, norm.bias)
    weights = {"scale": scale.astype(np.float32), "shift": shift.astype(np.float32)}
    return BatchNorm(channels=len(scale)), weights


def _torch_layer_norm(step: Step) -> Converted:
    norm: Any = step.op
    return _layer_norm(step, _channels(step, norm.normalized_shape))


def _pyg_layer_norm(step: Step) -> Converted:
    norm: Any = step.op
    return _layer_norm(step, norm.in_channels)


def _layer_norm(step: Step, channels: int) -> Converted:
    norm: Any = step.op
    given = {"weight": norm.weight, "bias": norm.bias}
    weights = {name: array_of(step, value) for name, value in given.items() if value is not None}
    return LayerNorm(channels=channels, eps=norm.eps, weight="weight" in weights, bias="bias" in weights), weights


def _rms_norm(step: Step) -> Converted:
    norm: Any = step.op
    weights = {} if norm.weight is None else {"weight": array_of(step, norm.weight)}
    eps = FLOAT32_EPS if norm.eps is None else norm.eps
    return RMSNorm(channels=_channels(step, norm.normalized_shape), eps=eps, weight=bool(weights)), weights


def _channels(step: Step, shape: tuple[int, ...]) -> int:
    if len(shape) != 1:
        refuse(f"{step.name}: normalized_shape={tuple(shape)}, but rows have one dimension, expected (channels,)")
    return int(shape[0])


_ROW_NORMS: dict[str, Callable[[Step], Converted]] = {
    **dict.fromkeys(_BATCH_NORMS, _batch_norm),
    _PYG + "InstanceNorm": _batch_norm,
    "torch.nn.LayerNorm": _torch_layer_norm,
    _PYG + "LayerNorm": _pyg_layer_norm,
    "torch.nn.RMSNorm": _rms_norm,
}
NORMS = {name: convert_norm for name in (*_ROW_NORMS, *_WHOLE_GRAPH)}
