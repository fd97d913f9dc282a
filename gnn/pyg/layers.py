"""Turns one torch or PyG module into a layer declaration and its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gnn.declarations import (
    BatchNorm,
    Elu,
    GCNConv,
    Gelu,
    GINConv,
    GraphConv,
    Identity,
    Layer,
    LeakyRelu,
    Linear,
    PRelu,
    Relu,
    SAGEConv,
    Selu,
    Sigmoid,
    Silu,
    Tanh,
    chain_width,
)
from gnn.pyg.steps import ExportError, Step, class_name
from gnn.pyg.trace import dense_steps

if TYPE_CHECKING:
    from torch import Tensor

Weights = dict[str, np.ndarray]
Converted = tuple[Layer, Weights]


def convert_chain(steps: Sequence[Step], width: int | None, prefix: str) -> tuple[list[Layer], Weights]:
    """Return the layers of these steps, what does nothing left out, and their weights as `prefix.index.name`.

    Raises: ExportError naming the first step that has no layer here, or an option of it.
    """
    layers: list[Layer] = []
    weights: Weights = {}
    for step in steps:
        try:
            layer, tensors = convert(step, width)
        except ValueError as error:  # a declaration that does not hold together
            msg = f"{step.name}: {error}"
            raise ExportError(msg) from None
        if isinstance(layer, Identity):
            continue
        width = layer.out_width or width or layer.in_width
        weights |= {f"{prefix}.{len(layers)}.{name}": value for name, value in tensors.items()}
        layers.append(layer)
    return layers, weights


def convert(step: Step, width: int | None) -> Converted:
    """Return a step's layer and weights; `width` is that of the rows it reads, where known."""
    if isinstance(step.op, Layer):
        return step.op, {}
    name = class_name(step.op)
    if name in _CONVS:
        _check_conv(step)
        return _CONVS[name](step, width)
    if name in _DENSE:
        return _DENSE[name](step)
    if name in _SIMPLE:
        return _SIMPLE[name](step.op), {}
    supported = ", ".join(sorted({key.rsplit(".", 1)[1] for key in (*_CONVS, *_DENSE, *_SIMPLE)}))
    later = " yet" if name.startswith("torch_geometric.nn.") else ""
    msg = f"{step.name}: {name} is not supported{later}; supported layers are {supported}"
    raise ExportError(msg)


def _check_conv(step: Step) -> None:
    """Refuse the options of PyG's MessagePassing that no layer here has."""
    conv: Any = step.op
    if conv.flow != "source_to_target":
        msg = f"{step.name}: flow={conv.flow!r} is not supported, messages flow source_to_target"
        raise ExportError(msg)
    if conv.decomposed_layers > 1:
        msg = f"{step.name}: decomposed_layers={conv.decomposed_layers} is not supported"
        raise ExportError(msg)


def _aggr(step: Step, allowed: tuple[str, ...]) -> Any:
    from torch_geometric.nn import aggr

    conv: Any = step.op
    kinds: dict[type, str] = {aggr.SumAggregation: "sum", aggr.MeanAggregation: "mean"}
    kind = kinds.get(type(conv.aggr_module))
    if kind not in allowed:
        got = conv.aggr or type(conv.aggr_module).__name__
        kind_name = class_name(conv).rsplit(".", 1)[1]
        msg = f"{step.name}: {kind_name} with aggr={got!r} is not supported yet; supported: {', '.join(allowed)}"
        raise ExportError(msg)
    return kind


def _graph_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    weights = _tensors(step, rel=conv.lin_rel, root=conv.lin_root)
    sizes = _sizes(step, weights["rel.weight"], weights["root.weight"])
    layer = GraphConv(
        **sizes, aggr=_aggr(step, ("sum", "mean")), bias="rel.bias" in weights, edge_weights=step.edge_weights
    )
    return layer, {f"lin_{name}": value for name, value in weights.items()}


def _sage_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    aggr = _aggr(step, ("mean", "sum"))
    modules = {"lin_l": conv.lin_l}
    if conv.root_weight:
        modules["lin_r"] = conv.lin_r
    if conv.project:
        modules["lin"] = conv.lin
    weights = _tensors(step, **modules)
    sizes = _sizes(step, weights["lin_l.weight"], weights.get("lin_r.weight"))
    layer = SAGEConv(
        **sizes,
        aggr=aggr,
        normalize=bool(conv.normalize),
        root_weight=bool(conv.root_weight),
        project=bool(conv.project),
        bias="lin_l.bias" in weights,
    )
    return layer, weights


def _gcn_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    _aggr(step, ("sum",))
    weights = _tensors(step, lin=conv.lin)
    if conv.bias is not None:
        weights["bias"] = _array(step, conv.bias)
    layer = GCNConv(
        **_sizes(step, weights["lin.weight"], None),
        improved=bool(conv.improved),
        add_self_loops=bool(conv.add_self_loops),
        normalize=bool(conv.normalize),
        bias=conv.bias is not None,
        edge_weights=step.edge_weights,
    )
    return layer, weights


