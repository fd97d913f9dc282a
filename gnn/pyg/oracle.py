"""The full pass by PyTorch Geometric's own layers: a second opinion, where torch is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from freshet.gnn.declarations import (
    AGNNConv,
    CGConv,
    Conv,
    DegreeScaledConv,
    DenseLayer,
    EdgeConv,
    FiLMConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GENConv,
    GINConv,
    Laplacian,
    Layer,
    PinSAGEConv,
    PNAConv,
    Propagation,
    ResGatedGraphConv,
    RootedConv,
    SAGEConv,
    SuperGATConv,
    TransformerConv,
)
from freshet.gnn.model import Model
from freshet.gnn.pyg.attributed_oracle import attention_conv, attributed_conv, ends_of, pna_conv
from freshet.gnn.pyg.rows import dense, join
from freshet.gnn.rows.jumps import Join, Keep
from freshet.schema import EdgeValues, Graph

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class TorchEdges(NamedTuple):
    """The edges of a graph, or of a relation, as PyTorch Geometric's layers take them.

    Shapes: index (2, edges); weight (edges,); attr (edges, edge_features)
    """

    index: Tensor
    weight: Tensor
    attr: Tensor

    @staticmethod
    def of(src: np.ndarray, dst: np.ndarray, values: EdgeValues, attributes: int, real: torch.dtype) -> TorchEdges:
        """Return edges with values of that type."""
        import torch

        index = torch.from_numpy(np.stack([src, dst]).astype(np.int64))
        attr = torch.tensor(values.full_attr(attributes), dtype=real)
        return TorchEdges(index, torch.tensor(values.weight, dtype=real), attr)


def available() -> bool:
    """Say whether torch and PyTorch Geometric can be imported."""
    try:
        import torch
        import torch_geometric
    except ImportError:
        return False
    return bool(torch) and bool(torch_geometric)


def forward(
    model: Model,
    graph: Graph,
    *,
    dtype: Any = np.float32,
) -> list[np.ndarray]:
    """Return the rows after each conv and what follows it, by PyTorch Geometric; as tests have it of the oracle."""
    import torch

    real = torch.float64 if np.dtype(dtype) == np.float64 else torch.float32
    edges = TorchEdges.of(graph.src, graph.dst, graph.values, model.edge_features, real)
    rows = torch.tensor(graph.x, dtype=real)
    outputs: list[np.ndarray] = []
    kept: dict[str, Tensor] = {}
    with torch.no_grad():
        for i, layer in enumerate(model.layers):
            weights = {n: torch.tensor(w, dtype=real) for n, w in model.weights_of(f"layers.{i}").items()}
            if isinstance(layer, Conv):
                rows = conv(layer, weights, rows, edges)
                outputs.append(rows.numpy())
            elif isinstance(layer, Keep):
                kept[layer.name] = rows
            else:
                if isinstance(layer, Join):
                    rows = join(layer, layer.picked(rows, kept))
                else:
                    rows = dense(layer, weights, rows)
                if outputs:
                    outputs[-1] = rows.numpy()
    return outputs


def logits(model: Model, embedding: np.ndarray) -> np.ndarray:
    """Return the head's output for embeddings, computed by torch."""
    import torch

    rows = torch.from_numpy(embedding.copy())
    for i, layer in enumerate(model.head):
        weights = {n: torch.tensor(w, dtype=rows.dtype) for n, w in model.weights_of(f"head.{i}").items()}
        rows = dense(layer, weights, rows)
    result: np.ndarray = rows.numpy()
    return result


