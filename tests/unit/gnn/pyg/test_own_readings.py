"""Two readings of a conv of the user's own are compared, and a constant has one row for all vertices or edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_geometric")

import torch
from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.export import ExportError, export_model
from freshet.gnn.pyg.own.recorder import Operation, Recorder

CALLS: list[None] = []
NAN = float("nan")


class CountingConv(MessagePassing):
    """One whose result grows with the calls of any of them: a number that leaves torch."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        CALLS.append(None)
        return self.propagate(edge_index, x=x * len(CALLS))


def test_readings_that_differ_are_refused(tmp_path: Path) -> None:
    reason = "it computes with numbers that depend on the graph"
    with pytest.raises(ExportError, match=reason):
        export_model(CountingConv(aggr="sum"), tmp_path / "model", features=2)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("rows", "is_shared"),
    [
        ([[1.0, 2.0]] * 3, True),
        ([[1.0, NAN]] * 3, True),
        ([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]], False),
        ([[1.0, 2.0], [1.0, NAN], [1.0, 2.0]], False),
        ([[1.0, NAN], [1.0, 2.0], [1.0, NAN]], False),
    ],
)
def test_a_constant_has_the_same_row_everywhere(rows: list[list[float]], is_shared: bool, axis: int) -> None:
    recorder, call = Recorder({"vertices": 3}, {}), Operation("mul", torch.mul, (), {}, None, "conv.py:7")
    tensor = torch.tensor(rows) if axis == 0 else torch.tensor(rows).T
    if is_shared:
        assert recorder.shared(call, tensor, axis).width == 2
        return
    with pytest.raises(ExportError, match=r"conv\.py:7: it reads a tensor that has a row of its own"):
        recorder.shared(call, tensor, axis)
