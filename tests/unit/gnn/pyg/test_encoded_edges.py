"""A forward makes of weights and attributes of edges what its convs read.

`export_model` compares each model with the module itself in float64, on graphs of several sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from scripts.tools.pyg_examples import EDGE_WIDTH, WIDTH  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402

IN, EDGE, WIDE = WIDTH, EDGE_WIDTH, 5
Function = Callable[[Any, Any, Any, Any], Any]


class Encoding(nn.Module):
    """Whatever a function makes of attributes."""

    def __init__(self, function: Function, **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.function(self, x, edge_index, edge_attr)


class Weighing(nn.Module):
    """A conv whose weights are functions of the stream's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv(IN, 4)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.conv(x, edge_index, torch.exp(-edge_weight))


def mlp(out: int) -> Any:
    return nn.Sequential(nn.Linear(EDGE, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, out))


def deep() -> Any:
    conv = pyg.GENConv(IN, IN, aggr="softmax", learn_t=True, num_layers=2, norm="layer")
    return pyg.DeepGCNLayer(conv, nn.LayerNorm(IN), nn.ReLU(), block="res+", dropout=0.1)


def shared(s: Any, x: Any, e: Any, a: Any) -> Any:
    a = s.encoder(a)
    return s.second(s.first(x, e, a).relu(), e, a)


TAKEN: dict[str, tuple[Function, dict[str, Callable[[], Any]]]] = {
    "shared by two convs": (
        shared,
        {
            "encoder": lambda: mlp(IN),
            "first": lambda: pyg.GINEConv(nn.Linear(IN, IN)),
            "second": lambda: pyg.GINEConv(nn.Linear(IN, 4)),
        },
    ),
    "deep layers": (shared, {"encoder": lambda: nn.Linear(EDGE, IN), "first": deep, "second": deep}),
    "a weight": (
        lambda s, x, e, a: s.conv(x, e, torch.sigmoid(s.score(a)).view(-1)),
        {"score": lambda: nn.Linear(EDGE, 1), "conv": lambda: pyg.GraphConv(IN, 4)},
    ),
    "attention": (
        lambda s, x, e, a: s.conv(x, e, edge_attr=F.relu(s.encoder(a))),
        {"encoder": lambda: nn.Linear(EDGE, WIDE), "conv": lambda: pyg.TransformerConv(IN, 4, edge_dim=WIDE, heads=2)},
    ),
    "self-loops with the mean of what is made": (
        shared,
        {
            "encoder": lambda: mlp(WIDE),
            "first": lambda: pyg.GATConv(IN, 4, heads=2, edge_dim=WIDE),
            "second": lambda: pyg.GATv2Conv(8, 3, heads=2, concat=False, edge_dim=WIDE),
        },
    ),
    "self-loops with the largest": (
        lambda s, x, e, a: s.conv(x, e, F.relu(s.encoder(a))),
        {
            "encoder": lambda: nn.Linear(EDGE, WIDE),
            "conv": lambda: pyg.GATConv(IN, 4, edge_dim=WIDE, fill_value="max", residual=True),
        },
    ),
    "self-loops with a number": (
        lambda s, x, e, a: s.conv(x, e, torch.tanh(a)),
        {"conv": lambda: pyg.GATv2Conv(IN, 4, edge_dim=EDGE, fill_value=0.5, share_weights=True)},
    ),
    "side by side": (
        lambda s, x, e, a: s.conv(x, e, torch.cat([a, a * a], -1)),
        {"conv": lambda: pyg.GINEConv(nn.Linear(IN, 4), edge_dim=2 * EDGE)},
    ),
    "one conv as they came": (
        lambda s, x, e, a: s.second(s.first(x, e, a).relu(), e, s.encoder(a)),
        {
            "encoder": lambda: nn.Linear(EDGE, 2),
            "first": lambda: pyg.GINEConv(nn.Linear(IN, IN), edge_dim=EDGE),
            "second": lambda: pyg.NNConv(IN, 3, nn.Linear(2, IN * 3)),
        },
    ),
}


@pytest.mark.parametrize("what", TAKEN)
def test_is_the_module(what: str, tmp_path: Path) -> None:
    function, parts = TAKEN[what]
    torch.manual_seed(3)
    model = export_model(Encoding(function, **{name: make() for name, make in parts.items()}), tmp_path / "M")
    assert model.features.edge_width == EDGE


@pytest.mark.parametrize("what", [one for one in TAKEN if one.startswith("self-loops")])
def test_a_stream_with_deletions_gives_what_the_module_gives(what: str, tmp_path: Path) -> None:
    function, parts = TAKEN[what]
    torch.manual_seed(4)
    module = Encoding(function, **{name: make() for name, make in parts.items()}).eval()
    assert_streams(module, export_model(module, tmp_path / "M"), "module(x, edge_index, edge_attr)")