def conv(layer: Conv, weights: dict[str, Tensor], x: Any, edges: TorchEdges) -> Tensor:
    """Return the rows after a conv, of the rows of a graph, or those of the sources and targets of a relation.

    Raises: TypeError for one that PyTorch Geometric does not have.
    """
    from torch_geometric import nn as pyg

    sizes, real = (ends_of(layer), layer.out_channels), (x[0] if isinstance(x, tuple) else x).dtype
    if (apart := _APART.get(type(layer))) is not None:
        return apart(layer, weights, x, edges)
    if layer.edge.attributes or isinstance(layer, CGConv | GENConv):
        return _attributed_conv(layer, weights, x, edges)
    if isinstance(layer, DegreeScaledConv) and layer.degrees != "in":
        return _by_out_degrees(layer, weights, x, edges)
    if isinstance(layer, RootedConv):
        module = pyg.GraphConv(*sizes, aggr=layer.aggr, bias=layer.bias)
        weighted = layer.edge_weights
    elif isinstance(layer, SAGEConv):
        options = layer.model_dump(include={"normalize", "root_weight", "project", "bias"})
        options["aggr"] = layer.aggr if isinstance(layer.aggr, str) else list(layer.aggr)
        module, weighted = pyg.SAGEConv(*sizes, **options), False
    elif isinstance(layer, GCNConv):
        options = layer.model_dump(include={"improved", "add_self_loops", "normalize", "bias"})
        module, weighted = pyg.GCNConv(*sizes, aggr=layer.aggr, **options), layer.edge_weights
    elif isinstance(layer, GINConv):
        module, weighted = pyg.GINConv(_chain(layer.nn, weights, "nn."), eps=layer.eps, aggr=layer.aggr), False
        weights = {"eps": module.eps.to(real)}
    elif isinstance(layer, PNAConv):
        (module, weights), weighted = pna_conv(layer, weights, _chain), False
    elif isinstance(layer, EdgeConv):
        aggr = layer.aggr if isinstance(layer.aggr, str) else list(layer.aggr)
        module, weighted, weights = pyg.EdgeConv(_chain(layer.nn, weights, "nn."), aggr=aggr), False, {}
    elif isinstance(layer, ResGatedGraphConv):
        options = layer.model_dump(include={"root_weight", "bias"})
        module, weighted = pyg.ResGatedGraphConv(*sizes, **options), False
    elif isinstance(layer, GATConv | GATv2Conv | TransformerConv):
        (module, weights), weighted = attention_conv(layer, weights), False
    elif isinstance(layer, SuperGATConv):
        names = {"heads", "concat", "negative_slope", "add_self_loops", "attention_type", "bias"}
        module = pyg.SuperGATConv(layer.in_channels, layer.channels, **layer.model_dump(include=names))
        weighted, weights = False, {n: w[None] if n.startswith("att_") else w for n, w in weights.items()}
    elif isinstance(layer, AGNNConv):
        module, weighted = pyg.AGNNConv(add_self_loops=layer.add_self_loops), False
    else:
        msg = f"the PyG oracle knows no {type(layer).__name__}"
        raise TypeError(msg)
    module = module.to(real).eval()
    module.load_state_dict(weights, strict=not isinstance(layer, GINConv))
    return module(x, edges.index, edges.weight) if weighted else module(x, edges.index)


def _attributed_conv(layer: Conv, weights: dict[str, Tensor], x: Any, edges: TorchEdges) -> Tensor:
    module, weights = attributed_conv(layer, weights, _chain)
    module = module.to((x[0] if isinstance(x, tuple) else x).dtype).eval()
    module.load_state_dict(weights)
    rows: Tensor = module(x, edges.index, edge_attr=edges.attr if layer.edge.attributes else None)
    return rows


def _pin_sage_conv(layer: PinSAGEConv, weights: dict[str, Tensor], x: Tensor, edges: TorchEdges) -> Tensor:
    """Return its rows by PyG's sum of neighbours, since PyG has no layer of its own for it."""
    import torch
    from torch.nn import functional
    from torch_geometric.nn import SimpleConv

    edge_weight = edges.weight if layer.edge_weights else torch.ones_like(edges.weight)
    source = functional.linear(x, weights["lin_neighbour.weight"], weights["lin_neighbour.bias"]).relu()
    add = SimpleConv(aggr="sum")
    sums, total = (add(rows, edges.index, edge_weight) for rows in (source, torch.ones_like(x[:, :1])))
    mean = torch.where(total == 0, 0, sums / total)
    return functional.linear(torch.cat([x, mean], dim=1), weights["lin.weight"], weights["lin.bias"])


def _propagation(layer: Propagation, weights: dict[str, Tensor], x: Tensor, edges: TorchEdges) -> Tensor:
    """Return its rows by the one of PyG's layers that is this hop."""
    if layer.degrees != "in":
        return _by_out_degrees(layer, weights, x, edges)
    from torch_geometric import nn as pyg

    rows: Tensor
    keeps = layer.existing_loops == "keep"
    if keeps and layer.normalize and layer.aggr == "sum" and layer.add_self_loops and layer.self_weight == 1:
        rows = pyg.APPNP(K=1, alpha=0.0)(x, edges.index, _weights(layer, edges))
        return rows
    index, weight = _with_loops(layer, len(x), edges)
    if layer.aggr == "weighted_mean":
        rows = pyg.WLConvContinuous()((x, None), index, weight)
    elif layer.normalize:
        rows = pyg.LGConv(aggr=layer.aggr)(x, index, weight)
    else:
        rows = pyg.SimpleConv(aggr=layer.aggr)(x, index, weight)
    return rows


