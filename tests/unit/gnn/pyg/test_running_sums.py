"""Jumping knowledge before a linear layer is carried as a sum, wherever that carries less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")
from torch import nn  # noqa: E402

from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.plan import compile_plan  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support import oracle  # noqa: E402
from tests.support.graphs.models import IN_WIDTH as IN  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402


class Jumping(nn.Module):
    """Three convs, of which `puts` picks what stands side by side before a linear layer."""

    def __init__(self, puts: Any, width: int, out: int = 3) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.SAGEConv(IN, 8), pyg.GCNConv(8, 8), pyg.GCNConv(8, 8)])
        self.puts, self.lin = puts, nn.Linear(width, out)

    def forward(self, x: Any, edge_index: Any) -> Any:
        rows = [x]
        for conv in self.convs:
            rows.append(conv(rows[-1], edge_index).relu())
        return self.lin(torch.cat(self.puts(*rows), dim=-1))


def carried(model: Model) -> list[int]:
    return [layer.carried_width for layer in compile_plan(model).layers]


CASES: dict[str, tuple[Any, list[int]]] = {
    "basic model": (lambda: pyg.GCN(IN, 8, 4, 3, jk="cat"), [0, 3, 3, 3]),
    "edge cnn": (lambda: pyg.EdgeCNN(IN, 8, 3, 5, jk="cat"), [0, 5, 5]),
    "as wide as it gets": (lambda: pyg.GCN(IN, 8, 3, jk="cat"), [0, 8, 8]),
    "the input as well": (lambda: Jumping(lambda x, a, b, c: [c, x, a, b], 24 + IN), [3, 3, 3]),
    "not the last one": (lambda: Jumping(lambda x, a, b, c: [a, b], 16), [0, 3]),
    "no bias, some of them": (lambda: Jumping(lambda x, a, b, c: [a, c], 16), [0, 3, 3]),
    "a wide result": (lambda: Jumping(lambda x, a, b, c: [a, b, c], 24, 40), [0, 8, 16]),
    "one of them twice": (lambda: Jumping(lambda x, a, b, c: [a, a, c], 24), [0, 8, 8]),
}


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_pyg_gives_and_carries_no_more_than_it_must(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    make, expected = CASES[name]
    module = make().eval()
    model, graph = export_model(module, tmp_path), Graph.plain(*random_graph(3)[:3])
    with torch.no_grad():
        want = module(torch.from_numpy(graph.x), torch.from_numpy(np.stack([graph.src, graph.dst]))).numpy()
    np.testing.assert_allclose(oracle.forward(model, graph)[-1], want, rtol=0, atol=1e-5)
    assert carried(model) == expected


class Residual(nn.Module):
    """A row that a sum and a linear layer read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.conv, self.last = nn.Linear(IN, 4), pyg.GCNConv(4, 4), nn.Linear(8, 4)

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = self.first(x)
        return self.last(torch.cat([x, x + self.conv(x, edge_index)], dim=1))


def test_rows_that_something_else_reads_stay_where_they_are(tmp_path: Path) -> None:
    """A residual carries the row anyway, and a sum beside it would be one row more."""
    model = export_model(Residual(), tmp_path)
    assert carried(model) == [4]
    assert [layer.operation for layer in model.layers if layer.type == "join"] == ["sum", "cat"]