def _gin_conv(step: Step, width: int | None) -> Converted:
    conv: Any = step.op
    _aggr(step, ("sum",))
    layers, weights = convert_chain(dense_steps(f"{step.name}.nn", conv.nn), width, "nn")
    for layer in layers:
        if layer.in_width is not None:
            width = layer.in_width
            break
    if width is None:
        msg = f"{step.name}: the width of GINConv's nn is unknown; put a linear layer in it or before it"
        raise ExportError(msg)
    eps = float(conv.eps.detach().cpu().float().item())
    out = chain_width(layers, width, f"{step.name}.nn")  # type: ignore[arg-type]
    return GINConv(in_channels=width, out_channels=out, eps=eps, nn=layers), weights  # type: ignore[arg-type]


def _linear(step: Step) -> Converted:
    weights = _tensors(step, only=step.op)
    out_channels, in_channels = weights["only.weight"].shape
    layer = Linear(in_channels=in_channels, out_channels=out_channels, bias="only.bias" in weights)
    return layer, {name.removeprefix("only."): value for name, value in weights.items()}


def _batch_norm(step: Step) -> Converted:
    norm: Any = getattr(step.op, "module", step.op)  # PyG's wraps torch's
    if norm.running_mean is None or norm.running_var is None:
        msg = (
            f"{step.name}: BatchNorm without running statistics depends on the whole graph; "
            "train it with track_running_stats=True"
        )
        raise ExportError(msg)
    mean, var = (_array(step, value).astype(np.float64) for value in (norm.running_mean, norm.running_var))
    scale = 1.0 / np.sqrt(var + norm.eps)
    if norm.weight is not None:
        scale *= _array(step, norm.weight)
    shift = -mean * scale
    if norm.bias is not None:
        shift += _array(step, norm.bias)
    weights = {"scale": scale.astype(np.float32), "shift": shift.astype(np.float32)}
    return BatchNorm(channels=len(scale)), weights


def _prelu(step: Step) -> Converted:
    op: Any = step.op
    slopes = _array(step, op.weight)
    return PRelu(channels=len(slopes)), {"weight": slopes}


def _sizes(step: Step, neighbour: np.ndarray, own: np.ndarray | None) -> dict[str, Any]:
    out_channels, in_channels = neighbour.shape
    if own is not None and own.shape != neighbour.shape:
        msg = f"{step.name}: bipartite layers are not supported, in_channels is {(in_channels, own.shape[1])}"
        raise ExportError(msg)
    return {"in_channels": in_channels, "out_channels": out_channels}


def _tensors(step: Step, **modules: Any) -> Weights:
    found: Weights = {}
    for name, module in modules.items():
        found[f"{name}.weight"] = _array(step, module.weight)
        if module.bias is not None:
            found[f"{name}.bias"] = _array(step, module.bias)
    return found


def _array(step: Step, tensor: Tensor) -> np.ndarray:
    from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

    if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
        msg = f"{step.name}: its size is not known yet (in_channels=-1); run the module once before exporting it"
        raise ExportError(msg)
    values: np.ndarray = tensor.detach().cpu().float().numpy()
    return np.array(values, np.float32)


_CONVS: dict[str, Callable[[Step, int | None], Converted]] = {
    "torch_geometric.nn.GraphConv": _graph_conv,
    "torch_geometric.nn.SAGEConv": _sage_conv,
    "torch_geometric.nn.GCNConv": _gcn_conv,
    "torch_geometric.nn.GINConv": _gin_conv,
}
_DENSE: dict[str, Callable[[Step], Converted]] = {
    "torch.nn.Linear": _linear,
    "torch_geometric.nn.Linear": _linear,
    "torch.nn.BatchNorm1d": _batch_norm,
    "torch_geometric.nn.BatchNorm": _batch_norm,
    "torch.nn.PReLU": _prelu,
}
_SIMPLE: dict[str, Callable[[Any], Layer]] = {
    "torch.nn.ReLU": lambda m: Relu(),
    "torch.nn.LeakyReLU": lambda m: LeakyRelu(slope=m.negative_slope),
    "torch.nn.ELU": lambda m: Elu(alpha=m.alpha),
    "torch.nn.SELU": lambda m: Selu(),
    "torch.nn.GELU": lambda m: Gelu(approximate=m.approximate),
    "torch.nn.Tanh": lambda m: Tanh(),
    "torch.nn.Sigmoid": lambda m: Sigmoid(),
    "torch.nn.SiLU": lambda m: Silu(),
    "torch.nn.Identity": lambda m: Identity(),
    "torch.nn.Dropout": lambda m: Identity(),
    "torch.nn.Dropout1d": lambda m: Identity(),
    "torch.nn.AlphaDropout": lambda m: Identity(),
    "torch.nn.FeatureAlphaDropout": lambda m: Identity(),
}
