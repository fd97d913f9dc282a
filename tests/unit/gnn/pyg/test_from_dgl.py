"""Weights of DGL's layers, copied as docs/guide/from_dgl.md shows: the exported models give what DGL gives.

DGL's layers are transcribed from its published code (dmlc/dgl at 3d16000b: python/dgl/nn/pytorch/conv), whose sums over
in-edges are PyTorch's index_add here. Where DGL itself can be imported, its own layers are tried as well.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.model import load_model  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.schema import EdgeValues, Graph  # noqa: E402
from tests.unit.docs.test_commands import ROOT, blocks  # noqa: E402
from tests.unit.gnn.pyg.test_export import IN, assert_same, inputs  # noqa: E402

DGL_CONVS = "dgl.nn.pytorch.conv"
try:
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl
except ImportError:
    dgl = None


class SAGEConv(nn.Module):
    __module__ = f"{DGL_CONVS}.sageconv"

    def __init__(self, in_feats: int, out_feats: int, aggregator_type: str, bias: bool = True) -> None:
        super().__init__()
        self._aggre_type = aggregator_type
        if aggregator_type == "pool":
            self.fc_pool = nn.Linear(in_feats, in_feats)
        self.fc_neigh = nn.Linear(in_feats, out_feats, bias=False)
        self.fc_self = nn.Linear(in_feats, out_feats, bias=bias)

    def forward(self, graph: Any, feat: Any) -> Any:
        if self._aggre_type == "mean":
            h_neigh = merged(graph, feat[graph[0]], len(feat), "mean")
        else:
            h_neigh = merged(graph, self.fc_pool(feat).relu()[graph[0]], len(feat), "amax")
        return self.fc_self(feat) + self.fc_neigh(h_neigh)


class GATConv(nn.Module):
    __module__ = f"{DGL_CONVS}.gatconv"

    def __init__(self, in_feats: int, out_feats: int, num_heads: int, negative_slope: float = 0.2) -> None:
        super().__init__()
        self._num_heads, self._out_feats = num_heads, out_feats
        self.fc = nn.Linear(in_feats, out_feats * num_heads, bias=False)
        self.attn_l = nn.Parameter(torch.randn(1, num_heads, out_feats))
        self.attn_r = nn.Parameter(torch.randn(1, num_heads, out_feats))
        self.leaky_relu, self.bias = nn.LeakyReLU(negative_slope), nn.Parameter(torch.randn(num_heads * out_feats))

    def forward(self, graph: Any, feat: Any) -> Any:
        src, dst = graph
        ft = self.fc(feat).view(-1, self._num_heads, self._out_feats)
        el, er = ((ft * attn).sum(-1, keepdim=True) for attn in (self.attn_l, self.attn_r))
        e = self.leaky_relu(el[src] + er[dst])
        e = (e - merged(graph, e, len(feat), "amax")[dst]).exp()  # edge_softmax
        a = e / merged(graph, e, len(feat), "sum")[dst]
        rst = merged(graph, ft[src] * a, len(feat), "sum")
        return rst + self.bias.view(1, self._num_heads, self._out_feats)


class GraphConv(nn.Module):
    __module__ = f"{DGL_CONVS}.graphconv"

    def __init__(self, in_feats: int, out_feats: int, norm: str = "both", allow_zero_in_degree: bool = True) -> None:
        super().__init__()
        self._in_feats, self._out_feats, self._norm = in_feats, out_feats, norm
        self.weight = nn.Parameter(torch.randn(in_feats, out_feats))
        self.bias = nn.Parameter(torch.randn(out_feats))

    def forward(self, graph: Any, feat: Any, edge_weight: Any = None) -> Any:
        out, into = (torch.bincount(ends, minlength=len(feat)).to(feat).clamp(min=1)[:, None] for ends in graph)
        if self._norm == "both":
            feat = feat * out.pow(-0.5)
        messages = feat[graph[0]] if edge_weight is None else feat[graph[0]] * edge_weight[:, None]
        rst = merged(graph, messages, len(feat), "sum") @ self.weight
        if self._norm in ("right", "both"):
            rst = rst * (into.pow(-0.5) if self._norm == "both" else 1.0 / into)
        return rst + self.bias


def merged(graph: Any, messages: Any, vertices: int, how: str) -> Any:
    """Return what arrives at each vertex, 0 where nothing does."""
    out = torch.zeros(vertices, *messages.shape[1:], dtype=messages.dtype)
    return out.index_reduce(0, graph[1], messages, how, include_self=False) if how != "sum" else out.index_add(
        0, graph[1], messages
    )  # fmt: skip


def copies() -> dict[str, Any]:
    """Return the functions of the page."""
    space: dict[str, Any] = {}
    for text in blocks(ROOT / "docs/guide/from_dgl.md", "python"):
        exec(text, space)
    return space


def both_ways(graph: Graph) -> Graph:
    """Return the graph with all edges in both directions, each once, and weights of 1."""
    ends = np.unique(np.stack([np.r_[graph.src, graph.dst], np.r_[graph.dst, graph.src]]), axis=1)
    return Graph(graph.x, *ends, EdgeValues.default(ends.shape[1]))


class Behind(nn.Module):
    """The copy, called with weights or without."""

    def __init__(self, conv: Any, *, weighted: bool) -> None:
        super().__init__()
        self.conv, self.weighted = conv, weighted

    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.conv(x, edge_index, edge_weight) if self.weighted else self.conv(x, edge_index)


LAYERS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], bool]] = {
    "sage mean": ("SAGEConv", (IN, 4, "mean"), {}, False),
    "sage mean, wide": ("SAGEConv", (IN, 9, "mean"), {"bias": False}, False),
    "sage pool": ("SAGEConv", (IN, 4, "pool"), {}, False),
    "gat": ("GATConv", (IN, 4, 3), {"negative_slope": 0.3}, False),
    "right": ("GraphConv", (IN, 4), {"norm": "right"}, False),
    "right, weights": ("GraphConv", (IN, 9), {"norm": "right"}, True),
    "none": ("GraphConv", (IN, 4), {"norm": "none"}, False),
    "none, weights": ("GraphConv", (IN, 9), {"norm": "none"}, True),
    "both": ("GraphConv", (IN, 4), {}, False),
    "both, by hand": ("GraphConv", (IN, 4), {}, True),
}
HOMES = [pytest.param(None, id="transcribed")] + [pytest.param(dgl, id="dgl")] * (dgl is not None)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("name", LAYERS)
def test_the_copy_gives_what_dgl_gives(name: str, home: Any, tmp_path: Path) -> None:
    kind, sizes, options, weighted = LAYERS[name]
    torch.manual_seed(5)
    if home is not None and kind != "SAGEConv":
        options = {**options, "allow_zero_in_degree": True}
    old = (globals()[kind] if home is None else getattr(home.nn, kind))(*sizes, **options).eval()
    graph, x, edge_index, weight = inputs()
    if name == "both":
        graph = both_ways(graph)
        edge_index = torch.from_numpy(np.stack([graph.src, graph.dst]))
    given = edge_index if home is None else home.graph(tuple(edge_index), num_nodes=len(x))
    with torch.no_grad():
        expected = old(given, x, edge_weight=weight) if weighted else old(given, x)
    functions = copies()
    if name == "both, by hand":
        functions["write_model"](old, tmp_path)
        model = load_model(tmp_path)
    else:
        new = functions[{"SAGEConv": "sage_conv", "GATConv": "gat_conv", "GraphConv": "graph_conv"}[kind]](old)
        model = export_model(Behind(new, weighted=weighted), tmp_path)
    assert_same(model, expected.flatten(1), graph)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([SAGEConv(IN, 4, "mean")])

    def forward(self, graph: Any, feat: Any) -> Any:
        return self.layers[0](graph, feat)


@pytest.mark.parametrize(("make", "name"), [(Net, "layers.0"), (lambda: SAGEConv(IN, 4, "mean"), "SAGEConv")])
def test_a_module_of_dgl_is_refused_by_that_name(make: Any, name: str, tmp_path: Path) -> None:
    message = f"{name}: {DGL_CONVS}.sageconv.SAGEConv is a module of DGL, .* docs/guide/from_dgl.md"
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "m")
    assert not (tmp_path / "m").exists()
