"""A whole graph of arrays as PyTorch Geometric's Data, or HeteroData where kinds of vertices have names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from freshet.kinds import Kinds
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import EdgeValues

AnyData: TypeAlias = Data | HeteroData


def graph_data(
    ids: Sequence[np.ndarray],
    graph: KindsGraph,
    kinds: Kinds | None,
    attr: Sequence[bool],
    etype: np.ndarray | None = None,
    **more: Any,
) -> AnyData:
    """Return a graph with `more` attributes of the whole; a relation's edges stand under (source, type, target).

    Shapes: ids, by kind n int64 or n strings (object); graph by kind and relation, one of each without kinds; attr, by
    relation, whether its edges have attributes; etype (e,) int64 of a graph without kinds whose edges have types
    """
    if kinds is None or not kinds.are_named:
        return _plain(ids[0], graph, attr, etype, more)
    data = HeteroData()
    for name, value in more.items():
        data[name] = value
    for name, own, x in zip(kinds.names, ids, graph.x, strict=True):
        for key, value in _vertices(own, x).items():
            data[name][key] = value
    for relation, edges, has_attr in zip(kinds.relations, graph.edges, attr, strict=True):
        width = relation.edge_width if has_attr else 0
        for key, value in _edges(edges, width).items():
            data[kinds.triple(relation)][key] = value
    return data


def _plain(
    ids: np.ndarray, graph: KindsGraph, attr: Sequence[bool], etype: np.ndarray | None, more: Mapping[str, Any]
) -> Data:
    """The graph of one kind without a name; of several relations, the edges of one after the other."""
    relations = graph.edges
    if len(relations) > 1:
        etype = np.repeat(np.arange(len(relations)), [len(one.src) for one in relations])
    widths = [0 if one.values.attr is None else one.values.attr.shape[1] for one in relations]
    width = max(widths) if any(attr) else 0
    joined = RelationEdges(
        np.concatenate([one.src for one in relations]),
        np.concatenate([one.dst for one in relations]),
        EdgeValues.concatenate([EdgeValues(len(one.src), one.values.given) for one in relations]),
    )
    found = _edges(joined, 0)
    if width:
        rows = np.zeros((len(joined.src), width), np.float32)
        ends = np.cumsum([len(one.src) for one in relations]).tolist()
        for end, one, own in zip(ends, relations, widths, strict=True):
            rows[end - len(one.src) : end, :own] = one.values.full_attr(own)
        found["edge_attr"] = torch.from_numpy(rows)
    if etype is not None:
        found["edge_type"] = torch.from_numpy(etype.astype(np.int64))
    return Data(**_vertices(ids, graph.x[0]), **found, **more)


def _vertices(ids: np.ndarray, x: np.ndarray) -> dict[str, Any]:
    named: np.ndarray | Tensor = ids if ids.dtype == object else torch.from_numpy(ids)
    rows = {"x": torch.from_numpy(x)} if x.shape[1] else {}
    return {**rows, "id": named, "num_nodes": len(ids)}


def _edges(edges: RelationEdges, width: int) -> dict[str, Tensor]:
    ends = np.stack([edges.src, edges.dst]).astype(np.int64, copy=False)
    found = {"edge_index": torch.from_numpy(ends), "edge_weight": torch.from_numpy(edges.values.weight.copy())}
    if width:
        found["edge_attr"] = torch.from_numpy(np.ascontiguousarray(edges.values.full_attr(width)[:, :width]))
    return found
