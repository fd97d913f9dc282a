"""LINKX, of whose sparse layer each vertex has a learned row: held against the module on streams with deletions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from scripts.tools.pyg_examples import WIDTH, trained  # noqa: E402
from tests.support.graphs.pyg_streams import assert_streams  # noqa: E402

ROWS = 9


class Inside(nn.Module):
    """A LINKX in front of a conv."""

    def __init__(self) -> None:
        super().__init__()
        self.linkx, self.conv = pyg.LINKX(ROWS, WIDTH, 8, 5, 1), pyg.GCNConv(5, 3)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.conv(self.linkx(x, edge_index, edge_weight).relu(), edge_index)


MODULES: dict[str, Callable[[], Any]] = {
    "its layers": lambda: pyg.LINKX(ROWS, WIDTH, 8, 3, 2, num_edge_layers=2, num_node_layers=2),
    "in a module": Inside,
}


@pytest.mark.parametrize("name", MODULES)
def test_it_streams_as_the_module(name: str, tmp_path: Path) -> None:
    torch.manual_seed(4)
    module = trained(MODULES[name]())
    before = {key: one.clone() for key, one in module.state_dict().items()}
    model = export_model(module, tmp_path, features=WIDTH, ids=range(ROWS))
    assert isinstance(model, KindsModel)
    assert {*model.learned} == {*model.kinds}
    assert all(torch.equal(one, before[key]) for key, one in module.state_dict().items())
    assert_streams(module, model, "module(x, edge_index, edge_weight)")


def test_a_row_for_each_vertex_needs_its_id(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"LINKX is not supported without ids: .* Nearest: ids=\[...\], the id of"):
        export_model(Inside().eval(), tmp_path)
    with pytest.raises(ExportError, match=r"ids: 5 of kind 'vertex', but edge_lin\.weight has 9 rows"):
        export_model(pyg.LINKX(ROWS, WIDTH, 8, 3, 1).eval(), tmp_path, ids=range(5))
