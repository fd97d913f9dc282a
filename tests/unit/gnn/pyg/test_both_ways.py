"""A module without kinds that reads its edges the other way round, too, is one of a relation and its mirror.

`export_model` compares each model with the module itself, which gets the edges one way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.utils import degree, scatter, softmax  # noqa: E402

from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.support.graphs.kinds_by_hand import gates  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402

IN, OUT = 4, 3
Function = Callable[[Any, Any, Any, Any], Any]


class BothWays(nn.Module):
    """Whatever a function makes of two convs, one of weights."""

    def __init__(self, function: Function, **parts: Any) -> None:
        super().__init__()
        self.function = function
        self.there, self.back = pyg.GraphConv(IN, OUT), pyg.GraphConv(IN, OUT)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.function(self, x, edge_index, edge_weight)


def by_hand(s: Any, x: Any, e: Any, w: Any) -> Any:
    source, target = e
    return s.there(x, e, w) + s.back(x, torch.stack([target, source]), w)


TAKEN: dict[str, Function] = {
    "flip": lambda s, x, e, w: s.there(x, e) + s.back(x, e.flip(0)),
    "its function": lambda s, x, e, w: torch.cat([s.there(x, e), s.back(x, torch.flip(e, [0])).relu()], -1),
    "weights": lambda s, x, e, w: s.there(x, e, w) + s.back(x, e.flip([0]), w),
    "by hand": by_hand,
    "by places": lambda s, x, e, w: s.back(x, e[[1, 0]]),
    "twice turned": lambda s, x, e, w: s.back(x, e.flip(0)) + s.there(x, e.flip(0).flip(0)),
    "recorded between": lambda s, x, e, w: s.there(x, e).view(-1, 3, 1).sum(-1) * s.back(x, e.flip(0)),
}


@pytest.mark.parametrize("what", TAKEN)
def test_turned_edges(what: str, tmp_path: Path) -> None:
    model = export_model(BothWays(TAKEN[what]), tmp_path / "M")
    assert isinstance(model, KindsModel)
    assert [(one.type, one.mirrors) for one in model.relations] == [("edge", None), ("rev_edge", 0)]


def brought(rows: Any, to: Any, x: Any, reduce: str = "sum") -> Any:
    return scatter(rows, to, dim=0, dim_size=x.size(0), reduce=reduce)


def attention(s: Any, x: Any, e: Any, w: Any) -> Any:
    scores = softmax((s.key(x)[e[0]] * s.query(x)[e[1]]).sum(-1), e[0], num_nodes=x.size(0))
    return brought(x[e[1]] * scores.view(-1, 1), e[0], x)


def turned_before(s: Any, x: Any, e: Any, w: Any) -> Any:
    e = e.flip(0)
    return brought(x[e[0]] * w.view(-1, 1), e[1], x)


class OfData(BothWays):
    """The same of one Data."""

    def forward(self, data: Any) -> Any:  # type: ignore[override]
        return self.function(self, data.x, data.edge_index, data.edge_weight)


@pytest.mark.parametrize("what", ["flip", "weights"])
def test_edges_of_a_data(what: str, tmp_path: Path) -> None:
    model = export_model(OfData(TAKEN[what]), tmp_path / "M")
    assert isinstance(model, KindsModel)
    assert [(one.type, one.mirrors) for one in model.relations] == [("edge", None), ("rev_edge", 0)]


BY_HAND: dict[str, Function] = {
    "sums at sources": lambda s, x, e, w: s.there(x, e) + s.key(brought(x[e[1]], e[0], x)),
    "gates": gates,
    "attention": attention,
    "both ways": lambda s, x, e, w: brought(x[e[1]], e[0], x, "max") + brought(x[e[0]], e[1], x, "mean"),
    "out-degrees beside rows": lambda s, x, e, w: torch.cat([x, degree(e[0], x.size(0)).view(-1, 1)], -1).tanh(),
    "degrees of both ends beside rows": lambda s, x, e, w: torch.cat(
        [x, torch.log1p(degree(e[0], x.size(0))).view(-1, 1), degree(e[1], x.size(0)).view(-1, 1)], -1
    ),
    "its own row": lambda s, x, e, w: brought(x[e[0]] * w.view(-1, 1), e[0], x),
    "turned before": turned_before,
}


@pytest.mark.parametrize("what", BY_HAND)
def test_rows_that_come_together_at_sources(what: str, tmp_path: Path) -> None:
    parts = {"key": nn.Linear(IN, OUT), "query": nn.Linear(IN, OUT)}
    model = export_model(BothWays(BY_HAND[what], **parts), tmp_path / "M", features=IN)
    assert isinstance(model, KindsModel)
    assert [(one.type, one.mirrors) for one in model.relations] == [("edge", None), ("rev_edge", 0)]


@pytest.mark.parametrize(
    "conv", [lambda: pyg.SAGEConv(IN, IN), lambda: pyg.GCNConv(IN, IN), lambda: pyg.GATConv(IN, IN)]
)
def test_dir_gnn_conv(conv: Callable[[], Any], tmp_path: Path) -> None:
    first, second = pyg.DirGNNConv(conv(), 0.3), pyg.DirGNNConv(conv(), root_weight=False)
    module = BothWays(lambda s, x, e, w: s.second(s.first(x, e).relu(), e), first=first, second=second)
    model = export_model(module, tmp_path / "M", edge_types=["pays"])
    assert [one.type for one in model.relations] == ["pays", "rev_pays"]


def test_convs_against_the_edges(tmp_path: Path) -> None:
    torch.manual_seed(2)
    parts = {
        "mean": pyg.SAGEConv(IN, OUT, flow="target_to_source", root_weight=False),
        "norm": pyg.GCNConv(OUT, OUT, flow="target_to_source"),
        "attention": pyg.GATConv(OUT, OUT, flow="target_to_source"),
        "stacks": pyg.ARMAConv(OUT, OUT, num_stacks=2, flow="target_to_source"),
    }

    def function(s: Any, x: Any, e: Any, w: Any) -> Any:
        x = s.mean(x, e) + s.there(x, e)
        return s.norm(x, e, w).relu() - s.attention(x, edge_index=e) + s.norm(x, e.flip(0)) + s.stacks(x, e, w)

    model = export_model(BothWays(function, **parts), tmp_path / "M")
    assert [(one.type, one.mirrors) for one in model.relations] == [("edge", None), ("rev_edge", 0)]


READ: dict[str, Callable[[], Any]] = {
    "gated": lambda: pyg.GatedGraphConv(IN, 2, flow="target_to_source"),
    "steered": lambda: pyg.FeaStConv(IN, OUT, flow="target_to_source"),
    "general": lambda: pyg.GeneralConv(IN, OUT, attention=True, flow="target_to_source"),
    "softmax": lambda: pyg.GCNConv(IN, OUT, aggr="softmax", flow="target_to_source"),
}


@pytest.mark.parametrize("name", [*READ, "signed attention"])
def test_convs_that_are_read_against_the_edges(name: str, tmp_path: Path) -> None:
    if name in READ:
        module = BothWays(lambda s, x, e, w: s.conv(x, e), conv=READ[name]())
    else:
        module = BothWays(lambda s, x, e, w: s.conv(x, x, e), conv=pyg.FAConv(IN, flow="target_to_source"))
    model = export_model(module.eval(), tmp_path / "M", features=IN)
    assert [(one.type, one.mirrors) for one in model.relations] == [("edge", None), ("rev_edge", 0)]
    assert_streams(module, model, "module(x, edge_index)")


class Own(pyg.SimpleConv):
    """A conv of one's own, which may read either row of its edges."""


def test_a_conv_of_ones_own_against_them(tmp_path: Path) -> None:
    module = BothWays(lambda s, x, e, w: s.there(x, e) + s.own(x, e)[:, :3], own=Own(flow="target_to_source"))
    model = export_model(module, tmp_path / "M", features=IN)
    assert [(one.type, one.mirrors) for one in model.relations] == [("edge", None), ("rev_edge", 0)]


REFUSED: dict[str, tuple[Function, str]] = {
    "as one list": (lambda s, x, e, w: s.there(x, torch.cat([e, e.flip(0)], 1)), "changes edges or their weights"),
    "edges in another order": (lambda s, x, e, w: s.there(x, e.flip(1), w), "something other than rows"),
    "some edges": (lambda s, x, e, w: s.there(x, e[:, [0, 1]]), "something other than rows|fails"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    function, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(BothWays(function), tmp_path / "M")
