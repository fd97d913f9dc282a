"""Nothing that is exported depends on a size of the graph: own convs that ask for one are refused by line, or exact."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch_geometric")

import torch
from torch import nn
from torch_geometric.nn import GCNConv, MessagePassing

from freshet.gnn.pyg.check import check, ours_of, theirs_of
from freshet.gnn.pyg.export import ExportError, export_model, plain_graphs
from freshet.gnn.pyg.forward.trace import trace
from scripts.drills import sizes_of_convs
from tests.support.graphs.own.sized_convs import SizedConv

SOURCE = """
from contextlib import suppress
import numpy as np
import torch
from torch import nn
from torch_geometric.nn import GATConv, MessagePassing
from torch_geometric.utils import scatter, softmax
@torch.jit.script
def scripted(h):
    return h * 2 if h.size(0) > 3000 else h
class Conv(MessagePassing):
    total = 0
    def __init__(self):
        super().__init__("add")
        self.lin, self.other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)
        self.lins, self.calls, self.kept = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), 0, {"calls": [0]}
        self.register_buffer("buffer", torch.zeros(()))
    def forward(self, x, edge_index, edge_weight=None):
        h = self.lin(x)
        {before}
        h = self.propagate(edge_index, h=h)
        {behind}
        return h
    def message(self, h_j, index, dim_size):
        {message}
        return h_j

class Sub(GATConv):
    def __init__(self): super().__init__(4, 4)
    def forward(self, x, edge_index):
        return {subclass}
