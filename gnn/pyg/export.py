"""Trained PyTorch Geometric modules become model folders."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from freshet.extras import need
from freshet.gnn.declarations import Conv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model, ModelError, build_model, save_model
from freshet.gnn.pyg.check import check
from freshet.gnn.pyg.finite import naming_weights, refuse_weights
from freshet.gnn.pyg.forward.fx import Asked, dense_steps, refuse_jumps
from freshet.gnn.pyg.forward.trace import refuse_wrapped, trace
from freshet.gnn.pyg.forward.untouched import plain_copy
from freshet.gnn.pyg.kinds.export import KindsAsked, kinds_model
from freshet.gnn.pyg.kinds.whether import reads_kinds
from freshet.gnn.pyg.layers import convert_chain, first_width
from freshet.gnn.pyg.running_sums import with_running_sums
from freshet.gnn.pyg.statistics import gather, graph_of
from freshet.gnn.pyg.steps import ExportError, Step
from freshet.gnn.pyg.tensors import Weights

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = ["ExportError", "export_model"]

_ONE_AT_A_TIME = threading.Lock()  # what traces modules changes things that all threads share: how they are called


def export_model(
    module: Module,
    folder: str | Path,
    edge_types: Sequence[str] | None = None,
    stats_from: Any = None,
    head: str | None = None,
    features: int | Mapping[str, int] | None = None,
    output: int | str | None = None,
    method: str = "forward",
    edge_features: int | None = None,
    metadata: Any = None,
    mirrors: Mapping[Any, Any] | None = None,
) -> Model | KindsModel:
    """Write a trained module as a model folder and return the model.

    The module is a torch_geometric.nn model (GCN, GraphSAGE, GIN, GAT, PNA, EdgeCNN, LightGCN), a
    torch_geometric.nn.Sequential, one of its convs, a torch.nn.ModuleList of layers in order, or a module whose
    forward(x, edge_index[, edge_weight]) torch.fx can trace; a layer may read the rows of any earlier one. It is left
    as it is. Dropout is dropped, BatchNorm keeps the statistics it was trained with. Where the module does not hand
    edge weights on to a conv, the job ignores them there too.

    `edge_types` fixes the edge types of the stream and their order. `stats_from` is (x, edge_index) or (x, edge_index,
    edge_weight), best of the graph that the module was trained on: norms over all vertices (GraphNorm, PairNorm,
    LayerNorm(mode="graph") and the like) keep the statistics they have there, and the model is approximate. `head`
    names a submodule whose output is served beside the embedding as logits: either the module's last layers, or one
    that forward does not use. `features` is the width of the features, for a module none of whose layers says it, such
    as one of hops alone (LGConv, APPNP); the graph of `stats_from` has it as well. `output` says which of several
    results the embedding is, by place or by key: 0 of (mu, logstd). `method` names another method than forward that
    makes it, such as "encode".

    A conv takes what it is handed as edge_attr for attributes of edges where it reads such (GINEConv), else for a
    weight; a forward may have both. stats_from then has them as well, as (x, edge_index, edge_weight or None,
    edge_attr). `edge_features` is how many numbers the attributes of an edge have, as a check: convs say it. Only a
    GENConv by itself whose edge_dim is out_channels does not, and reads them only with it.

    A module of several kinds of vertices takes (x_dict, edge_index_dict[, edge_attr_dict][, edge_weight_dict]), one of
    relations within a kind (x, edge_index, edge_type). `metadata` is (kinds, relations) as data.metadata() has it,
    where HeteroConv or to_hetero does not say it; `features` has the width of each kind, as {"user": 8}, where no layer
    says it; `mirrors` names relations that follow others reversed, as {"rev_buys": "buys"}, by default all rev_X.

    Raises: ExportError naming the layer or option that is not supported, or the difference when the exported model does
    not reproduce the module on a random graph; nothing is written then. ImportError without PyTorch Geometric.
    """
    need("torch", "export_model")
    import torch

    if not isinstance(module, torch.nn.Module):
        msg = f"export_model takes a torch.nn.Module, got {type(module).__name__}"
        raise ExportError(msg)
    model: Model | KindsModel
    with _ONE_AT_A_TIME:
        asked = Asked(method, output, bool(edge_features))
        if metadata is not None or mirrors is not None or reads_kinds(module, method):
            more = KindsAsked(metadata, features, mirrors, edge_types, edge_features, stats_from, head)
            model = kinds_model(module, asked, more)
        else:
            widths = _one_width(features), edge_features
            model = _checked(module, list(edge_types or []), stats_from, head, widths, asked)
    save_model(model, folder)
    return model


def _one_width(features: int | Mapping[str, int] | None) -> int | None:
    if isinstance(features, Mapping):
        msg = f"features={dict(features)}: the module has no kinds of vertices, so give one width"
        raise ExportError(msg)
    return features


def _checked(
    module: Module,
    edge_types: list[str],
    stats_from: Any,
    head: str | None,
    widths: tuple[int | None, int | None],
    asked: Asked,
) -> Model:
    """The model that a module is, which gives what the module gives; `widths` of features are those that were given."""
    features, edge_features = widths
    graph = None if stats_from is None else graph_of(stats_from)
    refuse_wrapped(module)
    module = plain_copy(module)
    with naming_weights(module):
        traced = trace(module, head, asked)
    statistics = None if graph is None else gather(module, traced, head, graph)
    split = _split(module, traced.steps, head)
    frozen = None if statistics is None else statistics.take
    body, tail = ([step._replace(frozen=frozen) for step in part] for part in split)
    width = features if graph is None or features is not None else int(graph[0].shape[1])
    with naming_weights(module):
        layers, weights = convert_chain(body, first_width(body) if width is None else width, "layers")
        head_layers, head_weights = convert_chain(tail, None, "head")
    refuse_weights(module, weights | head_weights)
    layers, weights = with_running_sums(layers, weights, "layers")
    model = _build(layers, head_layers, weights | head_weights, edge_types)
    if width is not None and model.features.width != width:
        msg = f"features are {width} wide, but the module reads rows of width {model.features.width}"
        raise ExportError(msg)
    if edge_features is not None and model.edge_features != edge_features:
        msg = f"edge_features are {edge_features}, but the module reads attributes of width {model.edge_features}"
        raise ExportError(msg)
    check(module, traced, model, head, statistics)
    return model


def _build(layers: list[Any], head: list[Any], weights: Weights, edge_types: list[str]) -> Model:
    try:
        edges = max((layer.edge_width for layer in layers if isinstance(layer, Conv)), default=0)
        return build_model(layers=layers, head=head, edge_types=edge_types, edge_features=edges, weights=weights)
    except (ModelError, ValidationError) as error:
        msg = f"the module's layers make no model: {error}"
        raise ExportError(msg) from None


def _split(module: Module, steps: list[Step], head: str | None) -> tuple[list[Step], list[Step]]:
    """Cut the steps into those that make the embedding and those of the head."""
    if head is None:
        return steps, []
    try:
        part = module.get_submodule(head)
    except AttributeError:
        names = ", ".join(name for name, _ in module.named_children())
        msg = f"head={head!r} is no submodule; there are {names}"
        raise ExportError(msg) from None
    inside = [step.name == head or step.name.startswith(head + ".") for step in steps]
    if not any(inside):
        return steps, dense_steps(head, part)
    first = inside.index(True)
    if not all(inside[first:]):
        after = next(step.name for step, within in zip(steps[first:], inside[first:], strict=True) if not within)
        msg = f"head={head!r} is not the end of the module: {after} comes after it"
        raise ExportError(msg)
    refuse_jumps(head, steps[first:])
    return steps[:first], steps[first:]
