"""Modules of PyTorch Geometric with kinds of vertices and relations, as people write them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric import nn as pyg

CITES, WRITES, WRITTEN = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "rev_writes", "author")
METADATA = (["paper", "author"], [CITES, WRITES, WRITTEN])
WIDTHS = {"paper": 5, "author": 3}
sys.modules["hetero_modules"] = sys.modules[__name__]  # PyG's Sequential imports who makes it by the name of the file


def mag(aggr: str = "sum") -> Any:
    """PyG's example to_hetero_mag.py."""
    layers = [
        (pyg.SAGEConv((-1, -1), 8), "x, edge_index -> x"),
        nn.ReLU(inplace=True),
        (pyg.SAGEConv((-1, -1), 8), "x, edge_index -> x"),
        nn.ReLU(inplace=True),
        (pyg.Linear(-1, 4), "x -> x"),
    ]
    forward = pyg.Sequential.forward  # which PyG replaces for all, whatever theirs do
    try:
        return pyg.to_hetero(pyg.Sequential("x, edge_index", layers), METADATA, aggr)
    finally:
        pyg.Sequential.forward = forward


class GatWithSkips(nn.Module):
    """The GAT of PyG's tutorial of heterogeneous graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.lin1 = pyg.GATConv((-1, -1), 4, heads=2, add_self_loops=False), pyg.Linear(-1, 8)
        self.conv2, self.lin2 = pyg.GATConv((-1, -1), 6, add_self_loops=False), pyg.Linear(-1, 6)
        self.dropout = nn.Dropout()

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = self.conv1(x, edge_index) + self.lin1(x)
        return self.conv2(self.dropout(x.relu()), edge_index) + self.lin2(x.relu())


class WeightedAndAttributed(nn.Module):
    """Weights of edges in one conv, attributes in another."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GATv2Conv((-1, -1), 4, edge_dim=3, add_self_loops=False)
        self.conv2 = pyg.GraphConv((-1, -1), 4, aggr="mean")

    def forward(self, x: Any, edge_index: Any, edge_attr: Any, edge_weight: Any) -> Any:
        x = self.conv1(x, edge_index, edge_attr).relu()
        return self.conv2(x, edge_index, edge_weight)


class Layers(nn.Module):
    """HeteroConvs with activations between, and a linear layer on one kind."""

    def __init__(self, convs: list[Any], head: Any = None) -> None:
        super().__init__()
        self.convs, self.head = nn.ModuleList(convs), head

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
            x_dict = {kind: F.leaky_relu(x) for kind, x in x_dict.items()}
        return x_dict if self.head is None else self.head(x_dict["author"])


class RelBenchSAGE(nn.Module):
    """RelBench's HeteroGraphSAGE: norms by kind."""

    def __init__(self, channels: int = 5, layers: int = 2) -> None:
        super().__init__()
        kinds, relations = METADATA
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for _ in range(layers):
            convs = {one: pyg.SAGEConv((channels, channels), channels, aggr="mean") for one in relations}
            self.convs.append(pyg.HeteroConv(convs, aggr="sum"))
            self.norms.append(nn.ModuleDict({kind: pyg.LayerNorm(channels, mode="node") for kind in kinds}))

    def forward(
        self,
        x_dict: Any,
        edge_index_dict: Any,
        num_sampled_nodes_dict: Any = None,
        num_sampled_edges_dict: Any = None,
    ) -> Any:
        for conv, norms in zip(self.convs, self.norms, strict=True):
            x_dict = conv(x_dict, edge_index_dict)
            x_dict = {key: norms[key](x) for key, x in x_dict.items()}
            x_dict = {key: x.relu() for key, x in x_dict.items()}
        return x_dict


class Encoded(nn.Module):
    """Linear layers and BatchNorm by kind, in place, then convs; rows of every layer side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.encode_dict = pyg.HeteroDictLinear(WIDTHS, 6)
        self.norms = nn.ModuleDict({kind: pyg.BatchNorm(6) for kind in WIDTHS})
        relations = {CITES: pyg.GraphConv(6, 6), WRITES: pyg.SAGEConv((6, 6), 6), WRITTEN: pyg.SAGEConv((6, 6), 6)}
        self.convs = nn.ModuleList([pyg.HeteroConv(relations), pyg.HeteroConv(relations, aggr="mean")])
        self.jump = pyg.HeteroJumpingKnowledge(list(WIDTHS), "cat")
        for norm in self.norms.values():
            norm.module.running_mean.normal_()
            norm.module.running_var.uniform_(0.5, 2)

    def embed(self, x_dict: Any, edge_index_dict: Any) -> Any:
        x_dict = {kind: self.norms[kind](x).relu_() for kind, x in self.encode_dict(x_dict).items()}
        every = {kind: [x] for kind, x in x_dict.items()}
        for conv in self.convs:
            x_dict = {kind: x.tanh() for kind, x in conv(x_dict, edge_index_dict).items()}
            for kind, x in x_dict.items():
                every[kind].append(x)
        return self.jump(every), x_dict["paper"]


class OneAfterTheOther(nn.Module):
    """PyG's example bipartite_sage.py: users read what items have become; and items that no relation reaches stay."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.SAGEConv(-1, 4), pyg.SAGEConv((-1, -1), 4)
        self.conv3, self.conv4 = pyg.SAGEConv((-1, -1), 4), pyg.GraphConv((5, 4), 3)
        self.lin = nn.Linear(3, 2)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        paper = self.conv1(x_dict["paper"], edge_index_dict[CITES]).relu()
        author = self.conv2((x_dict["paper"], x_dict["author"]), edge_index_dict[WRITTEN]).relu()
        author = self.conv3((paper, author), edge_index_dict[WRITTEN]).relu()
        return self.lin(self.conv4((x_dict["paper"], author), edge_index_dict[WRITTEN]))


