"""RGCNConv and FastRGCNConv as a sum of convs, one for each type of edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.gnn.declarations import SAGEConv
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.aggregators import aggr_of
from freshet.gnn.pyg.steps import Step, array_of, class_name

MOST_RELATIONS = 8
_TYPED = ("torch_geometric.nn.RGCNConv", "torch_geometric.nn.FastRGCNConv")


def is_typed(module: Any) -> bool:
    """Return whether a conv reads the type of each edge, and has a matrix for each."""
    return class_name(module) in _TYPED


def typed_convs(step: Step, relations: int) -> list[Step]:
    """Return a SAGEConv for each type: W_r aggr_r(x_u); the first one also has W_root x_v + b.

    Raises: ExportError for an option that cannot be taken over, and for another number of types.
    """
    conv: Any = step.op
    name = class_name(conv).rsplit(".", 1)[1]
    aggr = aggr_of(step, ("sum", "mean") if name == "FastRGCNConv" else ("sum", "mean", "max"))
    if conv.flow != "source_to_target":
        msg = f"{step.name}: flow={conv.flow!r} is not supported, messages flow source_to_target"
        raise ExportError(msg)
    if conv.num_relations != relations:
        msg = f"{step.name}: {name} has num_relations={conv.num_relations}, but there are {relations} types of edges"
        raise ExportError(msg)
    matrices = _matrices(step)
    made = []
    for number, matrix in enumerate(matrices):
        first = number == 0
        weights = {"lin_l.weight": matrix}
        if first and conv.bias is not None:
            weights["lin_l.bias"] = array_of(step, conv.bias)
        if first and conv.root is not None:
            weights["lin_r.weight"] = np.ascontiguousarray(array_of(step, conv.root).T)
        layer = SAGEConv(
            in_channels=matrix.shape[1],
            out_channels=matrix.shape[0],
            aggr=aggr,
            root_weight="lin_r.weight" in weights,
            bias="lin_l.bias" in weights,
        )
        made.append(Step(f"{step.name}.{number}", layer, weights=weights))
    return made


def _matrices(step: Step) -> list[np.ndarray]:
    """The (out_channels, in_channels) matrix of each type, bases and blocks written out."""
    conv: Any = step.op
    weight = array_of(step, conv.weight)
    if conv.num_bases is not None:
        weight = np.einsum("rb,bio->rio", array_of(step, conv.comp).astype(np.float64), weight.astype(np.float64))
    if conv.num_blocks is not None:
        weight = np.stack([_block_diagonal(one) for one in weight])
    return [np.ascontiguousarray(one.T, np.float32) for one in weight]


def _block_diagonal(blocks: np.ndarray) -> np.ndarray:
    """Return (blocks, in, out) matrices as one (blocks * in, blocks * out) matrix."""
    count, into, out = blocks.shape
    made = np.zeros((count * into, count * out), blocks.dtype)
    for k, one in enumerate(blocks):
        made[k * into : (k + 1) * into, k * out : (k + 1) * out] = one
    return made
