"""NaN and infinity in a module are named: the weight that is so, or the part that gives it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from freshet.gnn.pyg.export import ExportError, export_model


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gin = pyg.GCNConv(4, 4), pyg.GINConv(nn.Linear(4, 4), train_eps=True)
        self.norm, self.scale, self.unused = nn.BatchNorm1d(4), nn.Parameter(torch.ones(4)), nn.Linear(3, 3)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.norm(self.gin(self.conv(x, edge_index), edge_index)) * self.scale


def with_value(part: Callable[[Net], Any], value: float, *, double: bool = False) -> Net:
    net = Net().double() if double else Net()
    with torch.no_grad():
        part(net).fill_(value)
    return net


WEIGHTS = {
    "bias": (lambda: with_value(lambda n: n.conv.bias, torch.nan), r"conv.bias \(4 of 4 values NaN or infinite\)"),
    "one value": (
        lambda: with_value(lambda n: n.conv.lin.weight[1, 2], torch.inf),
        r"conv.lin.weight \(1 of 16 values",
    ),
    "eps": (lambda: with_value(lambda n: n.gin.eps, torch.nan), r"gin.eps \(1 of 1 values NaN"),
    "parameter": (lambda: with_value(lambda n: n.scale, -torch.inf), r"scale \(4 of 4 values NaN or infinite\)"),
    "buffer": (lambda: with_value(lambda n: n.norm.running_mean, torch.nan), r"norm.running_mean \(4 of 4"),
    "past": (
        lambda: with_value(lambda n: n.conv.bias, 1e300, double=True),
        r"conv.bias \(4 of 4 values past float32\)",
    ),
    "variance": (lambda: with_value(lambda n: n.norm.running_var, -1), r"scale.*NaN.*a negative running_var"),
}


@pytest.mark.filterwarnings("ignore:invalid value encountered in sqrt")
@pytest.mark.parametrize("what", WEIGHTS)
def test_a_weight_that_is_no_number_is_named(what: str, tmp_path: Path) -> None:
    make, message = WEIGHTS[what]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "M")
    assert not (tmp_path / "M").exists()


def test_a_module_that_gives_no_numbers_is_refused_with_the_part_that_begins(tmp_path: Path) -> None:
    """Its weights are all finite: their products are not."""
    net = with_value(lambda n: n.conv.lin.weight, 1e38)
    with pytest.raises(ExportError, match=r"itself gives NaN or infinity on a small graph, in \d+ rows, first in conv"):
        export_model(net, tmp_path / "M")


def test_what_forward_does_not_read_may_be_anything(tmp_path: Path) -> None:
    export_model(with_value(lambda n: n.unused.bias, torch.nan), tmp_path / "M")
