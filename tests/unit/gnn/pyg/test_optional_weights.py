"""A module may give other rows without weights than with weights of 1, which edges of a job have that come without."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.nn.conv.gcn_conv import gcn_norm  # noqa: E402

from freshet.gnn.pyg.export import export_model  # noqa: E402


class NormedAtNone(nn.Module):
    """Normalises its weights itself where it has none."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(4, 3, normalize=False)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        if edge_weight is None:
            edge_index, edge_weight = gcn_norm(edge_index, num_nodes=x.size(0), add_self_loops=False)
        return self.conv(x, edge_index, edge_weight)


class Unweighted(nn.Module):
    """Calls another one without weights."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.inner(x, edge_index)


def said(module: Any, folder: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        export_model(module.eval(), folder, features=4)
    return [str(one.message) for one in found if "other rows without" in str(one.message)]


@pytest.mark.parametrize("make", [NormedAtNone, lambda: pyg.LabelPropagation(2, 0.8)])
def test_it_is_said_where_that_makes_a_difference(make: Any, tmp_path: Path) -> None:
    found = said(make(), tmp_path / "M")
    assert len(found) == 1
    assert found[0].endswith("export a module whose forward has no edge_weight")
    assert said(Unweighted(make()), tmp_path / "M2") == []


@pytest.mark.parametrize("make", [lambda: pyg.GCN(4, 4, 2, 3), lambda: pyg.GraphConv(4, 3), lambda: pyg.SAGEConv(4, 3)])
def test_others_say_nothing(make: Any, tmp_path: Path) -> None:
    assert said(make(), tmp_path / "M") == []
