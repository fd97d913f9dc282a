"""Convs on relations become declarations and weights; widths of features and attributes, as what reads them says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from freshet.gnn.declarations import Conv
from freshet.gnn.model import explain
from freshet.gnn.pyg.aggregations import AGGREGATORS
from freshet.gnn.pyg.encoded_conv import FunctionOfEdges
from freshet.gnn.pyg.errors import WIDTH, ExportError, refuse
from freshet.gnn.pyg.first_width import first_width
from freshet.gnn.pyg.forward.aggregators import aggr_of
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import JoinedRows, KindsOperations, Made, OnRelation, OnRows
from freshet.gnn.pyg.layers import convert
from freshet.gnn.pyg.own.conv import end_widths, relation_conv_of, written_relation
from freshet.gnn.pyg.own.rows import function_width
from freshet.gnn.pyg.running import clone_of
from freshet.gnn.pyg.steps import Converted, Hop, Step, check_conv, class_name, is_read, reads_targets, written_class
from freshet.gnn.rows.layer import Layer

_TAKEN = ("SAGEConv", "GraphConv", "GATConv", "GATv2Conv", "TransformerConv", "GINConv", "GINEConv", "EdgeConv")
_WITHIN = ("GCNConv", "LGConv", "AGNNConv", "SuperGATConv", "PNAConv")  # taken on a relation within one kind
DEGREES = "is not supported: it scales by degrees, which are those of two kinds here. Nearest: "
_ONE_KIND = "is not supported between two kinds. Nearest: "
_NEAREST = {"AGNNConv": "GATv2Conv", "SuperGATConv": "GATConv", "PNAConv": "SAGEConv(aggr=['mean', 'max', 'std'])"}
_OUT_EDGES = "is not supported on a relation: it scales by degrees of out-edges. Nearest: TAGConv"
_OF_HOPS = ("SGConv", "SSGConv", "TAGConv", "APPNP", "ChebConv")  # opened within one kind, but for ChebConv


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
    if isinstance(op, Layer | Hop):
        return convert(of.step, width)
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
    if isinstance(step.op, Hop):
        return step.op.channels is None
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
        return _OUT_EDGES
    if name in _NEAREST:
        return _ONE_KIND + _NEAREST[name]
    return DEGREES + ("GraphConv(aggr='mean') or SAGEConv" if name == "GCNConv" else "SAGEConv")


class Widths(NamedTuple):
    """Widths of features by kind, and of attributes by relation; 0 where nothing says them or reads them.

    read: the same of attributes, 0 too where only results that are not returned depend on them.
    """

    features: list[int]
    edges: list[int]
    read: list[int]


def widths_of(read: KindsOperations, unread: KindsOperations, kinds: Metadata, given: Mapping[str, int]) -> Widths:
    """Return how wide what a module takes is: as given, else as what reads it says; `unread` helps the rest to run.

    Raises: ExportError naming a kind that is read, and whose width nothing says.
    """
    there = kinds_there(read, kinds)
    features = list[int]()
    for kind, name in enumerate(kinds.names):
        rows = read.inputs[kind]
        width = given.get(name) or _read_width(read.made, rows, kinds) or _tried_width(unread.made, rows, kinds)
        if kind in read.ids and given.get(name):
            refuse(f"features: x of kind {name!r} are the ids of its vertices, so leave its width out")
        is_read = any(rows in read.reads(one) for one in read.made)
        if width is None and kind in there and (is_read or kind not in {read.kind[one] for one in read.tables}):
            msg = f"the width of the features of kind {name!r} is unknown, since no layer reads them by themselves; "
            raise ExportError(msg + how_wide(kinds, name)).of(WIDTH)
        features.append(width or 0)
    return Widths(features, _edge_widths(read, unread, kinds), _edge_widths(read, KindsOperations(kinds), kinds))


def known_width(ops: KindsOperations, rows: str, kinds: Metadata) -> int | None:
    """Return how wide rows are, as what made them says, or as the widths of features that are given; None for unknown.

    Raises: ExportError for a conv before them that cannot stand on its relation.
    """
    if rows not in ops.widths:
        ops.widths[rows] = _made_width(ops, rows, kinds)
    return ops.widths[rows]


def _made_width(ops: KindsOperations, rows: str, kinds: Metadata) -> int | None:
    op = ops.made.get(rows)
    if op is None:
        return ops.tables[rows].shape[1] if rows in ops.tables else None
    if isinstance(op, JoinedRows):
        if op.operation == "function":
            return _function_width(ops, op, kinds)
        widths = (known_width(ops, one, kinds) for one in op.rows)
        if op.operation != "cat":
            return next((one for one in widths if one), None)
        known = [one for one in widths if one]
        return sum(known) if len(known) == len(op.rows) else None
    if isinstance(op, OnRelation):
        source = known_width(ops, op.source, kinds)
        if says_no_width(op.step):
            return source
        target = known_width(ops, op.target, kinds) if op.target and _is_by_hand(op) else None
        return relation_conv(rows, op, kinds, source, target)[0].out_width
    try:
        made = convert(op.step, None)[0].out_width
    except ValueError:  # of which the conversion itself says more, unless it needs to know how wide rows are
        width = known_width(ops, op.rows, kinds)
        return None if width is None else _width_behind(op.step, width)
    return made or known_width(ops, op.rows, kinds)


def _width_behind(step: Step, width: int) -> int | None:
    try:
        return convert(step, width)[0].out_width or width
    except ValueError:
        return None


def _function_width(ops: KindsOperations, op: JoinedRows, kinds: Metadata) -> int | None:
    """Return how wide the rows of a function of rows are, as it makes them; None where it is unknown what it reads."""
    step: Any = op.step
    widths = [known_width(ops, one, kinds) for one in op.rows]
    if widths == [None]:
        widths = [function_width(step)]
    if None in widths:
        return None
    rows = {f"rows{i}": torch.zeros(2, width or 0) for i, width in enumerate(widths)}
    with suppress(Exception), torch.no_grad():  # of which reading it says more
        made = clone_of(step.op.module)(**rows)
        return 1 if made.dim() == 1 else int(made.shape[1])
    return None


def how_wide(kinds: Metadata, name: str) -> str:
    """Return the advice to give the width of a kind's features."""
    return "give their width: " + ("features=N" if len(kinds.names) == 1 else f"features={{{name!r}: N}}")


