"""Attributes of edges in an export are told from weights by what takes them, and refused where PyG does otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")
from torch import nn  # noqa: E402

from freshet.gnn.declarations import GCNConv, GINEConv  # noqa: E402
from freshet.gnn.model import Model, load_model  # noqa: E402
from freshet.gnn.oracles import whole_graph  # noqa: E402
from freshet.gnn.plan import compile_plan  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.support.graphs.attributed import EDGE_WIDTH  # noqa: E402
from tests.support.graphs.models import IN_WIDTH as IN  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402


def gine(width: int = IN, out: int = 5, **options: Any) -> Any:
    options = {"edge_dim": EDGE_WIDTH, **options}
    return pyg.GINEConv(nn.Sequential(nn.Linear(width, out), nn.ReLU(), nn.Linear(out, out)), **options)


class Both(nn.Module):
    """Reads weights in one conv and attributes in another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = gine(train_eps=True), pyg.GCNConv(5, 4), gine(4, 3, eps=0.5)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None, edge_attr: Any = None) -> Any:
        x = self.first(x, edge_index, edge_attr).relu()
        x = self.second(x, edge_index, edge_weight).relu()
        return self.third(x, edge_index, edge_attr=edge_attr)


class Alone(Both):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        x = self.first(x, edge_index, edge_attr)
        return self.third(self.second(x, edge_index), edge_index, edge_attr)


class Twice(Both):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        x = self.first(x, edge_index, edge_attr)
        return self.second(x, edge_index, edge_attr)


class Into(Both):
    def __init__(self) -> None:
        super().__init__()
        self.attend = pyg.TransformerConv(5, 4)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.attend(self.first(x, edge_index, edge_attr), edge_index, edge_attr)


class Wide(Both):
    """Attributes as wide as the rows, which PyG adds to them as they are: the conv has no layer that says so."""

    def __init__(self) -> None:
        super().__init__()
        self.second = pyg.GENConv(5, EDGE_WIDTH, aggr="mean", edge_dim=EDGE_WIDTH)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.second(self.first(x, edge_index, edge_attr), edge_index, edge_attr)


class WideWithWeights(Wide):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_attr: Any) -> Any:
        return self.second(self.first(x, edge_index, edge_attr), edge_index, edge_weight)


