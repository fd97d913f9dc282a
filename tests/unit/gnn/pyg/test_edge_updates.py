"""Convs whose weights and attributes of edges are functions of the rows at their ends, as in Multi-GNN's edge updates.

`export_model` compares each model with the module itself in float64, on graphs of several sizes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from scripts.tools.pyg_examples import EDGE_WIDTH, WIDTH  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402

WIDE = 6


def gine() -> Any:
    return pyg.GINEConv(nn.Linear(WIDE, WIDE), edge_dim=WIDE)


def pna() -> Any:
    kinds, scalers = ["mean", "max", "std"], ["identity", "amplification"]
    return pyg.PNAConv(WIDE, WIDE, kinds, scalers, torch.tensor([1, 4, 2]), edge_dim=WIDE, divide_input=False)


def gat() -> Any:
    return pyg.GATConv(WIDE, WIDE // 2, heads=2, edge_dim=WIDE)


CONVS = {"gine": gine, "pna": pna, "gat with self-loops": gat}


class Updating(nn.Module):
    """Layers, each of which makes the edges' attributes again of the rows at both ends."""

    def __init__(self, conv: str, layers: int = 2) -> None:
        super().__init__()
        self.node, self.edge = nn.Linear(WIDTH, WIDE), nn.Linear(EDGE_WIDTH, WIDE)
        self.convs = nn.ModuleList(CONVS[conv]() for _ in range(layers))
        self.updates = nn.ModuleList(nn.Sequential(nn.Linear(3 * WIDE, WIDE), nn.ReLU()) for _ in range(layers))

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        src, dst = edge_index
        x, e = self.node(x), self.edge(edge_attr)
        for conv, update in zip(self.convs, self.updates, strict=True):
            x = (x + conv(x, edge_index, e).relu()) / 2
            e = e + update(torch.cat([x[src], x[dst], e], dim=-1)) / 2
        return x


@pytest.mark.parametrize("conv", CONVS)
def test_attributes_that_layers_make_again(conv: str, tmp_path: Path) -> None:
    module = Updating(conv).eval()
    assert_streams(module, export_model(module, tmp_path / "M"), "module(x, edge_index, edge_attr)")


class Weighing(nn.Module):
    """A conv whose weights are learned of the rows at both ends."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.first, self.score, self.conv = pyg.SAGEConv(WIDTH, WIDE), nn.Linear(2 * WIDE, 1), conv

    def forward(self, x: Any, edge_index: Any) -> Any:
        h, (row, col) = self.first(x, edge_index).relu(), edge_index
        return self.conv(h, edge_index, torch.sigmoid(self.score(torch.cat([h[row], h[col]], -1))).squeeze(-1))


@pytest.mark.parametrize("kind", [pyg.GraphConv, pyg.GCNConv])
def test_weights_of_rows(kind: Any, tmp_path: Path) -> None:
    module = Weighing(kind(WIDE, 3)).eval()
    assert_streams(module, export_model(module, tmp_path / "M"), "module(x, edge_index)")


def test_weights_of_rows_against_the_edges_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"something other than rows of layers|edges the other way round"):
        export_model(Weighing(pyg.GraphConv(WIDE, 3, flow="target_to_source")), tmp_path / "M")


class OfWeights(nn.Module):
    """Attention whose attributes of edges are their weights; self-loops have the mean of these."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GATv2Conv(WIDTH, 3, heads=2, edge_dim=1)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.conv(x, edge_index, edge_weight.unsqueeze(-1))


def test_weights_as_attributes(tmp_path: Path) -> None:
    module = OfWeights().eval()
    model = export_model(module, tmp_path / "M")
    assert model.features.edge_width == 0
    assert_streams(module, model, "module(x, edge_index, edge_weight)")
