"""A forward of several sets of edges is one of as many relations within one kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402

IN, OUT = 5, 4


class Sets(nn.Module):
    """Convs on positive and negative edges."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.trust, self.doubt = pyg.SAGEConv(IN, OUT), pyg.GCNConv(IN, OUT)
        self.cell = nn.GRUCell(OUT, OUT)
        self.first, self.second = pyg.SignedConv(IN, 3, True), pyg.SignedConv(3, 2, False)

    def forward(self, x: Any, pos_edge_index: Any, neg_edge_index: Any) -> Any:
        return self.function(self, x, pos_edge_index, neg_edge_index)


class WithWeights(Sets):
    def forward(self, x: Any, edge_index: Any, knn_edge_index: Any, knn_weight: Any) -> Any:
        return self.trust(x, edge_index) + self.trust(x, knn_edge_index)


class Knn(Sets):
    def forward(self, x: Any, edge_index: Any, knn_edge_index: Any) -> Any:
        return self.trust(x, edge_index) + self.trust(x, knn_edge_index)


TAKEN: dict[str, Callable[..., Any]] = {
    "added": lambda s, x, pos, neg: s.trust(x, pos) - s.doubt(x, neg),
    "a cell": lambda s, x, pos, neg: s.cell(s.trust(x, pos), s.doubt(x, neg)),
    "signed convs": lambda s, x, pos, neg: s.second(s.first(x, pos, neg).relu(), pos, neg),
    "turned": lambda s, x, pos, neg: s.first(x, neg, pos),
}


@pytest.mark.parametrize("what", TAKEN)
def test_is_the_module(what: str, tmp_path: Path) -> None:
    model = export_model(Sets(TAKEN[what]), tmp_path / "M")
    assert [one.type for one in model.relations] == ["pos", "neg"]


class Signed(pyg.MessagePassing):
    """A conv of one's own that propagates along each set, as SGCNConv does it."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.lin = nn.Linear(3 * IN, OUT)

    def forward(self, x: Any, pos_edge_index: Any, neg_edge_index: Any) -> Any:
        x = (x, x) if isinstance(x, torch.Tensor) else x
        there = [self.propagate(one, x=x) for one in (pos_edge_index, neg_edge_index)]
        return self.lin(torch.cat([*there, x[1]], -1))

    def message(self, x_j: Any) -> Any:
        return x_j


def test_a_conv_of_ones_own(tmp_path: Path) -> None:
    alone = export_model(Signed(), tmp_path / "A")
    module = Sets(lambda s, x, pos, neg: s.own(s.trust(x, pos).repeat(1, 2)[:, :IN], neg, pos))
    module.own = Signed()
    for model in (alone, export_model(module, tmp_path / "M")):
        assert [one.type for one in model.relations] == ["pos", "neg"]


def test_signed_gcn(tmp_path: Path) -> None:
    model = export_model(pyg.SignedGCN(IN, 8, 2), tmp_path / "M", edge_types=["trusts", "doubts"])
    assert [one.type for one in model.relations] == ["trusts", "doubts"]


def test_names(tmp_path: Path) -> None:
    model = export_model(Knn(lambda: None), tmp_path / "M")
    assert [one.type for one in model.relations] == ["edge", "knn"]


def of_pairs(s: Any, x: Any, pos: Any, neg: Any) -> Any:
    z = s.trust(x, pos)
    return (z[neg[0]] * z[neg[1]]).sum(-1)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="needs knn_weight"):
        export_model(WithWeights(lambda: None), tmp_path / "M")
    with pytest.raises(
        ExportError, match=r"edge_types are .*'one'.*, but forward takes pos_edge_index, neg_edge_index"
    ):
        export_model(Sets(TAKEN["added"]), tmp_path / "M", edge_types=["one"])
    with pytest.raises(ExportError, match="something other than rows of layers"):
        export_model(Sets(of_pairs), tmp_path / "M")
