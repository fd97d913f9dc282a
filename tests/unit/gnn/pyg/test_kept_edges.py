"""What convs of projects keep of the edges that they were trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.pyg.export import export_model  # noqa: E402


class KeepsItsWeights(pyg.MessagePassing):
    """A conv that keeps what it makes of the edges, as those of PyG before 1.6 did."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")
        self.lin, self.cached, self.cached_result = nn.Linear(4, 3), True, None

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        if not self.cached or self.cached_result is None:
            self.cached_result = edge_index, edge_weight.exp()
        edge_index, norm = self.cached_result
        return self.propagate(edge_index, x=self.lin(x), norm=norm)

    def message(self, x_j: Any, norm: Any) -> Any:
        return norm.view(-1, 1) * x_j


def test_what_a_copied_conv_keeps_of_the_graph_it_was_trained_on_is_made_again(tmp_path: Path) -> None:
    conv = KeepsItsWeights()
    with torch.no_grad():
        conv(torch.ones(3, 4), torch.tensor([[0, 1], [1, 2]]), torch.ones(2))
    export_model(conv, tmp_path / "M", features=4)
    assert conv.cached_result is not None


class KeepsItsTensors(KeepsItsWeights):
    """The same in attributes of its own, and by names that only another one of its methods writes."""

    def __init__(self, norm: Any = None) -> None:
        super().__init__()
        self.edge_index, self.norm = None, norm

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        if self.edge_index is None:
            self.edge_index, self.norm = edge_index, edge_weight.exp()
        rows = self.propagate(self.edge_index, x=self.lin(x), norm=self.norm)
        return rows * rows.sum(1).squeeze().unsqueeze(1)  # fails on one vertex


class HasANorm(KeepsItsTensors):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.propagate(edge_index, x=self.lin(x), norm=edge_weight) * (1 if self.norm is None else self.norm)


def test_tensors_that_a_forward_keeps_are_made_again_and_others_stay(tmp_path: Path) -> None:
    conv = KeepsItsTensors()
    with torch.no_grad():
        conv(torch.ones(3, 4), torch.tensor([[0, 1], [1, 2]]), torch.ones(2))
    with pytest.warns(UserWarning, match="a graph with 1 vertex"):
        export_model(conv, tmp_path / "M", features=4)
    assert conv.norm is not None
    model = export_model(HasANorm(torch.full((3,), 2.0)), tmp_path / "N", features=4)
    halved = export_model(HasANorm(), tmp_path / "O", features=4)
    assert len(model.layers) > len(halved.layers)
