"""The full pass of a model with kinds by PyTorch Geometric's own layers, relation by relation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from freshet.gnn.declarations import AttentionConv, GATConv, GATv2Conv, TransformerConv
from freshet.gnn.kinds.declarations import ByKind, HeteroConv
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.pyg.oracle import TorchEdges, conv
from freshet.gnn.pyg.rows import dense, grouped, join
from freshet.gnn.rows.jumps import Join, Keep
from freshet.kinds_graph import KindsGraph

if TYPE_CHECKING:
    from torch import Tensor


class _Attended(NamedTuple):
    """A conv that has a part in a softmax, with its weights, the rows of its sources, and its edges."""

    layer: AttentionConv
    weights: dict[str, Tensor]
    x: Tensor
    edges: TorchEdges


def forward(model: KindsModel, graph: KindsGraph) -> dict[str, np.ndarray]:
    """Return the embeddings in float64 of the kinds that the model returns; learned rows stand behind features.

    Raises: TypeError for a conv that PyTorch Geometric does not have.
    """
    import torch

    pass_ = _FullPass(model, graph)
    with torch.no_grad():
        for i, layer in enumerate(model.layers):
            if isinstance(layer, ByKind):
                pass_.by_kind(layer, i)
            else:
                pass_.hetero_conv(layer, i)
    return {kind: pass_.rows[kind].numpy() for kind in model.out}


class _FullPass:
    """The rows of all kinds, from layer to layer."""

    def __init__(self, model: KindsModel, graph: KindsGraph) -> None:
        import torch

        self._model = model
        self._kept: dict[str, dict[str, Tensor]] = {}
        self._sizes = {kind: len(x) for kind, x in zip(model.kinds, graph.x, strict=True)}
        self.rows: dict[str, Tensor] = {}
        for (kind, width), x in zip(model.kinds.items(), graph.x, strict=True):
            learned = model.learned[kind].rows if kind in model.learned else {}
            parts = torch.tensor(x, dtype=torch.float64).split([width, *learned.values()], dim=1)
            self.rows[kind], self._kept[kind] = parts[0], dict(zip(learned, parts[1:], strict=True))
        self._edges = [
            TorchEdges.of(one.src, one.dst, one.values, relation.edge_features, torch.float64)
            for relation, one in zip(model.relations, graph.edges, strict=True)
        ]

    def by_kind(self, layer: ByKind, index: int) -> None:
        for kind, layers in layer.layers.items():
            kept = self._kept[kind]
            for n, one in enumerate(layers):
                if isinstance(one, Keep):
                    kept[one.name] = self.rows[kind]
                elif isinstance(one, Join):
                    self.rows[kind] = join(one, [self.rows[kind] if name == "." else kept[name] for name in one.of])
                else:
                    weights = self._weights(f"layers.{index}.layers.{kind}.{n}")
                    self.rows[kind] = dense(one, weights, self.rows[kind])

    def hetero_conv(self, layer: HeteroConv, index: int) -> None:
        made: dict[str, list[Tensor]] = {}
        attended: dict[str, list[_Attended]] = {}
        for c, one in enumerate(layer.convs):
            relation, edges = self._model.relations[one.relation], self._edges[one.relation]
            weights, x = self._weights(f"layers.{index}.convs.{c}"), self.rows[relation.source]
            if layer.aggr == "softmax" or getattr(one.conv, "mixed_heads", False):
                assert isinstance(one.conv, AttentionConv)  # KindsModel has checked it
                part = _Attended(one.conv, weights, x, edges)
                if layer.aggr == "softmax":
                    attended.setdefault(relation.target, []).append(part)
                else:
                    rows = _attention_over([part], self._own(relation.target))
                    made.setdefault(relation.target, []).append(rows)
                continue
            apart = relation.source != relation.target or getattr(one.conv, "target_channels", None) is not None
            ends = (x, self._own(relation.target)) if apart else x
            made.setdefault(relation.target, []).append(conv(one.conv, weights, ends, edges))
        over = {kind: _attention_over(parts, self._own(kind)) for kind, parts in attended.items()}
        self.rows = over | {kind: grouped(layer.aggr, parts) for kind, parts in made.items()}

    def _own(self, kind: str) -> Tensor:
        """The rows of targets; none where the kind is not there, since convs do not read it then."""
        import torch

        return self.rows[kind] if kind in self.rows else torch.empty((self._sizes[kind], 0), dtype=torch.float64)

    def _weights(self, prefix: str) -> dict[str, Tensor]:
        import torch

        return {name: torch.tensor(w, dtype=torch.float64) for name, w in self._model.weights_of(prefix).items()}


def _attention_over(parts: list[_Attended], own: Tensor) -> Tensor:
    """Return what one softmax of PyG's over the in-edges of several convs makes, and what each adds of targets.

    PyG's HGTConv and RGATConv do so; a conv whose scores read all heads is one of them alone.
    """
    import torch
    from torch_geometric.utils import scatter, softmax

    first = parts[0].layer
    scores, values = (torch.cat(of) for of in zip(*(_scored(part, own) for part in parts), strict=True))
    dst = torch.cat([part.edges.index[1] for part in parts])
    alpha = softmax(scores, dst, num_nodes=len(own))
    by_head = scatter(alpha[..., None] * values, dst, dim_size=len(own), reduce="sum")
    out = by_head.flatten(1) if first.concat else by_head.mean(dim=1)
    for part in parts:
        out = _ended(part, own, out)
    return out


def _scored(part: _Attended, own: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores of edges, (e, heads), and their values, (e, heads, channels)."""
    from torch.nn.functional import leaky_relu, linear

    layer, weights, (src, dst) = part.layer, part.weights, part.edges.index
    heads = (-1, layer.heads, layer.channels)

    def made(name: str, rows: Tensor) -> Tensor:
        return linear(rows, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    of_edge: Any = made("lin_edge", part.edges.attr).view(heads) if layer.edge.attributes else 0
    if isinstance(layer, GATConv):
        value, at = made("lin", part.x), made("lin_dst" if "lin_dst.weight" in weights else "lin", own)
        if layer.mixed_heads:
            ends = value @ weights["att_src"].t(), at @ weights["att_dst"].t()
        else:
            read = (value, "att_src"), (at, "att_dst")
            ends = tuple((rows.view(heads) * weights[name]).sum(dim=-1) for rows, name in read)
        edge = (of_edge * weights["att_edge"]).sum(dim=-1) if layer.edge.attributes else 0
        scores = leaky_relu(ends[0][src] + ends[1][dst] + edge, layer.negative_slope)
        return scores, value.view(heads)[src]
    if isinstance(layer, GATv2Conv):
        source, at = made("lin_l", part.x), made("lin_l" if layer.share_weights else "lin_r", own)
        both = leaky_relu(source.view(heads)[src] + at.view(heads)[dst] + of_edge, layer.negative_slope)
        return (both * weights["att"]).sum(dim=-1), source.view(heads)[src]
    assert isinstance(layer, TransformerConv)
    key, value, query = made("lin_key", part.x), made("lin_value", part.x), made("lin_query", own)
    scores = (query.view(heads)[dst] * (key.view(heads)[src] + of_edge)).sum(dim=-1) / layer.channels**0.5
    return scores, value.view(heads)[src]


def _ended(part: _Attended, own: Tensor, out: Tensor) -> Tensor:
    """Return the rows with what a conv makes of the targets themselves."""
    from torch.nn.functional import linear

    layer, weights = part.layer, part.weights
    if isinstance(layer, TransformerConv):
        if not layer.root_weight:
            return out
        return out + linear(own, weights["lin_skip.weight"], weights.get("lin_skip.bias"))
    out = out + own @ weights["res.weight"].t() if "res.weight" in weights else out
    return out + weights["bias"] if "bias" in weights else out
