"""Table from convs to their plans in relations between two kinds; within one kind any conv may stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from freshet.gnn.declarations import (
    Conv,
    EdgeConv,
    GATConv,
    GATv2Conv,
    GINConv,
    GINEConv,
    GraphConv,
    MessageConv,
    OwnLayer,
    SAGEConv,
    TransformerConv,
)
from freshet.gnn.kind_layers.attention import GATRelation, GATv2Relation, TransformerRelation
from freshet.gnn.kind_layers.messages import MessageRelation
from freshet.gnn.kind_layers.networks import EdgeConvRelation, GINERelation
from freshet.gnn.kind_layers.relation_conv import RelationConvPlan
from freshet.gnn.kind_layers.sums import GINRelation, NeighbourRelation, width_first
from freshet.gnn.kind_layers.within import WithinKind
from freshet.gnn.kind_layers.written import OwnRelation
from freshet.gnn.model import WeightedModel

_BETWEEN: dict[type[Conv], Callable[..., RelationConvPlan]] = {
    EdgeConv: EdgeConvRelation,
    GATConv: GATRelation,
    GATv2Conv: GATv2Relation,
    GINConv: GINRelation,
    GINEConv: GINERelation,
    GraphConv: NeighbourRelation,
    MessageConv: MessageRelation,
    OwnLayer: OwnRelation,
    SAGEConv: NeighbourRelation,
    TransformerConv: TransformerRelation,
}

FIRST: dict[type[Conv], Callable[[Any], int | None]] = {
    GINConv: width_first,
    GraphConv: width_first,
    SAGEConv: width_first,
}
"""Width of messages whose rows are multiplied before sending, for the convs that allow it."""


def relation_plan(spec: Conv, model: WeightedModel, prefix: str, *, first: bool) -> RelationConvPlan:
    """Return the plan of the conv of a relation.

    `prefix` is that of its weights' names; `first`: the rows of sources are multiplied before they are sent.
    """
    within = isinstance(spec, MessageConv) and spec.changes_loops
    return (WithinKind if within else _BETWEEN.get(type(spec), WithinKind))(spec, model, prefix, first)