class Hgt(nn.Module):
    """PyG's example hgt_dblp.py."""

    def __init__(self, channels: int, heads: int, layers: int) -> None:
        super().__init__()
        self.lin_dict = nn.ModuleDict({kind: pyg.Linear(-1, channels) for kind in WIDTHS})
        self.convs = nn.ModuleList([pyg.HGTConv(channels, 6, METADATA, heads) for _ in range(layers)])
        self.lin = nn.Linear(6, 2)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        x_dict = {kind: self.lin_dict[kind](x).relu_() for kind, x in x_dict.items()}
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
        return self.lin(x_dict["author"])


class Typed(nn.Module):
    """Two convs that read the type of each edge."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        x = F.dropout(self.first(x, edge_index, edge_type).relu(), training=self.training)
        return self.second(x, edge_index, edge_type)


class TypedAttributes(Typed):
    """The same with attributes of edges, in the first conv alone."""

    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_attr: Any) -> Any:  # type: ignore[override]
        return self.second(self.first(x, edge_index, edge_type, edge_attr).relu(), edge_index, edge_type)


class EncodedEdges(nn.Module):
    """Attributes of edges that encoders make, one for each relation or for all, in front of two HeteroConvs."""

    def __init__(self, conv: Callable[[], Any], encoder: Callable[[], Any], *, shared: bool = False) -> None:
        super().__init__()
        names = ["__".join(one) for one in METADATA[1]]
        one = encoder()
        self.encoders = nn.ModuleDict({name: one if shared else encoder() for name in names})
        self.lins = pyg.HeteroDictLinear(WIDTHS, 4)
        self.convs = nn.ModuleList(pyg.HeteroConv({one: conv() for one in METADATA[1]}) for _ in range(2))

    def encoded(self, edge_attr_dict: Any) -> Any:
        return {one: self.encoders["__".join(one)](attr) for one, attr in edge_attr_dict.items()}

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:
        edge_attr_dict, x_dict = self.encoded(edge_attr_dict), self.lins(x_dict)
        for conv in self.convs:
            x_dict = {kind: x.relu() for kind, x in conv(x_dict, edge_index_dict, edge_attr_dict).items()}
        return x_dict["paper"]


class EncodedWeights(EncodedEdges):
    """A weight of each edge, of its attributes."""

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:
        weights = {one: made.sigmoid().squeeze(-1) for one, made in self.encoded(edge_attr_dict).items()}
        x_dict = self.convs[0](self.lins(x_dict), edge_index_dict, edge_weight_dict=weights)
        return x_dict["paper"]


IDS = 9


class LinkEncoder(nn.Module):
    """The encoder of PyG's tutorial of link prediction: rows by id, added to features or without."""

    def __init__(self) -> None:
        super().__init__()
        self.paper_lin = nn.Linear(WIDTHS["paper"], 6)
        self.author_emb, self.paper_emb = nn.Embedding(IDS, 6), nn.Embedding(IDS, 6)
        self.gnn = pyg.to_hetero(pyg.GraphSAGE(6, 6, 2), METADATA)

    def forward(self, data: Any) -> Any:
        return self.gnn(self.encode(data["paper"].x, data.node_id_dict), data.edge_index_dict)

    def encode(self, x: Any, ids: Any) -> Any:
        return {"author": self.author_emb(ids["author"]), "paper": self.paper_lin(x) + self.paper_emb(ids["paper"])}


class WithIds(LinkEncoder):
    """The same with ids as an argument of their own, by RelBench's name of them."""

    def forward(self, x_dict: Any, edge_index_dict: Any, n_id: Any) -> Any:  # type: ignore[override]
        return self.gnn(self.encode(x_dict["paper"], n_id), edge_index_dict)


