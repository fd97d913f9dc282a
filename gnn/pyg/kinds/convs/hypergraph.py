"""HypergraphConv, whose hyperedges are vertices of a kind of their own: means along a relation, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch_geometric.nn import HypergraphConv

from freshet.gnn.declarations import SAGEConv
from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRelation
from freshet.gnn.pyg.steps import Step, Weights, array_of, check_conv


def is_hypergraph(module: Any) -> bool:
    """Return whether a module is PyG's HypergraphConv."""
    return type(module) is HypergraphConv


def hypergraph_conv(
    ops: KindsOperations, place: str, step: Step, rows: str, relation: int, kinds: Metadata, given: Sequence[str]
) -> str:
    """Note the means of a HypergraphConv; returns the name of its rows.

    `relation`: from vertices to the hyperedges that they are in. `given`: its further parameters that get something.

    Raises: ExportError for attention, weights or another aggregator, and without a mirror of the relation.
    """
    conv: Any = step.op
    check_conv(step)
    if conv.use_attention:
        msg = "the way back weighs by a softmax over the members of a hyperedge, which are no in-edges of a vertex"
        refuse(f"{place}: HypergraphConv with use_attention=True is not supported: {msg}. Nearest: without it")
    if given:
        msg = f"{place}: HypergraphConv with {', '.join(given)} is not supported: its mean back to vertices would be "
        refuse(msg + "divided by a sum of rows of hyperedges. Nearest: without it, or convs of the two relations")
    if conv.aggr != "add":
        refuse(f"{place}: HypergraphConv with aggr={conv.aggr!r} is not supported; expected 'add'")
    source, target = kinds.ends(relation)
    back = next((j for j, one in enumerate(kinds.mirrors) if one == relation), kinds.mirrors[relation])
    if source == target or back is None:
        msg = f"{place}: HypergraphConv goes along {kinds.named(relation)} and back: expected a relation from "
        refuse(msg + "vertices to hyperedges, which are of two kinds, and its mirror, as rev_in of in")
    weight = array_of(step, conv.lin.weight)
    to_edges = _mean(weight, None)
    to_vertices = _mean(np.eye(len(weight), dtype=np.float32), None if conv.bias is None else array_of(step, conv.bias))
    of_edges = Step(f"{step.name}.hyperedges", to_edges[0], weights=to_edges[1])
    edges = ops.conv(place, OnRelation(relation, rows, None, of_edges))
    return ops.conv(place, OnRelation(back, edges, None, step._replace(op=to_vertices[0], weights=to_vertices[1])))


def _mean(weight: np.ndarray, bias: np.ndarray | None) -> tuple[SAGEConv, Weights]:
    out, into = weight.shape
    weights = {"lin_l.weight": weight} | ({} if bias is None else {"lin_l.bias": bias})
    layer = SAGEConv(in_channels=into, out_channels=out, aggr="mean", root_weight=False, bias=bias is not None)
    return layer, weights
