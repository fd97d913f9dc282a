"""What a refusal names beside the first operation that cannot be read: reasons that would stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric import utils  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402


class PoolsLater(nn.Module):
    """Pools behind a branch that cannot be traced."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(4, 4)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return pyg.global_mean_pool(self.conv(x, edge_index), None) if (x > 0).any() else x


class Missing(PoolsLater):
    def forward(self, x: Any, edge_index: Any, pos: Any = None) -> Any:  # type: ignore[override]
        return self.conv(x, edge_index) + pos[edge_index[0]]


class Laplacian(PoolsLater):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x, *utils.get_laplacian(edge_index, normalization="sym", num_nodes=x.size(0)))


LAPLACIAN = "is taken in a conv of one.s own, of the graph.s edges"


REASONS: dict[str, tuple[Callable[[], Any], str]] = {
    "pooling later": (
        lambda: PoolsLater(),
        "Besides, PoolsLater.forward: global_mean_pool is not supported: .* per graph",
    ),
    "Set2Set": (lambda: PoolsLater(gru=nn.GRU(4, 4), end=pyg.Set2Set(4, 2)), "Besides, end: Set2Set is not supported"),
    "None": (Missing, r"computes with None at test_reasons.py:\d+ .* Nearest: others, as positions, among"),
    "Laplacian": (Laplacian, LAPLACIAN),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_refusal_says_the_reason_that_stays(name: str, tmp_path: Path) -> None:
    make, message = REASONS[name]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "M", features=4)