class IdsAsFeatures(nn.Module):
    """The encoder of PyG's example bipartite_sage.py: a kind without features has its ids as x."""

    def __init__(self) -> None:
        super().__init__()
        self.author_emb, self.gnn = nn.Embedding(IDS, 5), to_relations(5)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        x_dict = dict(x_dict)
        x_dict["author"] = self.author_emb(x_dict["author"])
        return self.gnn(x_dict, edge_index_dict)["author"]


class AllRows(nn.Module):
    """Rows of all vertices as they are in PyG's examples of RGCN and of HeteroConv without features."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.ModuleDict({kind: nn.Embedding(IDS, 5) for kind in WIDTHS})
        self.gnn = to_relations(5)

    def forward(self, edge_index_dict: Any) -> Any:
        return self.gnn({kind: emb.weight for kind, emb in self.emb.items()}, edge_index_dict)


class TypedByIds(nn.Module):
    """The encoder of PyG's example rgcn_link_pred.py."""

    def __init__(self) -> None:
        super().__init__()
        self.node_emb = nn.Parameter(torch.empty(IDS, 4))
        self.conv1, self.conv2 = pyg.RGCNConv(4, 4, 2, num_blocks=2), pyg.RGCNConv(4, 4, 2, num_blocks=2)

    def forward(self, edge_index: Any, edge_type: Any) -> Any:
        x = self.conv1(self.node_emb, edge_index, edge_type).relu_()
        return self.conv2(x, edge_index, edge_type)


class Numbered(Typed):
    """PyG's example rgcn.py: the weights of the first conv have a row for each vertex; `x`: what it is called with."""

    def __init__(self, first: Any, second: Any, x: Any = None) -> None:
        super().__init__(first, second)
        self.register_buffer("x", x)

    def forward(self, edge_index: Any, edge_type: Any) -> Any:  # type: ignore[override]
        return F.log_softmax(self.embed(self.x, edge_index, edge_type), dim=1)

    def embed(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        x = F.relu(self.first(x, edge_index, edge_type))
        return x if self.second is None else self.second(F.dropout(x, training=self.training), edge_index, edge_type)


class WithoutKinds(nn.Module):
    """Rows by id of vertices without kinds, alone or added to features."""

    def __init__(self, conv: Callable[[int, int], Any]) -> None:
        super().__init__()
        self.emb, self.lin = nn.Embedding(IDS, 4), nn.Linear(3, 4)
        self.first, self.second = conv(4, 4), conv(4, 3)

    def forward(self, n_id: Any, edge_index: Any) -> Any:
        return self.second(self.first(self.emb(n_id), edge_index).relu(), edge_index)

    def with_features(self, x: Any, edge_index: Any, n_id: Any) -> Any:
        return self.second(self.first(self.lin(x) + self.emb(n_id), edge_index).relu(), edge_index)

    def beside_features(self, x: Any, edge_index: Any, n_id: Any) -> Any:
        return self.first(torch.cat([x, self.emb(n_id)], dim=-1), edge_index)


def to_relations(width: int) -> Any:
    """A HeteroConv of SAGEConvs that reads rows of one width."""
    return pyg.HeteroConv({relation: pyg.SAGEConv((width, width), 4) for relation in METADATA[1]})


def hetero(conv: Callable[[tuple[str, str, str]], Any], aggr: str = "sum") -> Any:
    """A HeteroConv with a conv for each relation."""
    return pyg.HeteroConv({relation: conv(relation) for relation in METADATA[1]}, aggr=aggr)


def sage(relation: tuple[str, str, str]) -> Any:
    """A SAGEConv that the first rows size."""
    return pyg.SAGEConv((-1, -1), 4)


def different(width: int | None = None, aggr: str = "sum") -> Any:
    """A HeteroConv of different convs."""
    of = {CITES: pyg.GATv2Conv, WRITES: pyg.SAGEConv, WRITTEN: pyg.TransformerConv}
    gat = {"add_self_loops": False, "share_weights": True}
    options: dict[Any, dict[str, Any]] = {CITES: gat, WRITES: {"project": True}, WRITTEN: {"beta": True}}
    first = {CITES: (5, 5), WRITES: (3, 5), WRITTEN: (5, 3)}
    sizes = first if width is None else dict.fromkeys(first, (width, width))
    return hetero(lambda relation: of[relation](sizes[relation], 6, **options[relation]), aggr)


def mlp(into: int, out: int) -> Any:
    return nn.Sequential(nn.Linear(into, 7), nn.ELU(), nn.Linear(7, out))


def randomised(module: Any) -> Any:
    """The module in eval mode, its parameters drawn anew, biases included."""
    with torch.no_grad():
        for one in module.parameters():
            if not torch.nn.parameter.is_lazy(one):
                one.copy_(torch.randn_like(one) / 2)
    return module.eval()