def _weights(layer: DegreeScaledConv, edges: TorchEdges) -> Tensor:
    import torch

    return edges.weight if layer.edge_weights else torch.ones_like(edges.weight)


def _with_loops(layer: DegreeScaledConv, vertices: int, edges: TorchEdges) -> tuple[Tensor, Tensor]:
    """Return the edges and their weights, with the self-loops that a layer adds or without those that it drops."""
    from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops

    index, weight, fill = edges.index, _weights(layer, edges), layer.loop_weight
    if layer.loops_there == "drop" or (fill is not None and layer.loops_there == "keep" and not layer.edge_weights):
        index, weight = remove_self_loops(index, weight)
    if fill is None:
        return index, weight
    if layer.loops_there == "keep":
        found: tuple[Tensor, Tensor] = add_remaining_self_loops(index, weight, fill, vertices)
        return found
    found = add_self_loops(index, weight, fill, vertices)
    return found


def _by_out_degrees(layer: DegreeScaledConv, weights: dict[str, Tensor], x: Tensor, edges: TorchEdges) -> Tensor:
    """Return its rows by PyG's sum of neighbours, since PyG scales by in-degrees alone."""
    from torch_geometric.nn import SimpleConv
    from torch_geometric.utils import degree

    index, weight = _with_loops(layer, len(x), edges)
    out, into = (degree(ends, len(x), x.dtype) for ends in index)
    if layer.degrees == "out":
        at_ends = [out.pow(-0.5).masked_fill(out == 0, 0)] * 2
    else:
        at_ends = [one.clamp(min=1) ** -0.5 for one in (out, into)]
    source = x @ weights["lin.weight"].t() if "lin.weight" in weights else x
    rows: Tensor = SimpleConv(aggr=layer.aggr)(source, index, at_ends[0][index[0]] * weight * at_ends[1][index[1]])
    return rows + weights["bias"] if "bias" in weights else rows


def _film_conv(layer: FiLMConv, weights: dict[str, Tensor], x: Tensor, edges: TorchEdges) -> Tensor:
    """Return its rows by PyG's FiLMConv, whose linear layers pick columns, without what that makes of the own row."""
    import torch
    from torch_geometric import nn as pyg

    width = layer.out_channels
    module = pyg.FiLMConv(3 * width, width, act=_chain(layer.act, weights, "act."), aggr=layer.aggr).to(x.dtype)
    every = torch.eye(3 * width, dtype=x.dtype)
    module.lins[0].weight.data, module.films[0].weight.data = every[:width], every[width:]
    module.films[0].bias.data.zero_()
    beta, gamma = module.films[0](x).split(width, dim=-1)
    rows: Tensor = module.propagate(edges.index, x=module.lins[0](x), beta=beta, gamma=gamma)
    return rows


def _laplacian(layer: Laplacian, weights: dict[str, Tensor], x: Tensor, edges: TorchEdges) -> Tensor:
    """Return its rows by PyG's ChebConv, of which they are the second term."""
    import torch
    from torch_geometric import nn as pyg

    normalization = None if layer.normalization == "none" else layer.normalization
    module = pyg.ChebConv(layer.in_channels, layer.out_channels, 2, normalization, bias=False).to(x.dtype)
    module.lins[0].weight.data.zero_()
    module.lins[1].weight.data = torch.eye(layer.in_channels, dtype=x.dtype)
    weight = edges.weight if layer.edge_weights else None
    rows: Tensor = module(x, edges.index, weight, lambda_max=layer.lambda_max)
    return rows


# Those that PyG has no layer for, or that are a part of one.
_APART: dict[type[Layer], Callable[..., Any]] = {
    FiLMConv: _film_conv,
    Laplacian: _laplacian,
    PinSAGEConv: _pin_sage_conv,
    Propagation: _propagation,
}


def _chain(layers: list[DenseLayer], weights: dict[str, Tensor], prefix: str) -> Any:
    """Return a chain of dense layers as a module that PyG can call; its weights begin with the prefix."""
    import torch

    class Chain(torch.nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            for i, inner in enumerate(layers):
                start = f"{prefix}{i}."
                rows = dense(inner, {n[len(start) :]: w for n, w in weights.items() if n.startswith(start)}, rows)
            return rows

        def reset_parameters(self) -> None:
            """Keep the weights: they are the model's."""

    return Chain()
