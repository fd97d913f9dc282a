"""Table from convs to their plans: a new layer is one line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from freshet.gnn.declarations import (
    AGNNConv,
    CGConv,
    CommNetConv,
    EdgeConv,
    FiLMConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GENConv,
    GINConv,
    GINEConv,
    GMMConv,
    GraphConv,
    Laplacian,
    Layer,
    MessageConv,
    NNConv,
    OwnLayer,
    PinSAGEConv,
    PNAConv,
    Propagation,
    ResGatedGraphConv,
    SAGEConv,
    SuperGATConv,
    TransformerConv,
)
from freshet.gnn.layers.attention_convs import (
    AGNNConvPlan,
    GATConvPlan,
    GATv2ConvPlan,
    SuperGATConvPlan,
    TransformerConvPlan,
)
from freshet.gnn.layers.base import LayerPlan
from freshet.gnn.layers.edge_conv import EdgeConvPlan
from freshet.gnn.layers.edge_matrices import GMMConvPlan, NNConvPlan
from freshet.gnn.layers.edge_sums import CGConvPlan, GENConvPlan
from freshet.gnn.layers.film_conv import FiLMConvPlan
from freshet.gnn.layers.gcn_conv import GCNConvPlan
from freshet.gnn.layers.gin_conv import GINConvPlan
from freshet.gnn.layers.gine_conv import GINEConvPlan
from freshet.gnn.layers.laplacian import LaplacianPlan
from freshet.gnn.layers.neighbour_conv import NeighbourConvPlan
from freshet.gnn.layers.own.message_conv import MessageConvPlan
from freshet.gnn.layers.own.own_layer import OwnLayerPlan
from freshet.gnn.layers.pin_sage_conv import PinSAGEConvPlan
from freshet.gnn.layers.pna_conv import PNAConvPlan
from freshet.gnn.layers.res_gated_graph_conv import ResGatedGraphConvPlan

PLANS: dict[type[Layer], Callable[..., LayerPlan]] = {
    AGNNConv: AGNNConvPlan,
    CGConv: CGConvPlan,
    CommNetConv: NeighbourConvPlan,
    EdgeConv: EdgeConvPlan,
    FiLMConv: FiLMConvPlan,
    GATConv: GATConvPlan,
    GATv2Conv: GATv2ConvPlan,
    GCNConv: GCNConvPlan,
    GENConv: GENConvPlan,
    GINConv: GINConvPlan,
    GINEConv: GINEConvPlan,
    GMMConv: GMMConvPlan,
    GraphConv: NeighbourConvPlan,
    Laplacian: LaplacianPlan,
    MessageConv: MessageConvPlan,
    NNConv: NNConvPlan,
    OwnLayer: OwnLayerPlan,
    Propagation: GCNConvPlan,
    PNAConv: PNAConvPlan,
    PinSAGEConv: PinSAGEConvPlan,
    ResGatedGraphConv: ResGatedGraphConvPlan,
    SAGEConv: NeighbourConvPlan,
    SuperGATConv: SuperGATConvPlan,
    TransformerConv: TransformerConvPlan,
}


def names() -> list[str]:
    """Return the types of convs that have a plan."""
    return [_type(spec) for spec in PLANS]


def _type(spec: Any) -> str:
    return str(spec.model_fields["type"].default)