class By(nn.Module):
    """A module that is called with what comes third, whatever it is."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.conv(x, edge_index, edge_attr)


class Paired(By):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.conv((x, x), edge_index, edge_attr)


class Pair(By):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        return self.conv((x, x * 2), edge_index)


class Flat(By):
    """Its edge_attr is one number an edge, as (edges,)."""

    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        edge_attr = edge_attr.unsqueeze(-1) if edge_attr.dim() == 1 else edge_attr.view(-1, 1)
        return self.conv(x, edge_index, edge_attr[:, :])


class ByNone(By):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x, edge_index)


class Without(Both):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.first(x, edge_index)


GCN = (pyg.GCNConv(5, 4), "x, edge_index, edge_weight -> x")
GINE = (gine(), "x, edge_index, edge_attr -> x")
PNA: dict[str, Any] = {"aggregators": ["mean", "max", "std"], "scalers": ["identity", "amplification"]}
PNA |= {"deg": torch.tensor([1, 4, 2, 0, 3]), "edge_dim": EDGE_WIDTH}
TAKEN = {
    "ResGatedGraphConv": (lambda: pyg.ResGatedGraphConv(IN, 5, edge_dim=EDGE_WIDTH), EDGE_WIDTH),
    "PNAConv": (lambda: pyg.PNAConv(IN, 8, **PNA, towers=2, post_layers=2), EDGE_WIDTH),
    "PNAConv of pre_layers": (lambda: pyg.PNAConv(IN, 8, **PNA, towers=2, pre_layers=2, divide_input=True), EDGE_WIDTH),
    "PNA": (lambda: pyg.PNA(IN, 8, 2, 4, **PNA), EDGE_WIDTH),
    "GATConv": (lambda: pyg.GATConv(IN, 4, heads=3, edge_dim=EDGE_WIDTH, residual=True), EDGE_WIDTH),
    "GATConv with loops of a number": (lambda: pyg.GATConv(IN, 4, edge_dim=EDGE_WIDTH, fill_value=2.0), EDGE_WIDTH),
    "GATConv without loops": (
        lambda: pyg.GATConv(IN, 4, 2, concat=False, edge_dim=EDGE_WIDTH, add_self_loops=False, fill_value="max"),
        EDGE_WIDTH,
    ),
    "GATv2Conv": (lambda: pyg.GATv2Conv(IN, 4, heads=2, edge_dim=EDGE_WIDTH, share_weights=True), EDGE_WIDTH),
    "TransformerConv": (lambda: pyg.TransformerConv(IN, 4, heads=2, edge_dim=EDGE_WIDTH, beta=True), EDGE_WIDTH),
    "GAT": (lambda: pyg.GAT(IN, 8, 2, 4, heads=2, edge_dim=EDGE_WIDTH), EDGE_WIDTH),
    "NNConv": (lambda: pyg.NNConv(IN, 4, nn.Sequential(nn.Linear(EDGE_WIDTH, IN * 4), nn.Tanh())), EDGE_WIDTH),
    "GMMConv": (lambda: pyg.GMMConv(IN, 4, EDGE_WIDTH, 3, bias=False), EDGE_WIDTH),
    "CGConv": (lambda: pyg.CGConv(IN, EDGE_WIDTH, batch_norm=True), EDGE_WIDTH),
    "CGConv alone": (lambda: pyg.CGConv(4, EDGE_WIDTH), EDGE_WIDTH),
    "GENConv of one width": (lambda: pyg.GENConv(IN, IN, aggr="mean", edge_dim=EDGE_WIDTH, num_layers=3), EDGE_WIDTH),
    "GENConv": (lambda: pyg.GENConv(IN, 4, aggr="max", edge_dim=EDGE_WIDTH, bias=True), EDGE_WIDTH),
    "GENConv that adds them as they are": (Wide, EDGE_WIDTH),
    "GENConv alone that adds them as they are": (
        lambda: pyg.GENConv(IN, EDGE_WIDTH, edge_dim=EDGE_WIDTH, aggr="add", bias=True),
        EDGE_WIDTH,
    ),
    "GENConv in DeepGCNLayer": (
        lambda: By(pyg.DeepGCNLayer(pyg.GENConv(IN, IN, edge_dim=IN, aggr="max"), nn.LayerNorm(IN), nn.ReLU())),
        IN,
    ),
    "AntiSymmetricConv": (lambda: By(pyg.AntiSymmetricConv(IN, pyg.GATConv(IN, IN, edge_dim=EDGE_WIDTH))), EDGE_WIDTH),
    "(x, x)": (lambda: Paired(pyg.TransformerConv(IN, 4, edge_dim=EDGE_WIDTH)), EDGE_WIDTH),
    "one number": (lambda: Flat(pyg.GATConv(IN, 4, edge_dim=1)), 1),
    "GENConv of a softmax": (lambda: pyg.GENConv(IN, 8, edge_dim=EDGE_WIDTH), EDGE_WIDTH),
    "GENConv of a learned t": (lambda: pyg.GENConv(4, 4, t=0.1, learn_t=True, edge_dim=EDGE_WIDTH), EDGE_WIDTH),
    "both": (Both, EDGE_WIDTH),
    "alone": (Alone, EDGE_WIDTH),
    "conv": (gine, EDGE_WIDTH),
    "attributes as they are": (lambda: gine(EDGE_WIDTH, edge_dim=None), EDGE_WIDTH),
    "list": (lambda: nn.ModuleList([gine(), nn.ReLU(), pyg.GCNConv(5, 4)]), EDGE_WIDTH),
    "sequential": (lambda: pyg.Sequential("x, edge_index, edge_attr", [GINE, nn.ReLU()]), EDGE_WIDTH),
    "sequential of both": (lambda: pyg.Sequential("x, edge_index, edge_weight, edge_attr", [GINE, GCN]), EDGE_WIDTH),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_reads_attributes_is_taken_and_equals_the_module(name: str, tmp_path: Path) -> None:
    make, width = TAKEN[name]
    torch.manual_seed(0)
    module = make()
    export_model(module, tmp_path, edge_features=width)
    model = load_model(tmp_path)
    assert model.edge_features == width == model.features.edge_width
    graph = random_graph(1, width=model.features.width)
    attr = np.random.default_rng(2).standard_normal((len(graph.src), width)).astype(np.float32)
    graph = graph._replace(values=replace(graph.values, attr=attr))
    got = whole_graph.forward(compile_plan(model), graph)[-1]
    without = graph._replace(values=replace(graph.values, attr=None))
    assert not np.allclose(got, whole_graph.forward(compile_plan(model), without)[-1])
    if name == "both":
        index, tensors = torch.tensor(np.stack([graph.src, graph.dst])), map(torch.tensor, (graph.values.weight, attr))
        expected = module(torch.tensor(graph.x), index, *tensors).detach().numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        assert [layer.edge_weights for layer in model.layers if isinstance(layer, GCNConv)] == [True]


def test_a_model_without_attributes_has_the_bytes_of_before(tmp_path: Path) -> None:
    export_model(pyg.GCN(IN, 8, 2, 3), tmp_path)
    assert b"edge_features" not in (tmp_path / "model.json").read_bytes()
    with pytest.raises(ExportError, match="edge_features are 2, but the module reads attributes of width 0"):
        export_model(pyg.GCN(IN, 8, 2, 3), tmp_path, edge_features=2)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (Twice, r"GCNConv is given attributes of edges, and reads none here\. Leave them out"),
        (Into, r"TransformerConv is given attributes of edges, and reads none here \(edge_dim=None\)"),
        (WideWithWeights, r"second.*: GENConv is given weights of edges as edge_attr, and reads attributes"),
        (lambda: By(pyg.GATv2Conv(IN, 4)), "conv.*: GATv2Conv is given weights of edges as edge_attr"),
        (lambda: By(pyg.CGConv(IN)), "conv.*: CGConv is given weights .*, and reads attributes, with dim: leave"),
        (lambda: Flat(pyg.GATConv(IN, 4, edge_dim=2)), r"it gets getitem of shape \(edges \* width, 1\), expected"),
        (lambda: Pair(pyg.SAGEConv(IN, 4)), "conv .* is called with two kinds of rows"),
        (
            lambda: pyg.Sequential("x, edge_index, e", [(gine(), "x, edge_index -> x")]),
            "GINEConv is called without attributes of edges: hand it edge_attr",
        ),
        (lambda: ByNone(pyg.GAT(IN, 4, 2, edge_dim=2)), "GATConv is called without attributes of edges"),
        (
            lambda: pyg.PNAConv(IN, 8, **PNA, act=None, pre_layers=2),
            "PNAConv with act=None and more than one layer is not supported: PyTorch Geometric cannot run it either",
        ),
        (Without, "first: GINEConv is called without attributes of edges: hand it edge_attr"),
        (
            lambda: pyg.Sequential("x, edge_index, e", [(one, "x, edge_index, e -> x") for one in (gine(), GCN[0])]),
            "gets e as a weight, and another conv as something else: have an input for each",
        ),
        (lambda: nn.ModuleList([gine(), gine(5, edge_dim=2)]), "edge_features: got 3, but gine_conv reads .* width 2"),
    ],
)  # fmt: skip
def test_what_pyg_would_compute_otherwise_is_refused(make: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=says):
        export_model(make(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_norms_over_all_vertices_read_a_graph_with_attributes(tmp_path: Path) -> None:
    module = nn.ModuleList([gine(), pyg.GraphNorm(5), pyg.GCNConv(5, 4)])
    graph = random_graph(2)
    index = torch.tensor(np.stack([graph.src, graph.dst]))
    given = torch.tensor(graph.x), index, torch.tensor(graph.values.weight), torch.tensor(graph.values.attr)
    model = export_model(module, tmp_path, stats_from=given)
    assert model.is_approximate and isinstance(model.layers[0], GINEConv)
    with pytest.raises(ExportError, match=r"edge_attr of shape \(3, 2\) for \d+ edges, expected a row for each"):
        export_model(module, tmp_path, stats_from=(*given[:3], torch.zeros(3, 2)))


class Optional(nn.Module):
    """Convs that may be made without attributes."""

    def __init__(self, then: Any = lambda s, x, attr: x, edge_dim: int | None = None) -> None:
        super().__init__()
        self.then, self.lin = then, nn.Linear(2, 4)
        self.first, self.second = pyg.GATv2Conv(IN, 4, edge_dim=edge_dim), pyg.TransformerConv(4, 4, edge_dim=edge_dim)

    def forward(self, x: Any, edge_index: Any, edge_attr: Any = None) -> Any:
        x = self.then(self, self.first(x, edge_index, edge_attr), edge_attr)
        return self.second(x, edge_index, edge_attr=edge_attr)


def test_attributes_that_reach_no_conv_that_reads_any_stay_none(tmp_path: Path) -> None:
    model = export_model(Optional(), tmp_path / "without")
    assert isinstance(model, Model)
    assert model.edge_features == 0
    assert export_model(Optional(edge_dim=2), tmp_path / "with").edge_features == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "then",
    [
        lambda s, x, attr: x if attr is None else x.relu(),
        lambda s, x, attr: x * (1 if attr is None else 2),
        lambda s, x, attr: x if attr is None else x + s.lin(attr).mean(),
        lambda s, x, attr: x * (torch.ones(4) if attr is None else torch.zeros(4)),
    ],
)  # fmt: skip
def test_what_depends_on_attributes_that_are_there_is_refused(then: Any, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"first.*: GATv2Conv is given weights of edges as edge_attr"):
        export_model(Optional(then), tmp_path)
