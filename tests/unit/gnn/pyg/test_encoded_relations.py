"""A forward with kinds makes of attributes of edges what its convs read.

`export_model` compares each model with the module itself in float64, on graphs of several sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.data import HeteroData  # noqa: E402

from freshet.gnn.kinds.declarations import HeteroConv  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs.hetero_modules import CITES, METADATA, WIDTHS, WRITES  # noqa: E402

EDGE, WIDE = 2, 4


def mlp(out: int) -> Any:
    return nn.Sequential(nn.Linear(EDGE, 6), nn.ReLU(), nn.Linear(6, out))


def gine() -> Any:
    return pyg.GINEConv(nn.Linear(WIDE, WIDE))


class Shared(nn.Module):
    """One encoder for two convs of a module that to_hetero takes."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.first, self.second = nn.Linear(EDGE, WIDE), gine(), gine()

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        edge_attr = self.encoder(edge_attr).relu()
        return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


class Lazy(of.EncodedEdges):
    """Layers whose sizes are not known yet, behind encoders that say how wide attributes are."""

    def __init__(self) -> None:
        super().__init__(lambda: pyg.TransformerConv((-1, -1), 4, edge_dim=3), lambda: mlp(3))
        self.convs = self.convs[:1]


class OfOne(nn.Module):
    """A function of x, edges and attributes, with two encoders."""

    def __init__(self, function: Callable[..., Any], conv: Any = None) -> None:
        super().__init__()
        self.function, self.encoder, self.other = function, mlp(WIDE), mlp(WIDE)
        self.conv = conv or pyg.GATConv((3, 5), 4, edge_dim=WIDE, add_self_loops=False)

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:
        return self.function(self, (x_dict["author"], x_dict["paper"]), edge_index_dict, edge_attr_dict)


class OfData(OfOne):
    """The same of one HeteroData."""

    def forward(self, data: HeteroData) -> Any:
        return super().forward(data.x_dict, data.edge_index_dict, data.edge_attr_dict)


class OfAll(nn.Module):
    """Hands on what it is given."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:
        return self.conv(x_dict, edge_index_dict, edge_attr_dict)["paper"]


def called(s: Any, x: Any, e: Any, a: Any) -> Any:
    return s.conv(x, e[WRITES], edge_attr=s.encoder(a[WRITES]))


TAKEN: dict[str, Callable[[], Any]] = {
    "one encoder for all relations": lambda: of.EncodedEdges(gine, lambda: mlp(WIDE), shared=True),
    "layers that are sized here": Lazy,
    "to_hetero": lambda: pyg.to_hetero(Shared(), METADATA),
    "a conv that is called": lambda: OfOne(called),
    "of one HeteroData": lambda: OfData(called),
    "a layer within one kind": lambda: OfOne(
        lambda s, x, e, a: s.conv(x[1], e[CITES], s.encoder(a[CITES])),
        pyg.DeepGCNLayer(pyg.GENConv(5, 5, edge_dim=WIDE), nn.LayerNorm(5), nn.ReLU()),
    ),
    "loops with the mean of what is made": lambda: OfOne(
        lambda s, x, e, a: s.conv(x[1], e[CITES], s.encoder(a[CITES])), pyg.GATConv(5, 4, edge_dim=WIDE)
    ),
}


@pytest.mark.parametrize("what", TAKEN)
def test_is_the_module(what: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    features = WIDTHS if what != "to_hetero" else dict.fromkeys(WIDTHS, WIDE)
    model: Any = export_model(TAKEN[what]().eval(), tmp_path / "M", metadata=METADATA, features=features)
    convs = [one.conv.type for layer in model.layers if isinstance(layer, HeteroConv) for one in layer.convs]
    assert set(convs) == {"message_conv"}
    assert {one.edge_features for one in model.relations} <= {0, EDGE}


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "attributes of another relation": (
        lambda: OfOne(lambda s, x, e, a: s.conv(x, e[WRITES], s.encoder(a[CITES]))),
        r"conv .* gets edges of .*cites.* and .*writes.* at once",
    ),
    "attributes of two relations": (
        lambda: OfOne(lambda s, x, e, a: s.conv(x, e[WRITES], s.encoder(a[WRITES]) + s.other(a[CITES]))),
        "gets edges of .* at once",
    ),
    "a size": (
        lambda: OfOne(lambda s, x, e, a: s.conv(x, e[WRITES], s.encoder(a[WRITES])), pyg.SAGEConv((3, 5), 4)),
        "encoder.0 .* reads something other",
    ),
    "attributes that are weights of all relations": (
        lambda: OfAll(pyg.HeteroConv({WRITES: pyg.GraphConv((3, 5), 4), CITES: pyg.GraphConv((5, 5), 4)})),
        "GraphConv is given attributes of edges, and reads none",
    ),
    "attributes that are weights": (
        lambda: OfOne(lambda s, x, e, a: s.conv(x, e[WRITES], a[WRITES]), pyg.GraphConv((3, 5), 4)),
        "GraphConv is given attributes of edges, and reads none",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(make().eval(), tmp_path / "M", metadata=METADATA, features=WIDTHS)


class TypedEncoder(of.TypedAttributes):
    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_attr: Any) -> Any:
        return super().forward(x, edge_index, edge_type, edge_attr.relu())


def test_a_conv_of_types_says_what_to_do(tmp_path: Path) -> None:
    module = TypedEncoder(pyg.RGATConv(3, 4, 2, edge_dim=EDGE), pyg.RGATConv(4, 3, 2))
    with pytest.raises(ExportError, match=r"RGATConv gets a function of attributes.*HeteroConv of GATConv"):
        export_model(module, tmp_path / "M")


class BothWays(nn.Module):
    """Without kinds: edges as they came, and the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.along, self.against = mlp(WIDE), gine(), gine()

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        made = self.encoder(edge_attr)
        return self.along(x, edge_index, made) + self.against(x, edge_index.flip(0), made)


def test_edges_the_other_way_round(tmp_path: Path) -> None:
    model: Any = export_model(BothWays(), tmp_path / "M")
    assert [one.mirrors for one in model.relations] == [None, 0]
