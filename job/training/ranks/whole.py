"""A whole graph of PyTorch Geometric in the order of a model's kinds and relations, and the ranks of its vertices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from freshet.errors import InputError
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.gnn.torch_modules.inputs import edges_of, of_categories, of_type, with_types
from freshet.partitioner.placement.whole_graph import whole_masters

ONE_KIND = ""


class WholeGraph(NamedTuple):
    """A graph by the kinds and relations of a model, one of each where it has none.

    `stores`: what the data has of each kind; `ends`: numbers of the kinds of each relation's sources and targets.
    """

    kinds: tuple[str, ...]
    stores: list[Mapping[str, Any]]
    counts: list[int]
    ends: list[tuple[int, int]]
    edges: list[MessageEdges]


def whole_graph(data: Data | HeteroData, model: Model | KindsModel, real: torch.dtype = torch.float32) -> WholeGraph:
    """Return a graph by the kinds and relations of a model; `real`: the type of values of edges.

    Raises: InputError for a graph that lacks a kind, a relation or the types of edges; ModuleInputError for edges that
        the model can't read.
    """
    if isinstance(model, Model):
        if not isinstance(data, Data):
            msg = "data: the model has no kinds of vertices; expected Data, got HeteroData"
            raise InputError(msg)
        edges = _edges(data, data, data, model.features.given_edge_width, real, "data")
        edges = of_categories(edges, model.edge_categories, "data.edge_attr")
        if model.type_columns:
            edges = with_types(edges, data.get("edge_type"), model.edge_types)
        return WholeGraph((ONE_KIND,), [data], [_count(data)], [(0, 0)], [edges])
    kinds = tuple(model.kinds)
    if isinstance(data, Data):
        if len(kinds) > 1:
            msg = f"data: the model has kinds of vertices, {', '.join(kinds)}; expected HeteroData, got Data"
            raise InputError(msg)
        return WholeGraph(kinds, [data], [_count(data)], [(0, 0)] * len(model.relations), _by_type(data, model, real))
    for kind in kinds:
        if kind not in data.node_types:
            msg = f"data: no kind {kind!r}, which the model has; there is {', '.join(data.node_types)}"
            raise InputError(msg)
    found = []
    for one in model.relations:
        if one.ends not in data.edge_types:
            msg = f"data: no edges of {one.ends!r}, which the model has; give edge_index of the shape (2, 0)"
            raise InputError(msg)
        sides = data[one.source], data[one.target]
        found.append(_edges(data[one.ends], *sides, one.edge_features, real, f"data[{one.ends!r}]"))
    numbers = [(kinds.index(one.source), kinds.index(one.target)) for one in model.relations]
    return WholeGraph(kinds, [data[kind] for kind in kinds], [_count(data[kind]) for kind in kinds], numbers, found)


def _by_type(data: Data, model: KindsModel, real: torch.dtype) -> list[MessageEdges]:
    """Return the edges of a graph without kinds by their types."""
    width = max(one.edge_features for one in model.relations)
    edges = _edges(data, data, data, width, real, "data")
    if len(model.relations) == 1:
        return [edges]
    types = of_type(data.get("edge_type"), len(edges.src), [one.type for one in model.relations])
    return [edges.chosen(torch.nonzero(types == number)[:, 0]) for number in range(len(model.relations))]


def _edges(store: Any, source: Any, target: Any, width: int, real: torch.dtype, where: str) -> MessageEdges:
    named = ("edge_index", "edge_weight", "edge_attr")
    values = [store[name] if name in store else None for name in named]
    values[2] = values[2] if width else None  # which the model does not read
    names = [f"{where}.{name}" for name in named]
    reals = [None if one is None else one.to(real) for one in values[1:]]
    return edges_of(values[0], *reals, ends=(_count(source), _count(target)), width=width, real=real, names=names)


def _count(store: Any) -> int:
    return int(store.num_nodes)


def owners_of(graph: WholeGraph, ranks: int) -> list[np.ndarray]:
    """Return the rank of each vertex, by kind: by METIS, as parts of a snapshot have it.

    Few edges are between ranks, and each has about as much work. Vertices without neighbours are dealt in turn; so are
    all where the graph is too large or too small for METIS (partitioner/placement/whole_graph.py).

    Shapes: result, by kind (n,) int32
    """
    begins = np.cumsum([0, *graph.counts])
    src, dst = (
        np.concatenate(
            [
                np.empty(0, np.int64),
                *(getattr(one, end).numpy() + begins[of[k]] for one, of in zip(graph.edges, graph.ends, strict=True)),
            ]
        )
        for k, end in enumerate(("src", "dst"))
    )
    count = int(begins[-1])
    found = whole_masters(src, dst, count, ranks) if ranks > 1 else None
    owners = np.full(count, -1, np.int32) if found is None else found
    rest = np.flatnonzero(owners < 0)
    owners[rest] = np.arange(len(rest)) % ranks
    return np.split(owners, begins[1:-1])


def rows_of(store: Mapping[str, Any], count: int) -> dict[str, Tensor]:
    """Return what the data has of each vertex of a kind, without ids that are strings."""
    return {
        name: value
        for name, value in store.items()
        if isinstance(value, Tensor) and value.dim() and len(value) == count and not name.startswith("edge_")
    }
