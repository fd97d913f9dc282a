"""RGCNConv, FastRGCNConv and RGATConv as convs on relations, one for each type of edges."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.gnn.declarations import GATConv, SAGEConv
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.aggregators import aggr_of
from freshet.gnn.pyg.steps import Step, array_of, check_conv, class_name

MOST_RELATIONS = 8
_TYPED = ("torch_geometric.nn.RGCNConv", "torch_geometric.nn.FastRGCNConv", "torch_geometric.nn.RGATConv")


def is_typed(module: Any) -> bool:
    """Return whether a conv reads the type of each edge, and has a matrix for each."""
    return class_name(module) in _TYPED


def is_across(module: Any) -> bool:
    """Return whether a conv weighs the in-edges of all types by one softmax."""
    return getattr(module, "attention_mechanism", None) == "across-relation"


def typed_convs(step: Step, relations: int) -> list[Step]:
    """Return a conv for each type, whose results are added up or weighed together; the first one has the bias, too.

    Raises: ExportError for an option that cannot be taken over, and for another number of types.
    """
    conv: Any = step.op
    check_conv(step)
    if conv.num_relations != relations:
        name = class_name(conv).rsplit(".", 1)[1]
        msg = f"{step.name}: {name} has num_relations={conv.num_relations}, but there are {relations} types of edges"
        raise ExportError(msg)
    return _attention(step) if hasattr(conv, "attention_mechanism") else _sums(step)


def _sums(step: Step) -> list[Step]:
    """A SAGEConv for each type: W_r aggr_r(x_u); the first one also has W_root x_v + b."""
    conv: Any = step.op
    is_fast = class_name(conv) == "torch_geometric.nn.FastRGCNConv"
    aggr = aggr_of(step, ("sum", "mean") if is_fast else ("sum", "mean", "max"))
    bases = None if conv.num_bases is None else conv.comp
    made = []
    for number, matrix in enumerate(_matrices(step, bases, conv.weight)):
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


def _attention(step: Step) -> list[Step]:
    """A GATConv for each type, of RGATConv with one head: LeakyReLU(q . W_r x_v + k . W_r x_u) scores W_r x_u."""
    conv: Any = step.op
    aggr_of(step, ("sum",))
    one = {"heads": 1, "dim": 1, "mod": None, "edge_dim": None, "attention_mode": "additive-self-attention"}
    for name, expected in one.items():
        if (got := getattr(conv, name)) != expected:
            msg = f"{step.name}: RGATConv with {name}={got!r} is not supported yet; expected {expected!r}"
            raise ExportError(msg)
    made = []
    bases = (None, conv.weight) if conv.num_bases is None else (conv.att, conv.basis)
    att = {"att_dst": array_of(step, conv.q).T, "att_src": array_of(step, conv.k).T}
    for number, matrix in enumerate(_matrices(step, *bases)):
        weights = {"lin.weight": matrix} | {name: np.ascontiguousarray(values) for name, values in att.items()}
        if number == 0 and conv.bias is not None:
            weights["bias"] = array_of(step, conv.bias)
        layer = GATConv(
            in_channels=matrix.shape[1],
            out_channels=matrix.shape[0],
            add_self_loops=False,
            negative_slope=conv.negative_slope,
            bias="bias" in weights,
        )
        made.append(Step(f"{step.name}.{number}", layer, weights=weights))
    return made


def _matrices(step: Step, bases: Any, weight: Any) -> list[np.ndarray]:
    """The (out_channels, in_channels) matrix of each type, bases and blocks written out."""
    conv: Any = step.op
    weight = array_of(step, weight)
    if bases is not None:
        weight = np.einsum("rb,bio->rio", array_of(step, bases).astype(np.float64), weight.astype(np.float64))
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
