"""Declarations of a model's layers: one class per layer type, with its sizes, options and weight shapes."""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from freshet.gnn.convs.attention import AGNNConv as AGNNConv
from freshet.gnn.convs.attention import AttentionConv as AttentionConv
from freshet.gnn.convs.attention import GATConv as GATConv
from freshet.gnn.convs.attention import GATv2Conv as GATv2Conv
from freshet.gnn.convs.attention import SuperGATConv as SuperGATConv
from freshet.gnn.convs.attention import TransformerConv as TransformerConv
from freshet.gnn.convs.attributed import CGConv as CGConv
from freshet.gnn.convs.attributed import GENConv as GENConv
from freshet.gnn.convs.attributed import GINEConv as GINEConv
from freshet.gnn.convs.attributed import GMMConv as GMMConv
from freshet.gnn.convs.attributed import NNConv as NNConv
from freshet.gnn.convs.base import Aggregator as Aggregator
from freshet.gnn.convs.base import AnyAggregator as AnyAggregator
from freshet.gnn.convs.base import Conv as Conv
from freshet.gnn.convs.base import Quantile as Quantile
from freshet.gnn.convs.degree_scaled import DegreeScaledConv as DegreeScaledConv
from freshet.gnn.convs.degree_scaled import GCNConv as GCNConv
from freshet.gnn.convs.degree_scaled import Laplacian as Laplacian
from freshet.gnn.convs.degree_scaled import Propagation as Propagation
from freshet.gnn.convs.edge_networks import EdgeConv as EdgeConv
from freshet.gnn.convs.edge_networks import FiLMConv as FiLMConv
from freshet.gnn.convs.edge_networks import PNAConv as PNAConv
from freshet.gnn.convs.message_conv import MessageConv as MessageConv
from freshet.gnn.convs.own_layer import OwnLayer as OwnLayer
from freshet.gnn.convs.sums import CommNetConv as CommNetConv
from freshet.gnn.convs.sums import GINConv as GINConv
from freshet.gnn.convs.sums import GraphConv as GraphConv
from freshet.gnn.convs.sums import PinSAGEConv as PinSAGEConv
from freshet.gnn.convs.sums import ResGatedGraphConv as ResGatedGraphConv
from freshet.gnn.convs.sums import RootedConv as RootedConv
from freshet.gnn.convs.sums import SAGEConv as SAGEConv
from freshet.gnn.rows.dense import AnyDense
from freshet.gnn.rows.dense import DenseLayer as DenseLayer
from freshet.gnn.rows.dense import Elu as Elu
from freshet.gnn.rows.dense import Gelu as Gelu
from freshet.gnn.rows.dense import Identity as Identity
from freshet.gnn.rows.dense import LeakyRelu as LeakyRelu
from freshet.gnn.rows.dense import Linear as Linear
from freshet.gnn.rows.dense import PRelu as PRelu
from freshet.gnn.rows.dense import Relu as Relu
from freshet.gnn.rows.dense import Selu as Selu
from freshet.gnn.rows.dense import Sigmoid as Sigmoid
from freshet.gnn.rows.dense import Silu as Silu
from freshet.gnn.rows.dense import Tanh as Tanh
from freshet.gnn.rows.jumps import Join, Keep
from freshet.gnn.rows.layer import Layer as Layer
from freshet.gnn.rows.layer import Shape as Shape
from freshet.gnn.rows.norms import BatchNorm as BatchNorm

AnyHop = Propagation | Laplacian
AnySum = GraphConv | SAGEConv | GCNConv | AnyHop | GINConv | ResGatedGraphConv | CommNetConv | PinSAGEConv
AnyNetwork = PNAConv | EdgeConv | FiLMConv | GINEConv | NNConv | GMMConv | CGConv | GENConv | MessageConv | OwnLayer
AnyAttention = GATConv | GATv2Conv | SuperGATConv | TransformerConv | AGNNConv
AnyConv = AnySum | AnyNetwork | AnyAttention
AnyJump = Keep | Join
AnyLayer = Annotated[AnyConv | AnyDense | AnyJump, Field(discriminator="type")]


def _types_of(layers: object) -> tuple[str, ...]:
    return tuple(layer.model_fields["type"].default for layer in get_args(layers))


CONV_TYPES, DENSE_TYPES, JUMP_TYPES = _types_of(AnyConv), _types_of(AnyDense), _types_of(AnyJump)
