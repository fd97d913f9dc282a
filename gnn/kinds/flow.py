"""Widths of the rows of each kind behind each layer, and the kinds that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, get_args

from freshet.gnn.convs.attention import EdgeAttentionConv, TransformerConv
from freshet.gnn.declarations import AnyConv, Conv, Laplacian, MessageConv
from freshet.gnn.kinds.declarations import ByKind, DeclaredRelation, Grouping, HeteroConv, RelationConv
from freshet.gnn.rows.chains import chain_widths
from freshet.gnn.rows.jumps import CURRENT, Join
from freshet.gnn.rows.layer import Layer

BETWEEN_KINDS = tuple(one.model_fields["type"].default for one in get_args(AnyConv) if one.BETWEEN_KINDS)
"""The types of the convs that may stand in a relation between two kinds."""


class Flow(NamedTuple):
    """The kinds that are there behind a layer, with the widths of their rows, and the kept rows of each kind."""

    widths: dict[str, int]
    kept: dict[str, dict[str, int]]


def flows(
    kinds: Mapping[str, Mapping[str, int]],
    relations: Sequence[DeclaredRelation],
    layers: Sequence[HeteroConv | ByKind],
) -> list[Flow]:
    """Return the flow in front of the first layer, and that behind each layer; `kinds`: see KindsModel.row_parts.

    Raises: ValueError naming the first layer that does not fit.
    """
    widths = {kind: parts[CURRENT] for kind, parts in kinds.items() if CURRENT in parts}
    kept = {kind: {name: parts[name] for name in parts if name != CURRENT} for kind, parts in kinds.items()}
    found = [Flow(widths, kept)]
    for i, layer in enumerate(layers):
        if isinstance(layer, ByKind):
            found.append(_behind_rows(found[-1], layer, f"layers.{i}"))
        else:
            found.append(_behind_conv(found[-1], layer, relations, f"layers.{i}"))
    return found


def _behind_rows(flow: Flow, layer: ByKind, where: str) -> Flow:
    widths, kept = dict(flow.widths), {kind: dict(rows) for kind, rows in flow.kept.items()}
    for kind, layers in layer.layers.items():
        if kind not in kept:
            msg = f"{where}: by_kind has layers of the kind {kind!r}; kinds are {', '.join(kept)}"
            raise ValueError(msg)
        if layers:
            _check_there(widths.get(kind), kind, layers, f"{where}.layers.{kind}")
            widths[kind] = chain_widths(layers, widths.get(kind, 0), f"{where}.layers.{kind}", kept[kind])[-1]
    return Flow(widths, kept)


def _check_there(width: int | None, kind: str, layers: Sequence[Layer], where: str) -> None:
    first = layers[0]
    if width is None and not (isinstance(first, Join) and CURRENT not in first.of):
        msg = f"{where}.0 reads rows of the kind {kind!r}, which is not there any more: no relation of the last "
        raise ValueError(msg + "hetero_conv reaches it; begin with a join of rows that were kept")


def _behind_conv(flow: Flow, layer: HeteroConv, relations: Sequence[DeclaredRelation], where: str) -> Flow:
    reached: dict[str, list[Conv]] = {}
    _check_numbers([one.relation for one in layer.convs], relations, where)
    for c, one in enumerate(layer.convs):
        _check_conv(flow.widths, one, relations[one.relation], f"{where}.convs.{c} ({one.conv.type})")
        reached.setdefault(relations[one.relation].target, []).append(one.conv)
    widths = {
        kind: _grouped(layer.aggr, found, f"{where}: rows of the kind {kind!r}") for kind, found in reached.items()
    }
    return Flow({kind: widths[kind] for kind in flow.kept if kind in widths}, flow.kept)


def _check_numbers(numbers: Sequence[int], relations: Sequence[DeclaredRelation], where: str) -> None:
    for c, number in enumerate(numbers):
        if number >= len(relations):
            msg = f"{where}.convs.{c}: relation {number}, but there are {len(relations)} relations, counted from 0"
            raise ValueError(msg)
        if number in numbers[:c]:
            msg = f"{where}.convs.{c}: the relation {relations[number]} has a conv in this layer already"
            raise ValueError(msg)


def _check_conv(widths: Mapping[str, int], one: RelationConv, relation: DeclaredRelation, where: str) -> None:
    conv = one.conv
    within = relation.source == relation.target
    if not within and not conv.BETWEEN_KINDS:
        msg = (
            f"{where} may stand in a relation within one kind alone; {relation} leads from one kind to another. Those "
        )
        raise ValueError(msg + f"that may are {', '.join(BETWEEN_KINDS)}")
    if isinstance(conv, Laplacian) or getattr(conv, "degrees", "in") != "in":
        msg = f"{where} reads out-edges, whose degrees {relation} does not have in models with kinds"
        raise ValueError(msg)
    ends = [("source", relation.source, conv.in_channels)]
    ends += [("target", relation.target, conv.target_width)] if conv.reads_own else []
    for end, kind, width in ends:
        if kind not in widths:
            msg = f"{where} reads rows of the kind {kind!r}, the {end} of {relation}, which is not there any more: no "
            raise ValueError(msg + "relation of the hetero_conv before it reaches it")
        if widths[kind] != width:
            msg = (
                f"{where} reads rows of width {width} of the kind {kind!r}, the {end} of {relation}, got {widths[kind]}"
            )
            raise ValueError(msg)
    if conv.edge.attributes not in (0, relation.edge_features):
        msg = f"{where} reads attributes of width {conv.edge.attributes}, but edge_features of {relation} is "
        raise ValueError(msg + str(relation.edge_features))
    if getattr(conv, "add_self_loops", False) and relation.source != relation.target:
        msg = f"{where}: add_self_loops in {relation}, but there are no self-loops between two kinds; export the model "
        raise ValueError(msg + "with add_self_loops=False")
    if isinstance(conv, MessageConv) and conv.changes_loops and (not within or conv.update or conv.target_channels):
        msg = f"{where}: add_self_loops and existing_loops in {relation}, which message_conv has in a relation within "
        raise ValueError(msg + "one kind alone, without update and target_channels")


def _grouped(aggr: Grouping, convs: Sequence[Conv], what: str) -> int:
    if aggr == "softmax":
        _check_one_softmax(convs, what)
    widths = [conv.out_channels for conv in convs]
    if aggr == "cat":
        return sum(widths)
    if len(set(widths)) > 1:
        msg = f"{what} come in widths {', '.join(map(str, widths))}, expected the same for aggr {aggr}"
        raise ValueError(msg)
    return widths[0]


def _check_one_softmax(convs: Sequence[Conv], what: str) -> None:
    """Refuse convs whose messages cannot be weighed by one softmax.

    Raises: ValueError
    """
    for conv in convs:
        reads_values = isinstance(conv, TransformerConv) and (conv.beta or conv.edge_channels)
        if not isinstance(conv, EdgeAttentionConv) or conv.add_self_loops or reads_values:
            name = type(conv).model_fields["type"].default
            msg = f"{what}: this {name} has no part in a softmax over relations; those that have are gat_conv, "
            more = "gatv2_conv and transformer_conv, without add_self_loops, beta, and attributes in values"
            raise ValueError(msg + more)
    shapes = {(conv.heads, conv.channels, conv.concat) for conv in convs if isinstance(conv, EdgeAttentionConv)}
    if len(shapes) > 1:
        msg = f"{what}: a softmax over relations needs the same heads, channels and concat in all of them"
        raise ValueError(msg)
