"""Graphs of tests as modules of torch take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from freshet.gnn.kinds.learned import digests_of
from freshet.gnn.kinds.model import KindsModel
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import WEIGHT, EdgeValues, Graph
from tests.support.graphs.kinds import VERTICES, text_id


def with_parallel_edges(edges: RelationEdges, seed: int) -> RelationEdges:
    """Return edges of which some are there several times, with weights of their own."""
    rng, count = np.random.default_rng(seed), len(edges.src)
    some = np.r_[np.arange(count), rng.integers(0, count, count // 2)]
    weight = rng.uniform(0.1, 2, len(some)).astype(np.float32)
    attr = None if edges.values.attr is None else edges.values.attr[some]
    return RelationEdges(edges.src[some], edges.dst[some], EdgeValues(len(some), {WEIGHT: weight}, attr))


def plain_inputs(graph: Graph, *, edge_features: int, real: Any = torch.float32) -> dict[str, Any]:
    """Return the arguments of a module without kinds."""
    values = graph.values
    attr = {"edge_attr": torch.tensor(values.full_attr(edge_features), dtype=real)} if edge_features else {}
    return {
        "x": torch.tensor(graph.x, dtype=real),
        "edge_index": torch.from_numpy(np.stack([graph.src, graph.dst]).astype(np.int64)),
        "edge_weight": torch.tensor(values.weight, dtype=real),
        **attr,
    }


def kinds_inputs(
    model: KindsModel, graph: KindsGraph, ids: Mapping[str, Any] | None = None, *, real: Any = torch.float32
) -> dict[str, Any]:
    """Return the arguments of a module with kinds; columns behind features are left out, since `ids` find them."""
    edges, weights, attributes = dict[Any, Any](), dict[Any, Any](), dict[Any, Any]()
    for relation, one in zip(model.relations, graph.edges, strict=True):
        edges[relation.ends] = torch.from_numpy(np.stack([one.src, one.dst]).astype(np.int64))
        weights[relation.ends] = torch.tensor(one.values.weight, dtype=real)
        if relation.edge_features:
            attributes[relation.ends] = torch.tensor(one.values.full_attr(relation.edge_features), dtype=real)
    rows = zip(model.kinds.items(), graph.x, strict=True)
    return {
        "x_dict": {kind: torch.tensor(x[:, :width], dtype=real) for (kind, width), x in rows if width},
        "edge_index_dict": edges,
        "edge_weight_dict": weights,
        "edge_attr_dict": attributes,
        "ids": ids,
    }


def with_ids(model: KindsModel, graph: KindsGraph, seed: int) -> tuple[KindsGraph, dict[str, Any]]:
    """Return the graph with the learned rows of drawn ids behind the features, and the ids; some are not known."""
    rng, ids, x = np.random.default_rng(seed), dict[str, Any](), list[np.ndarray]()
    learned = model.learned_rows()
    for (kind, width), rows in zip(model.kinds.items(), graph.x, strict=True):
        if kind not in learned:
            x.append(rows)
            continue
        numbers = rng.integers(0, VERTICES, len(rows))
        if learned[kind].of_strings:
            ids[kind] = [text_id(one) for one in numbers.tolist()]
            keys = digests_of(one.encode() for one in ids[kind])
        else:
            ids[kind] = keys = numbers
        x.append(np.concatenate([rows[:, :width], learned[kind].find(keys)[0]], axis=1))
    return graph._replace(x=x), ids