def test_functions_of_weights(tmp_path: Path) -> None:
    assert export_model(Weighing(), tmp_path / "M").features.edge_width == 0


class FirstColumn(pyg.MessagePassing):  # type: ignore[misc,name-defined]
    """Messages that read one attribute, whatever there is beside it."""

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.propagate(edge_index, x=x[0] if isinstance(x, tuple) else x, edge_attr=edge_attr)

    def message(self, x_j: Any, edge_attr: Any) -> Any:
        return x_j * edge_attr[:, :1].sigmoid()


def first_of(s: Any, x: Any, e: Any, a: Any) -> Any:
    return s.conv(x, e, s.encoder(a))


def test_attributes_are_as_wide_as_what_reads_them_first(tmp_path: Path) -> None:
    encoded = Encoding(first_of, encoder=nn.Linear(EDGE, WIDE), conv=FirstColumn())
    assert export_model(encoded, tmp_path / "M", features=IN).features.edge_width == EDGE


@pytest.mark.parametrize("function", [first_of, lambda s, x, e, a: s.conv(x, e, a)], ids=["encoded", "as they came"])
def test_attributes_of_any_width_have_that_which_is_given(function: Function, tmp_path: Path) -> None:
    module = Encoding(function, encoder=nn.ReLU(), conv=FirstColumn())
    with pytest.raises(ExportError, match=r"attributes of edges that it reads may be 1 or 2 wide.*edge_features=N"):
        export_model(module, tmp_path / "M", features=IN)
    assert export_model(module, tmp_path / "M", features=IN, edge_features=EDGE).features.edge_width == EDGE
    on_relation = pyg.HeteroConv({("a", "to", "a"): FirstColumn()})
    kinds: Any = {"metadata": (["a"], [("a", "to", "a")]), "features": {"a": IN}, "edge_features": EDGE}
    model: Any = export_model(on_relation, tmp_path / "K", **kinds)
    assert [one.edge_features for one in model.relations] == [EDGE]


def test_attributes_are_read_beside_weights_that_a_forward_requires(tmp_path: Path) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score, self.conv, self.last = mlp(1), pyg.GraphConv(IN, 4), pyg.GCNConv(4, 3)

        def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_attr: Any) -> Any:
            made = self.score(edge_attr).squeeze(-1).sigmoid()
            return self.last(self.conv(x, edge_index, edge_weight * made), edge_index, edge_weight)

    module = Both().eval()
    model = export_model(module, tmp_path / "M")
    assert model.edge_features == EDGE
    assert_streams(module, model, "module(x, edge_index, edge_weight, edge_attr)")


REFUSED: dict[str, tuple[Function, dict[str, Callable[[], Any]], str]] = {
    "a mean with self-loops of another weight": (
        lambda s, x, e, a: s.conv(x, e, torch.sigmoid(s.score(a)).view(-1)),
        {"score": lambda: nn.Linear(EDGE, 1), "conv": lambda: pyg.GCNConv(IN, 4, aggr="mean")},
        "Besides, conv: GCNConv is not supported: .* self-loops that gcn_norm adds are aggregated by 'mean'",
    ),
    "roots of negative degrees": (
        lambda s, x, e, a: s.conv(x, e, s.score(a).view(-1)),
        {"score": lambda: nn.Linear(EDGE, 1), "conv": lambda: pyg.GCNConv(IN, 4)},
        "the module itself gives NaN or infinity",
    ),
    "a mean of all edges": (
        lambda s, x, e, a: s.conv(x, e, a - a.mean(0)),
        {"conv": lambda: pyg.GINEConv(nn.Linear(IN, 4), edge_dim=EDGE)},
        "mean reads more than one vertex or edge",
    ),
    "a norm of all edges": (
        lambda s, x, e, a: s.conv(x, e, s.norm(a)),
        {
            "norm": lambda: pyg.GraphNorm(EDGE),
            "conv": lambda: pyg.GINEConv(nn.Linear(IN, 4), edge_dim=EDGE),
        },
        "GraphNorm|brings|reads",
    ),
    "rows of vertices": (
        lambda s, x, e, a: s.conv(x, e, a * x.mean()),
        {"conv": lambda: pyg.GINEConv(nn.Linear(IN, 4), edge_dim=EDGE)},
        "something other than rows|mean",
    ),
    "ends of edges": (
        lambda s, x, e, a: s.conv(x, e, a * (e[0] > 3).float().unsqueeze(-1)),
        {"conv": lambda: pyg.GINEConv(nn.Linear(IN, 4), edge_dim=EDGE)},
        "something other than rows",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    function, parts, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(Encoding(function, **{name: make() for name, make in parts.items()}), tmp_path / "M")
