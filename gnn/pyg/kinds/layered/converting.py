"""Turns a conv on a relation into its declaration and weights."""

from __future__ import annotations

from typing import Any

from freshet.gnn.declarations import Conv
from freshet.gnn.model import explain
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.aggregators import AGGREGATORS, aggr_of
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import OnRelation
from freshet.gnn.pyg.layers import convert
from freshet.gnn.pyg.own.conv import relation_conv_of, written_relation
from freshet.gnn.pyg.steps import Converted, Hop, Step, check_conv, class_name, is_read, reads_targets, written_class
from freshet.gnn.rows.layer import Layer

_TAKEN = ("SAGEConv", "GraphConv", "GATConv", "GATv2Conv", "TransformerConv", "GINConv", "GINEConv", "EdgeConv")
_WITHIN = ("GCNConv", "LGConv", "AGNNConv", "SuperGATConv", "PNAConv")  # taken on a relation within one kind
_DEGREES = "is not supported: it scales by degrees, which are those of two kinds here. Nearest: "
_ONE_KIND = "is not supported between two kinds. Nearest: "
_NEAREST = {"AGNNConv": "GATv2Conv", "SuperGATConv": "GATConv", "PNAConv": "SAGEConv(aggr=['mean', 'max', 'std'])"}
_HOPS = "is not supported on a relation: it is several hops. Nearest: "
_OF_HOPS = ("SGConv", "SSGConv", "TAGConv", "APPNP", "ChebConv")


def reads_target(step: Step) -> bool:
    """Return whether a conv reads the rows of its target, if it is given any."""
    op: Any = step.op
    if isinstance(op, Conv):
        return op.reads_own
    if (code := written_class(op)) is not None:
        return reads_targets(code)
    return bool(op.root_weight) if class_name(op) == "torch_geometric.nn.SAGEConv" else True


def relation_conv(
    name: str, of: OnRelation, kinds: Metadata, width: int | None, target_width: int | None = None
) -> Converted:
    """Return the declaration and weights of a conv on a relation.

    `width` and `target_width` are those of its source's and its target's rows, where known.

    Raises: ExportError for a conv that cannot stand there, or an option of it.
    """
    op: Any = of.step.op
    if isinstance(op, Layer):
        return op, of.step.weights or {}
    where = f"{name} on {kinds.named(of.relation)}"
    source, target = kinds.ends(of.relation)
    _check_class(where, op, within=source == target)
    if getattr(op, "add_self_loops", False) and source != target:
        msg = f"{where}: {type(op).__name__} adds self-loops, from vertex i of one kind to vertex i of another: "
        raise ExportError(msg + "make it with add_self_loops=False")
    if of.target is None and reads_target(of.step) and type(op).__name__ != "SAGEConv":
        msg = f"{where}: {type(op).__name__} is called without rows of {kinds.names[target]!r}: "
        raise ExportError(msg + "give it those of both ends")
    if is_read_here(op):
        return relation_conv_of(where, of.step, width, target_width)
    if (code := written_class(op)) is not None:
        return written_relation(where, of.step, code, width, target_width)
    try:
        layer, weights = convert(_hop(of.step)._replace(relation=True), width)
    except ExportError:
        raise
    except ValueError as error:  # a declaration that does not hold together
        msg = f"{where}: {explain(error)}"
        raise ExportError(msg) from None
    assert isinstance(layer, Conv)
    if of.target is None and "lin_r.weight" in weights:
        layer = type(layer)(**{**layer.model_dump(), "root_weight": False, "target_channels": None})
        weights = {key: value for key, value in weights.items() if key != "lin_r.weight"}
    return layer, weights


def is_read_here(op: Any) -> bool:
    """Return whether a conv on a relation is read as it runs: a user's own, or one of PyG's without a layer here."""
    if is_read(op):
        return True
    kind = class_name(op)
    named = kind.rsplit(".", 1)[1] in (*_TAKEN, *_WITHIN, *_OF_HOPS)
    return kind.startswith("torch_geometric.nn.") and not named and written_class(op) is None


def is_run_here(op: Any) -> bool:
    """Return whether a conv on a relation is run to see how wide what it reads is: one that is read, or is written."""
    return is_read_here(op) or written_class(op) is not None


def says_no_width(step: Step) -> bool:
    """Return whether a conv does not say how wide its rows are, which are as wide as those that it reads."""
    return class_name(step.op) in ("torch_geometric.nn.LGConv", "torch_geometric.nn.AGNNConv")


def _hop(step: Step) -> Step:
    """Return a step whose conv is one hop alone as that hop, others as they are."""
    op: Any = step.op
    if class_name(step.op) != "torch_geometric.nn.LGConv":
        return step
    check_conv(step)
    return step._replace(op=Hop(bool(op.normalize), add_self_loops=False, aggr=aggr_of(step, AGGREGATORS)))


def _check_class(where: str, op: Any, *, within: bool) -> None:
    kind = class_name(op)
    short = kind.rsplit(".", 1)[1]
    if not is_run_here(op) and short not in ((*_TAKEN, *_WITHIN) if within else _TAKEN):
        refuse(f"{where}: {kind} {_why_not(short, within=within)}")


def _why_not(name: str, *, within: bool) -> str:
    if name in _OF_HOPS and within:
        return _HOPS + "GCNConv for each hop"
    if name in _NEAREST:
        return _ONE_KIND + _NEAREST[name]
    return _DEGREES + ("GraphConv(aggr='mean') or SAGEConv" if name == "GCNConv" else "SAGEConv")
