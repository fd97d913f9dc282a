"""Passes over graphs of numpy, as oracles take them: learned rows are columns behind the features."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.gnn.torch_modules.passes import GraphOfKinds, pass_over, pass_over_kinds
from freshet.kinds_graph import KindsGraph, RelationEdges


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
