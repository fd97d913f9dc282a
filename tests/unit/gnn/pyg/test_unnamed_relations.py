"""Modules with parts for relations that no HeteroConv names, whose data may have these or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.support.graphs.hetero_modules import CITES, WRITES  # noqa: E402


class Looping(nn.Module):
    """Convs of a ModuleDict along the relations that the data has, before a HeteroConv of one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleDict({"__".join(CITES): pyg.SAGEConv(5, 4), "__".join(WRITES): pyg.SAGEConv((3, 5), 4)})
        self.second = pyg.HeteroConv({CITES: pyg.SAGEConv(4, 2)})

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        found = []
        for (source, name, target), edges in edge_index_dict.items():
            rows = x_dict[source] if source == target else (x_dict[source], x_dict[target])
            found.append(self.first[f"{source}__{name}__{target}"](rows, edges))
        return self.second({"paper": torch.stack(found).mean(0)}, edge_index_dict)


def test_parts_for_relations_that_nothing_names(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"part for \('author', 'writes', 'paper'\).* give metadata="):
        export_model(Looping().eval(), tmp_path / "M")
    model = export_model(Looping().eval(), tmp_path / "M", metadata=(["paper", "author"], [CITES, WRITES]))
    assert [one.type for one in model.relations] == ["cites", "writes"]  # type: ignore[union-attr]