def kinds_there(read: KindsOperations, kinds: Metadata) -> set[int]:
    """Return the kinds that a conv sends from or to; nothing else has a place in the model."""
    relations = [op.relation for op in read.made.values() if isinstance(op, OnRelation)]
    return {kind for relation in relations for kind in kinds.ends(relation)}


def _edge_widths(read: KindsOperations, unread: KindsOperations, kinds: Metadata) -> list[int]:
    """Widths of attributes by relation; a relation and its mirror have the same.

    Raises: ExportError where attributes of a relation are read in two widths.
    """
    found = dict[int, tuple[int, str]]()
    for made in (read.made, unread.made):
        for name, op in made.items():
            if not isinstance(op, OnRelation):
                continue
            ends = [known_width(read, one, kinds) for one in (op.source, op.target) if one and _is_by_hand(op)]
            width = _edge_width(name, op, kinds, *ends, quiet=made is unread.made)
            for one in (op.relation, *_mirrored(op.relation, kinds)) if width else ():
                if found.setdefault(one, (width, name))[0] != width:
                    other, of = found[one]
                    msg = f"{name} reads attributes of width {width} of {kinds.named(one)} or its mirror, and {of} "
                    raise ExportError(msg + f"of width {other}")
    return [found.get(j, (0, ""))[0] for j in range(len(kinds.relations))]


def _mirrored(relation: int, kinds: Metadata) -> list[int]:
    """The relation that this one mirrors, and those that mirror it."""
    of = kinds.mirrors[relation]
    return [j for j, one in enumerate(kinds.mirrors) if one == relation] + ([] if of is None else [of])


def _is_by_hand(op: OnRelation) -> bool:
    return isinstance(op.step.op, FunctionOfEdges)


def _edge_width(name: str, op: OnRelation, kinds: Metadata, *ends: int | None, quiet: bool) -> int:
    given = op.step.given
    if says_no_width(op.step) or (given is not None and given.attributes is None):
        return 0
    try:
        layer: Any = relation_conv(name, op, kinds, *(ends or (None,)))[0]
    except ExportError:
        if quiet:
            return 0
        raise
    return int(layer.edge.attributes)


def _tried_width(made: Mapping[str, Made], rows: str, kinds: Metadata) -> int | None:
    try:
        return _read_width(made, rows, kinds)
    except ExportError:
        return None


def _read_width(made: Mapping[str, Made], rows: str, kinds: Metadata) -> int | None:
    """The width of rows, where something that reads them, or what has their width, says it."""
    for name, op in made.items():
        width: int | None = None
        if isinstance(op, OnRelation):
            width = _conv_width(made, name, rows, kinds)
        elif isinstance(op, OnRows) and op.rows == rows:
            width = first_width([op.step])
            width = _read_width(made, name, kinds) if width is None and keeps_width(op) else width
        elif isinstance(op, JoinedRows) and op.step is not None and rows in op.rows:
            width = first_width([op.step])
        elif isinstance(op, JoinedRows) and rows in op.rows and op.operation != "cat":
            width = _read_width(made, name, kinds)
        if width is not None:
            return width
    return None


def keeps_width(op: OnRows) -> bool:
    """Return whether a step's rows are as wide as those that it reads, as far as is known.

    Raises: ExportError for a step that has no layer.
    """
    try:
        return convert(op.step, None)[0].out_width is None
    except ValueError as error:
        if isinstance(error, ExportError):
            raise
        return False  # the conversion itself says more


def _conv_width(made: Mapping[str, Made], name: str, rows: str, kinds: Metadata) -> int | None:
    op = made[name]
    if not isinstance(op, OnRelation) or rows not in (op.source, op.target):
        return None
    if says_no_width(op.step):
        return _read_width(made, name, kinds)
    if is_run_here(op.step.op):
        ends = end_widths(op.step)
        return ends[0] if rows == op.source else ends[1]
    layer: Any = relation_conv(name, op, kinds, None)[0]
    if rows == op.source:
        return int(layer.in_channels)
    return int(layer.target_width) if reads_target(op.step) else None
