"""Passes over graphs of numpy, as oracles take them: learned rows are columns behind the features."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from freshet.gnn.kinds.learned import PREFIX
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.kinds.names import head_name
from freshet.gnn.model import Model
from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.gnn.torch_modules.passes import GraphOfKinds, pass_over, pass_over_kinds
from freshet.gnn.torch_modules.rows import chain
from freshet.gnn.torch_modules.weights import put, under
from freshet.kinds_graph import KindsGraph, RelationEdges


class ModelPass(Module):
    """A model that is called with a graph of numpy; rows of ids are not among its weights, since graphs have them."""

    def __init__(self, model: Model | KindsModel) -> None:
        """Take a model with its weights."""
        super().__init__()
        self._declared = model
        self.register_buffer("real", torch.zeros(()))  # of the type of the rows, also where there are no weights
        for name, values in model.weights.items():
            if not name.startswith(PREFIX):
                put(self, name, values, is_trained=False)

    def forward(self, graph: KindsGraph) -> list[Tensor]:
        """Return the embeddings of each returned kind, then the logits of those with a head.

        Shapes: x of a kind (n, features and learned rows), results (n, width)
        """
        model = self._declared
        rows = numpy_pass(model, self, graph, self.get_buffer("real").dtype)
        if isinstance(model, Model):
            return rows + ([chain(model.head, under(self, "head"), "", rows[0])] if model.head else [])
        by_kind = [(kind, one) for kind, one in zip(model.out, rows, strict=True) if kind in model.heads]
        return rows + [chain(model.heads[kind], under(self, head_name(kind)), "", one) for kind, one in by_kind]


def numpy_pass(model: Model | KindsModel, weights: Module, graph: KindsGraph, real: torch.dtype) -> list[Tensor]:
    """Return the embeddings of a graph, for each returned kind (n, width); a module has the weights, of type `real`."""
    if isinstance(model, Model):
        x, edges = torch.tensor(graph.x[0], dtype=real), graph.edges[0]
        return [pass_over(model, weights, x, _edges(edges, len(x), model.edge_features, real))]
    rows, learned = dict[str, Tensor](), dict[str, dict[str, Tensor]]()
    for (kind, width), x in zip(model.kinds.items(), graph.x, strict=True):
        names = model.learned[kind].rows if kind in model.learned else {}
        parts = torch.tensor(x, dtype=real).split([width, *names.values()], dim=1)
        rows[kind], learned[kind] = parts[0], dict(zip(names, parts[1:], strict=True))
    edges_by_number = [
        _edges(one, len(rows[relation.target]), relation.edge_features, real)
        for relation, one in zip(model.relations, graph.edges, strict=True)
    ]
    return list(pass_over_kinds(model, weights, GraphOfKinds(rows, learned, edges_by_number)).values())


def _edges(edges: RelationEdges, targets: int, width: int, real: torch.dtype) -> MessageEdges:
    src, dst = (torch.from_numpy(ends.astype(np.int64)) for ends in (edges.src, edges.dst))
    weight = torch.tensor(edges.values.weight, dtype=real)
    return MessageEdges(src, dst, weight, torch.tensor(edges.values.full_attr(width), dtype=real), targets)
