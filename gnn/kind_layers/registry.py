"""Table from convs to their plans in relations: a new one is one line here and one in gnn/kinds/declarations.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from freshet.gnn.declarations import (
    Conv,
    EdgeConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    MessageConv,
    OwnLayer,
    Propagation,
    SAGEConv,
    TransformerConv,
)
from freshet.gnn.kind_layers.attention import GATRelation, GATv2Relation, TransformerRelation
from freshet.gnn.kind_layers.degrees import DegreeRelation
from freshet.gnn.kind_layers.messages import MessageRelation
from freshet.gnn.kind_layers.networks import EdgeConvRelation, GINERelation
from freshet.gnn.kind_layers.relation_conv import RelationConvPlan
from freshet.gnn.kind_layers.sums import GINRelation, NeighbourRelation, width_first
from freshet.gnn.kind_layers.written import OwnRelation

RELATION_PLANS: dict[type[Conv], Callable[..., RelationConvPlan]] = {
    EdgeConv: EdgeConvRelation,
    GATConv: GATRelation,
    GATv2Conv: GATv2Relation,
    GCNConv: DegreeRelation,
    GINConv: GINRelation,
    GINEConv: GINERelation,
    GraphConv: NeighbourRelation,
    MessageConv: MessageRelation,
    OwnLayer: OwnRelation,
    Propagation: DegreeRelation,
    SAGEConv: NeighbourRelation,
    TransformerConv: TransformerRelation,
}

FIRST: dict[type[Conv], Callable[[Any], int | None]] = {
    GINConv: width_first,
    GraphConv: width_first,
    SAGEConv: width_first,
}
"""Width of messages whose rows are multiplied before sending, for the convs that allow it."""
