"""Turns a conv on a relation into its declaration and weights."""

from __future__ import annotations

from typing import Any

from freshet.gnn.declarations import Conv
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import OnRelation
from freshet.gnn.pyg.layers import convert
from freshet.gnn.pyg.refusals import why_not_own
from freshet.gnn.pyg.steps import Step, class_name
from freshet.gnn.pyg.tensors import Converted
from freshet.gnn.rows.layer import Layer

_TAKEN = ("SAGEConv", "GraphConv", "GATConv", "GATv2Conv", "TransformerConv", "GINConv", "GINEConv", "EdgeConv")
_DEGREES = "is not supported: it scales by degrees, which are those of two kinds here. Nearest: "
_WHY = {
    "GCNConv": f"{_DEGREES}GraphConv(aggr='mean') or SAGEConv",
    "LGConv": f"{_DEGREES}SAGEConv",
    "SGConv": f"{_DEGREES}SAGEConv",
    "TAGConv": f"{_DEGREES}SAGEConv",
    "APPNP": f"{_DEGREES}SAGEConv",
    "ChebConv": f"{_DEGREES}SAGEConv",
}


def reads_target(step: Step) -> bool:
    """Return whether a conv reads the rows of its target, if it is given any."""
    op: Any = step.op
    if isinstance(op, Conv):
        return op.reads_own
    return bool(op.root_weight) if class_name(op) == "torch_geometric.nn.SAGEConv" else True


def relation_conv(name: str, of: OnRelation, kinds: Metadata, width: int | None) -> Converted:
    """Return the declaration and weights of a conv on a relation; `width` is that of its source's rows, where known.

    Raises: ExportError for a conv that cannot stand there, or an option of it.
    """
    op: Any = of.step.op
    if isinstance(op, Layer):
        return op, of.step.weights or {}
    where = f"{name} on {kinds.named(of.relation)}"
    _check_class(where, op)
    source, target = kinds.ends(of.relation)
    if getattr(op, "add_self_loops", False) and source != target:
        msg = f"{where}: {type(op).__name__} adds self-loops, from vertex i of one kind to vertex i of another: "
        raise ExportError(msg + "make it with add_self_loops=False")
    if of.target is None and reads_target(of.step) and type(op).__name__ != "SAGEConv":
        msg = f"{where}: {type(op).__name__} is called without rows of {kinds.names[target]!r}: "
        raise ExportError(msg + "give it those of both ends")
    try:
        layer, weights = convert(of.step._replace(relation=True), width)
    except ExportError:
        raise
    except ValueError as error:  # a declaration that does not hold together
        msg = f"{where}: {error}"
        raise ExportError(msg) from None
    assert isinstance(layer, Conv)
    if of.target is None and "lin_r.weight" in weights:
        layer = type(layer)(**{**layer.model_dump(), "root_weight": False, "target_channels": None})
        weights = {key: value for key, value in weights.items() if key != "lin_r.weight"}
    return layer, weights


def _check_class(where: str, op: Any) -> None:
    kind = class_name(op)
    short = kind.rsplit(".", 1)[1]
    if kind.startswith("torch_geometric.nn.") and short in _TAKEN:
        return
    reason = _WHY.get(short) if kind.startswith("torch_geometric.nn.") else why_not_own(type(op))
    msg = f"{where}: {kind} {reason or 'is not supported on a relation yet'}"
    raise ExportError(msg if reason else f"{msg}; there are {', '.join(_TAKEN)}")
