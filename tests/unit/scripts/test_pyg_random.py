"""Random modules are made of every template, and what differs from its module on other graphs is called wrong."""

from __future__ import annotations

import ast
from typing import Any

import pytest

pytest.importorskip("torch_geometric")

import torch

from scripts.tools import pyg_random
from scripts.tools.pyg_random_programs import HOSTILE, READ, draw


def test_sources_are_python_and_drawn_again_by_their_seed() -> None:
    sources = [draw(seed, 0.5) for seed in range(300)]
    for seed, source in enumerate(sources):
        ast.parse(source.text)
        assert source == draw(seed, 0.5)
    assert len({one for source in sources for one in source.hostile}) > len(HOSTILE) // 2
    assert len(READ) > 80


def test_what_differs_on_other_graphs_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    source = draw(0, 0.0)._replace(call="module(x, edge_index)")
    text = source.text.partition("class Drawn")[0] + (
        "class Drawn(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.conv = pyg.SAGEConv(4, 3)\n"
        "    def forward(self, x, edge_index):\n        return self.conv(x, edge_index)\n"
    )
    source = source._replace(text=text)
    assert pyg_random.judged(source, 1).what == "taken"
    run: Any = pyg_random._run
    monkeypatch.setattr(pyg_random, "_run", lambda *given: run(*given) + (len(given[2]) > 4000))
    found = pyg_random.judged(source, 1)
    assert found.what == "wrong"
    assert "5000 vertices" in found.why


def test_refusals_of_one_kind_are_counted_together() -> None:
    one, other = (f"view (<pyg_random_{n}>:{n}): rows of width {n}" for n in (7, 12))
    assert pyg_random.shortened(one) == pyg_random.shortened(other)
    assert torch.get_default_dtype() == torch.float32
