"""A forward branches on numbers of dimensions and on widths of rows, which its layers and operations tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric import nn as pyg

from freshet.gnn.model import Model
from freshet.gnn.pyg.export import ExportError, export_model


def module(forward: Callable[..., Any], **parts: nn.Module) -> nn.Module:
    """A module with these submodules and this forward, which gets it as `s`."""
    made = type("Made", (nn.Module,), {"forward": forward})()
    for name, part in ({"conv": pyg.GCNConv(4, 4)} | parts).items():
        setattr(made, name, part)
    return made  # type: ignore[no-any-return]


BRANCHES: dict[str, Callable[[Any, Any], Any]] = {
    "behind a conv": lambda s, h: h.unsqueeze(-1) if h.dim() == 1 else h,
    "behind layers": lambda s, h: s.chain(h) if s.chain(h).ndim == 2 else h,
    "of heads": lambda s, h: h.view(-1, 2, 2).mean(1) if h.view(-1, 2, 2).dim() == 3 else h,
    "of heads that are reduced": lambda s, h: h if h.reshape(len(h), 2, 2).sum(dim=-1).dim() == 2 else h * 2,
    "of a column": lambda s, h: h[:, 0].unsqueeze(-1) if h[:, 0].dim() == 1 else h,
    "of columns": lambda s, h: h[:, None, 1:].squeeze(1) if h[:, None, 1:].dim() == 3 else h,
    "of a kept dimension": lambda s, h: h - h.mean(1, keepdim=True) if h.mean(1, keepdim=True).dim() == 2 else h,
}


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_on_dimensions_is_taken_as_the_module_takes_it(name: str, tmp_path: Path) -> None:
    chain = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    made = module(lambda s, x, edge_index: BRANCHES[name](s, s.conv(x, edge_index)), chain=chain)
    assert isinstance(export_model(made, tmp_path / "M"), Model)


def residual(s: Any, x: Any, edge_index: Any) -> Any:
    h = x
    for conv in (s.conv, s.heads, s.wide):
        made = functional.relu(conv(h, edge_index))
        h = made + h if made.shape == h.shape else made
    return torch.cat([h, x], dim=-1) if h.size(-1) > x.size(-1) else h


def of_layers(s: Any, x: Any, edge_index: Any) -> Any:
    h = s.gin(s.conv(s.chain(x), edge_index).relu(), edge_index)
    assert h.size(0) == h.size(0)
    both = torch.cat([h, x], 1)
    assert both.shape[1] == 8
    return s.last(both) if both.size(1) != h.size(1) else h


def without_digits(s: Any, x: Any, edge_index: Any) -> Any:
    h = s.conv(x, edge_index)
    return h * 2 if h.size(0) == x.size(1) else h


WIDE = {"heads": pyg.GATConv(4, 2, heads=2), "wide": pyg.SAGEConv(4, 6)}
LAYERS_OF_ROWS = {
    "chain": nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
    "last": nn.Linear(8, 3),
    "gin": pyg.GINConv(nn.Linear(4, 4)),
}


@pytest.mark.parametrize(("forward", "width"), [(residual, 10), (of_layers, 3)])
def test_a_branch_on_widths_is_taken_as_the_module_takes_it(forward: Any, width: int, tmp_path: Path) -> None:
    model = export_model(module(forward, **WIDE, **LAYERS_OF_ROWS), tmp_path / "M")
    assert isinstance(model, Model)
    assert model.out_width == width


def test_a_branch_on_a_width_and_a_number_of_vertices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"cannot be traced at test_branches\.py"):
        export_model(module(without_digits), tmp_path / "M")


def test_many_residuals_are_looked_at_once_each(tmp_path: Path) -> None:
    def deep(s: Any, x: Any, edge_index: Any) -> Any:
        h = s.conv(x, edge_index)
        for _ in range(40):
            h = h + torch.tanh(h)
        return h if h.dim() == 2 and h.size(-1) == x.size(-1) else h * 2

    assert isinstance(export_model(module(deep), tmp_path / "M"), Model)