"""
BEFORE, BEHIND, MESSAGE, SUBCLASS = 20, 22, 25, 31
BEGUN = "self.begun = getattr(self, 'begun', 0) + 1"
REFUSED = {
    "no edges": (BEFORE, "before", "if edge_index.numel() == 0: return x"),
    "no edges, by width": (BEFORE, "before", "if not edge_index.size(1): return h"),
    "few vertices": (BEHIND, "behind", "h = h * 2 if x.size(0) < 20 else h"),
    "many vertices": (BEHIND, "behind", "h = h / 2 if len(x) > 3_000_000 else h"),
    "exactly so many": (BEHIND, "behind", "h = h + 1 if x.shape[0] == 12345 else h"),
    "between": (BEHIND, "behind", "h = h + 1 if 700 < x.size(0) <= 900 else h"),
    "more edges than vertices": (BEHIND, "behind", "h = h * 2 if edge_index.size(1) < x.size(0) else h"),
    "a number": (BEHIND, "behind", "h = h * min(x.size(0), 20) / 20"),
    "a quotient": (BEHIND, "behind", "h = h / x.size(0)"),
    "a truth": (BEHIND, "behind", "h = h * (x.size(0) > 300)"),
    "a layer": (BEHIND, "behind", "h = self.lins[x.numel() > 1200](h)"),
    "a loop": (BEHIND, "behind", "for _ in range(min(x.size(0), 3)): h = h * 2"),
    "a plain number": (BEHIND, "behind", "h = h * (1 if float(x.size(0)) > 3 else 2)"),
    "a tensor of it": (BEHIND, "behind", "h = h * torch.tensor(x.size(0)).clamp(max=20) / 20"),
    "caught where it is a key": (BEHIND, "behind", "with suppress(Exception): h = h * {12345: 2}.get(x.size(0), 1)"),
    "numpy's logarithm, caught": (
        BEHIND,
        "behind",
        "with suppress(Exception): h = h * 2 if np.log(x.size(0)) > 12 else h",
    ),
    "bits": (BEHIND, "behind", "h = h * 2 if x.size(0).bit_length() > 18 else h"),
    "one more than vertices": (BEHIND, "behind", "h = h * 2 if torch.zeros(x.size(0) + 3).size(0) > 9999 else h"),
    "rows of numbers": (BEHIND, "behind", "h = h * (torch.arange(x.size(0)) < 1000).float().view(-1, 1)"),
    "a sum of ones": (BEHIND, "behind", "h = h * (torch.ones(x.size(0)).sum() < 1000).float()"),
    "rows cut": (BEFORE, "before", "h = self.lin(x[:1000])"),
    "rows cut by edges": (BEFORE, "before", "h = self.lin(x[: edge_index.size(1)])"),
    "rows split": (BEFORE, "before", "h = self.lin(x.split(1000)[0])"),
    "edges cut": (BEFORE, "before", "edge_index = edge_index[:, :5000]"),
    "numpy": (BEHIND, "behind", "h = h if np.bincount(edge_index[1].numpy()).max() < 500 else h * 2"),
    "a list": (BEHIND, "behind", "h = h if len(x.tolist()) < 500 else h * 2"),
    "weights": (BEFORE, "before", "h = h if edge_weight.numel() < 5000 else h * 2"),
    "messages": (MESSAGE, "message", "if h_j.size(0) < 5000: h_j = h_j * 2"),
    "messages by index": (MESSAGE, "message", "h_j = h_j * 2 if index.numel() < 50 else h_j"),
    "messages by targets": (MESSAGE, "message", "h_j = h_j * 2 if dim_size > 5000 else h_j"),
    "calls": (BEHIND, "behind", "self.calls += 1; h = h * 2 if self.calls > 10_000 else h"),
    "calls that the first one begins": (BEHIND, "behind", f"{BEGUN}; h = h * 2 if self.begun > 10_000 else h"),
    "calls in a list": (
        BEHIND,
        "behind",
        "self.kept['calls'][0] += 1; h = h * 2 if self.kept['calls'][0] > 9999 else h",
    ),
    "calls of a class": (BEHIND, "behind", "Conv.total += 1; h = h * 2 if Conv.total > 10_000 else h"),
    "calls in a buffer": (BEHIND, "behind", "self.buffer += 1; h = h * 2 if self.buffer > 10_000 else h"),
    "a subclass": (SUBCLASS, "subclass", "super().forward(x, edge_index) if edge_index.numel() else x"),
    "caught": (BEHIND, "behind", "h = h if (lambda: x.size(0) > 300)() else -h"),
    "a product of ones": (
        BEHIND,
        "behind",
        "h = h + (x.new_ones(1, x.size(0)) @ x.new_ones(x.size(0), 1) - 3000).relu()",
    ),
    "a product of ones, written": (
        BEHIND,
        "behind",
        "a, b = torch.zeros(1, 1), torch.ones(1, len(x)); torch.mm(b, b.t(), out=a); h = h + (a - 3000).relu()",
    ),
    "a table": (BEHIND, "behind", "h = h + (torch.arange(8000) > 3000).float()[: x.size(0)].view(-1, 1)"),
    "a narrowed table": (BEHIND, "behind", "h = h + torch.arange(8000).sub(3000).relu().narrow(0, 0, len(x))[:, None]"),
    "parts of ones": (BEHIND, "behind", "h = h * len(torch.ones(x.size(0)).split(3000))"),
    "ones by themselves": (BEHIND, "behind", "h = h + (len(torch.ones(x.size(0)).unbind()) > 3000)"),
    "a script": (BEHIND, "behind", "h = scripted(h)"),
    "alpha": (BEHIND, "behind", "h = torch.mul(h, 2.0, out=torch.empty_like(h))"),
}
TAKEN = {
    "zeros without edges": ("before", "if edge_index.numel() == 0: return torch.zeros_like(h)"),
    "new zeros without edges": ("before", "if edge_index.size(1) < 1: return x.new_zeros(x.size(0), 4)"),
    "no vertices": ("before", "if x.size(0) == 0: return x"),
    "vertices or 0": ("behind", "h = h + torch.zeros(x.size(0) or 0, 4).index_add(0, edge_index[1], x[edge_index[0]])"),
    "no messages": ("message", "if index.numel() == 0: return h_j"),
    "both sides alike": ("behind", "h = h * 1 if x.size(0) > 300 else h"),
    "said alone": ("behind", "if x.size(0) > 300: print(f'{x.size(0)} vertices')"),
    "compared with itself": ("behind", "assert h.size(0) == x.size(0) and x.size(-1) == 4 and x.size(1) > 3"),
    "shapes": ("behind", "h = h.view(x.size(0), 2, 2).reshape(len(x), -1) + x.new_zeros(x.shape[0], 4)"),
    "whole slices": ("behind", "h = h[: x.size(0)] + x.new_ones(x.size(0) * 4).view(x.shape)"),
    "heads": ("message", "h_j = h_j.view(-1, 2, h_j.size(1) // 2).view(h_j.numel() // 4, 4)"),
    "calls that are counted": ("behind", "self.calls += 1; self.buffer += 1; self.kept['calls'][0] += 1"),
    "calls that the first one begins to count": ("behind", BEGUN),
    "a number that the first call keeps": ("behind", "self.wide = getattr(self, 'wide', x.size(1)); h = h / self.wide"),
    "a table of zeros": ("behind", "h = h + torch.zeros(9000, 4)[: x.size(0)] @ torch.ones(4, 4)"),
    "added times two": ("behind", "h = torch.zeros_like(x).index_add_(0, edge_index[1], h[edge_index[0]], alpha=2.0)"),
}


def conv_of(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, **lines: str) -> Any:
    """A conv of such lines, whose source is NAME.py."""
    source = SOURCE.replace("{", "\0").replace("}", "\1")
    for part in ("before", "behind", "message", "subclass"):
        source = source.replace(f"\0{part}\1", lines.get(part, "pass" if part != "subclass" else "x"))
    (tmp_path / f"{name}.py").write_text(source.replace("\0", "{").replace("\1", "}"))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, name, module)
    torch.manual_seed(0)
    return (module.Sub if "subclass" in lines else module.Conv)().eval()


@pytest.mark.parametrize("form", REFUSED)
def test_what_depends_on_a_size_is_refused_by_its_line(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, part, code = REFUSED[form]
    name = "refused_" + "".join(c if c.isalpha() else "_" for c in form)
    conv = conv_of(tmp_path, name, monkeypatch, **{part: code})
    with pytest.raises(ExportError, match=rf"{name}\.py:{line}: "):
        export_model(conv, tmp_path / "M", features=4)
    assert not (tmp_path / "M").exists()


@pytest.mark.parametrize("form", TAKEN)
def test_what_gives_the_same_at_any_size_is_taken(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.gnn.pyg.check._CALLS", 100)
    part, code = TAKEN[form]
    name = "taken_" + "".join(c if c.isalpha() else "_" for c in form)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="a graph with")
        export_model(conv_of(tmp_path, name, monkeypatch, **{part: code}), tmp_path / "M", features=4)


BETWEEN = (0, 1, 2, 3, 4, 6, 21, 101, 301, 1001, 2501)
"""A number of vertices between each two of those that drawn convs branch on; the drill has both sides of each."""


@pytest.mark.parametrize("seed", range(100, 114))
def test_no_drawn_conv_is_exported_and_different(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sizes_of_convs, "VERTICES", BETWEEN)
    drawn, how = sizes_of_convs.tried(seed, tmp_path)
    assert not how.startswith("WRONG"), f"{how}\n{drawn.source}"
    assert how == "taken" or not drawn.harmless, f"{how}\n{drawn.source}"


def test_convs_are_drawn_of_all_forms() -> None:
    drawn = [SizedConv(seed) for seed in range(300)]
    assert {one.where for one in drawn} >= {"plain", "weight", "attr", "pair", "subclass", "message", "update"}
    assert sum(one.harmless for one in drawn) > 60


class Counted(nn.Module):
    """A module whose forward is traced, and counts its calls."""

    def __init__(self, most: int | None) -> None:
        super().__init__()
        self.conv, self.calls, self.most = GCNConv(4, 4), 0, most

    def forward(self, x: Any, edge_index: Any) -> Any:
        h = self.conv(x, edge_index)
        self.calls += 1
        return h * 2 if self.most is not None and self.calls > self.most else h


def test_a_traced_forward_that_counts_its_calls_branches_on_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.gnn.pyg.check._CALLS", 100)
    export_model(Counted(None), tmp_path / "M", features=4)
    with pytest.raises(ExportError, match=r"test_sizes\.py:\d+: it branches on \(self\.calls \+ 1\)"):
        export_model(Counted(100_000), tmp_path / "N", features=4)


def test_a_traced_forward_branches_on_no_number_that_its_first_call_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.gnn.pyg.check._CALLS", 100)
    module = Counted(None)
    del module.calls
    monkeypatch.setattr(Counted, "forward", begins_to_count)
    export_model(module, tmp_path / "M", features=4)
    module.most = 100_000
    with pytest.raises(ExportError, match=r"test_sizes\.py:\d+: it branches on \(self\.calls \+ 1\)"):
        export_model(module, tmp_path / "N", features=4)


def counts_in_a_buffer(module: Any, x: Any, edge_index: Any) -> Any:
    module.buffer += 1
    return module.conv(x, edge_index) * (1 + (module.buffer > 100_000) * (module.most or 0))


def test_a_traced_forward_branches_on_no_count_in_a_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.gnn.pyg.check._CALLS", 100)
    monkeypatch.setattr(Counted, "forward", counts_in_a_buffer)
    module = Counted(None)
    module.register_buffer("buffer", torch.zeros(()))
    export_model(module, tmp_path / "M", features=4)
    module.most = 1
    with pytest.raises(ExportError, match="other rows when it is called again"):
        export_model(module, tmp_path / "N", features=4)


def begins_to_count(module: Any, x: Any, edge_index: Any) -> Any:
    module.calls = getattr(module, "calls", 0) + 1
    h = module.conv(x, edge_index)
    return h * 2 if module.most is not None and module.calls > module.most else h


def says_once(module: Any, x: Any, edge_index: Any) -> Any:
    """Print at the first call; `calls` is not touched by any other."""
    if module.calls == 0:
        print(module.conv)
        module.calls = 1
    return module.conv(x, edge_index)


def is_another_at_first(module: Any, x: Any, edge_index: Any) -> Any:
    module.calls += module.calls < 2
    return module.conv(x, edge_index) * (2 if module.calls < 2 else 1)


def test_a_traced_forward_may_branch_on_what_its_first_call_alone_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshet.gnn.pyg.check._CALLS", 10)
    monkeypatch.setattr(Counted, "forward", says_once)
    export_model(Counted(None), tmp_path / "M", features=4)
    monkeypatch.setattr(Counted, "forward", is_another_at_first)
    with pytest.raises(ExportError, match=r"test_sizes\.py:\d+: it branches on"):
        export_model(Counted(None), tmp_path / "N", features=4)


class CutByEdges(nn.Module):
    """A module whose forward is traced, and takes as many rows as there are edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(4, 4)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x[: edge_index.size(1)], edge_index)


