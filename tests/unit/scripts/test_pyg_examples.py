"""The models of scripts are made without what else the scripts do, and each is exported and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")

from scripts.tools.pyg_examples import outcomes

SCRIPT = """
import torch
from a_library_that_is_not_here import Downloads
from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

hidden = 5
dataset = Downloads("/")
raise SystemExit("data is downloaded and a model is trained")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GATConv(dataset.num_features, hidden, edge_dim=3)

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr).relu()


class Pooled(Net):
    def forward(self, x, edge_index, edge_attr, batch=None):
        return global_mean_pool(super().forward(x, edge_index, edge_attr), batch)


class Needs(Net):
    def __init__(self):
        self.data = Downloads(1)
"""
TABLE = """
[[model]]
script = "one.py"
make = "Net()"
run = "module(x, edge_index, edge_attr)"

[[model]]
script = "one.py"
make = "Net()"
run = "2 * module(x, edge_index, edge_attr)"

[[model]]
script = "one.py"
make = "Pooled()"

[[model]]
script = "one.py"
make = "Needs()"
"""


def test_models_are_taken_refused_or_not_made(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(SCRIPT)
    (tmp_path / "table.toml").write_text(TABLE)
    same, other, pooled, needs = outcomes(tmp_path, table=tmp_path / "table.toml")
    assert same.taken and same.equal and same.rows > 50 and same.off < 1e-5
    assert other.taken and not other.equal
    assert "global_mean_pool (one.py:22) gives a row per graph" in pooled.refused and not pooled.taken
    assert needs.unmade == "ImportError: it needs Downloads, which is not installed"


KINDS = """
import torch
from torch_geometric.nn import HeteroConv, RGCNConv, SAGEConv

rows = torch.zeros(3)
rows[1:] = True


class ByKind(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = HeteroConv({one: SAGEConv((4, 4), 3) for one in dataset.metadata()[1]})

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict, edge_index_dict)


class ByNumber(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = RGCNConv(dataset.num_nodes, 3, dataset.num_relations)

    def forward(self, edge_index, edge_type):
        return self.conv(None, edge_index, edge_type)
"""
OF_KINDS = """
[[model]]
script = "one.py"
make = "ByKind()"
run = "module(x_dict, edge_index_dict)"

[[model]]
script = "one.py"
make = "ByKind()"
run = "{kind: 2 * rows for kind, rows in module(x_dict, edge_index_dict).items()}"
metadata = [["user", "item"], [["user", "rates", "item"]]]

[[model]]
script = "one.py"
make = "ByNumber()"
run = "module(edge_index, edge_type)"
"""


def test_models_with_kinds_and_types_are_compared_on_a_stream(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(KINDS)
    (tmp_path / "table.toml").write_text(OF_KINDS)
    same, other, numbered = outcomes(tmp_path, table=tmp_path / "table.toml")
    assert same.taken and same.equal and same.rows > 100
    assert other.taken and not other.equal
    assert numbered.taken and numbered.equal and numbered.rows > 50
