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


class NormedByRelation(nn.Module):
    """Doubles the edges of a relation that come with weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv((4, 3), 2)

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any = None) -> Any:
        weights = None if edge_weight_dict is None else 2 * edge_weight_dict["a", "to", "b"]
        return self.conv((x_dict["a"], x_dict["b"]), edge_index_dict["a", "to", "b"], weights)


class NormedByType(NormedAtNone):
    """The same of edges of a type."""

    num_relations = 2

    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_weight: Any = None) -> Any:  # type: ignore[override]
        edge_weight = None if edge_weight is None else edge_weight[edge_type == 1]
        return super().forward(x, edge_index[:, edge_type == 1], edge_weight)


class AsTheyAre(NormedByRelation):
    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any = None) -> Any:
        weights = None if edge_weight_dict is None else edge_weight_dict["a", "to", "b"]
        return self.conv((x_dict["a"], x_dict["b"]), edge_index_dict["a", "to", "b"], weights)


@pytest.mark.parametrize(("make", "warns"), [(NormedByRelation, True), (NormedByType, True), (AsTheyAre, False)])
def test_it_is_said_with_kinds_and_types(make: Any, warns: bool, tmp_path: Path) -> None:
    metadata = None if make is NormedByType else (["a", "b"], [("a", "to", "b")])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        export_model(make(), tmp_path / "M", metadata=metadata)
    assert ["other rows without edge_weight" in str(one.message) for one in found] == [True] * warns