def test_a_traced_forward_takes_no_slice_by_another_size(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="keeps some of the rows"):
        export_model(CutByEdges(), tmp_path / "M", features=4)


class Sized(MessagePassing):
    """A plain sum that is another one where `otherwise` says so."""

    def __init__(self, otherwise: Any) -> None:
        super().__init__(aggr="sum")
        self.lin, self.otherwise = nn.Linear(4, 3), otherwise

    def forward(self, x: Any, edge_index: Any) -> Any:
        rows = self.propagate(edge_index, x=self.lin(x))
        return rows + 1 if self.otherwise(self, x, edge_index) else rows


def counting(conv: Any, x: Any, edge_index: Any) -> bool:
    """Count calls, and say whether there were two thousand."""
    conv.calls = getattr(conv, "calls", 0) + 1
    return bool(conv.calls > 2000)


@pytest.mark.parametrize(
    ("otherwise", "graph"),
    [
        (lambda _, x, edges: edges.numel() == 0, "1 vertex"),
        (lambda _, x, edges: edges.numel() == 0 and len(x) > 1, "no edges"),
        (lambda _, x, edges: len(x) == 2, "2 vertices"),
        (lambda _, x, edges: 5 < len(x) < 30, "20 vertices"),
        (lambda _, x, edges: 300 < len(x) < 500, "400 vertices"),
        (lambda _, x, edges: len(x) > 1900, "2,000 vertices"),
        (lambda _, x, edges: edges.numel() > 0 and int(edges[1].bincount().max()) > 900, "1,000 in-edges"),
        (counting, "called again"),
    ],
)
def test_the_last_check_runs_graphs_of_many_sizes(otherwise: Any, graph: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Sized(otherwise).eval()
    plain = Sized(lambda *_: False).eval()
    plain.lin.load_state_dict(module.lin.state_dict())
    model = export_model(plain, tmp_path / "M", features=4)
    graphs = plain_graphs(trace(plain), model, None)
    with pytest.raises(ExportError, match=graph):
        check(theirs_of(module, graphs.run), ours_of(model, graphs), graphs)
