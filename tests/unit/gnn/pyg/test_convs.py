"""Convs that basic models don't have, and all options of those they do: exported, they give what PyG gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")
from torch import nn  # noqa: E402

from freshet.gnn.model import load_model  # noqa: E402
from freshet.gnn.oracles import whole_graph  # noqa: E402
from freshet.gnn.plan import compile_plan  # noqa: E402
from freshet.gnn.pyg import read_convs  # noqa: E402
from freshet.gnn.pyg.check import check, ours_of, theirs_of  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model, plain_graphs  # noqa: E402
from freshet.gnn.pyg.forward.trace import trace  # noqa: E402
from freshet.gnn.pyg.own import notes  # noqa: E402
from freshet.gnn.synopses.of_messages import MomentsSynopsis  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support import oracle  # noqa: E402
from tests.support.graphs.models import IN_WIDTH as IN  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402

PNA, DEGREES = ["mean", "min", "max", "std"], torch.tensor([1, 4, 2, 0, 3])
SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]

AGGREGATORS = ["mean", "max", "min", "std", "var"]
NODE = {"mode": "node"}


def pna(*sizes: Any, **options: Any) -> Any:
    return pyg.PNA(IN, *sizes, **{"aggregators": PNA, "scalers": SCALERS, "deg": DEGREES} | options)


def nearest(conv: Any) -> Any:
    """PyG makes no DynamicEdgeConv without a library of its own; the class is what is refused."""
    conv.__class__ = pyg.DynamicEdgeConv
    return conv


class Traced(nn.Module):
    """Has its conv traced, rather than listed."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.module_0 = conv

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.module_0(x, edge_index).relu()


def alone(conv: Any) -> Any:
    return pyg.Sequential("x, edge_index", [(conv, "x, edge_index -> x"), nn.ELU()])


MODULES = {
    "pna": lambda: pna(8, 2, 3),
    "pna-towers": lambda: pna(
        6, 3, aggregators=["sum", "var"], scalers=SCALERS[1:2], towers=3, divide_input=True, post_layers=3, act="elu"
    ),
    "pna-trained-norm": lambda: pna(8, 2, 4, aggregators=["max"], scalers=["linear"], train_norm=True, towers=2),
    "pna-prelu": lambda: pna(8, 1, post_layers=2, act="prelu", norm="batch_norm"),
    "pna-jumps": lambda: pna(6, 3, 4, jk="cat"),
    "pna-pre_layers": lambda: pna(6, 2, 3, pre_layers=2, post_layers=2, towers=3, divide_input=False),
    "pna-pre_layers-prelu": lambda: alone(pyg.PNAConv(IN, 4, PNA, SCALERS, DEGREES, pre_layers=3, act="prelu")),
    "edge-cnn": lambda: pyg.EdgeCNN(IN, 5, 2, 3),
    "edge-cnn-norms": lambda: pyg.EdgeCNN(IN, 5, 3, 4, norm="batch_norm", act="elu", act_first=True, jk="cat"),
    "edge-cnn-mean": lambda: pyg.EdgeCNN(IN, 5, 2, aggr="mean", jk="max", norm="layer_norm", norm_kwargs=NODE),
    "edge-conv-several": lambda: alone(pyg.EdgeConv(nn.Linear(2 * IN, 3), aggr=["max", "add", "std"])),
    "edge-conv-wide": lambda: alone(pyg.EdgeConv(nn.Sequential(nn.Linear(2 * IN, 20), nn.Tanh(), nn.Linear(20, 3)))),
    "edge-conv-norm-first": lambda: alone(
        pyg.EdgeConv(nn.Sequential(nn.LayerNorm(2 * IN), nn.GELU(), nn.Linear(2 * IN, 3)), aggr="add")
    ),
    "gates": lambda: alone(pyg.ResGatedGraphConv(IN, 5)),
    "gates-no-root": lambda: alone(pyg.ResGatedGraphConv(IN, 5, act=torch.sigmoid, root_weight=False, bias=False)),
    "super-gat": lambda: alone(pyg.SuperGATConv(IN, 3, heads=2, negative_slope=0.3)),
    "super-gat-dots": lambda: alone(pyg.SuperGATConv(IN, 3, heads=2, concat=False, attention_type="SD", bias=False)),
    "super-gat-no-loops": lambda: alone(pyg.SuperGATConv(IN, 3, add_self_loops=False)),
    "transformer": lambda: alone(pyg.TransformerConv(IN, 3, heads=2, beta=True)),
    **{f"gcn-{aggr}": lambda aggr=aggr: pyg.GCN(IN, 8, 2, 3, aggr=aggr) for aggr in AGGREGATORS},
    **{f"gin-{aggr}": lambda aggr=aggr: pyg.GIN(IN, 8, 2, 3, aggr=aggr) for aggr in AGGREGATORS},
    "gcn-max-improved": lambda: alone(pyg.GCNConv(IN, 3, aggr="max", improved=True)),
    "gcn-std-no-loops": lambda: alone(pyg.GCNConv(IN, 9, aggr="std", add_self_loops=False, bias=False)),
    "gcn-min-plain": lambda: alone(pyg.GCNConv(IN, 9, aggr="min", normalize=False, cached=True)),
    "agnn": lambda: pyg.Sequential(
        "x, edge_index", [(nn.Linear(IN, 4), "x -> x"), (pyg.AGNNConv(), "x, edge_index -> x")]
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_it_gives_what_pyg_gives(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = MODULES[name]().eval()
    model = export_model(module, tmp_path)
    graph = Graph.plain(*random_graph(3)[:3])
    edge_index = torch.from_numpy(np.stack([graph.src, graph.dst]))
    with torch.no_grad():
        expected = module(torch.from_numpy(graph.x), edge_index).numpy()
    for got in (oracle.forward(model, graph)[-1], whole_graph.forward(compile_plan(model), graph)[-1]):
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * max(1.0, np.abs(expected).max()))


REFUSED = {
    "gates of two kinds": (lambda: pyg.ResGatedGraphConv((IN, 4), 8), "bipartite layers are not supported"),
    "kernels without a root": (
        lambda: pyg.GMMConv(IN, 8, dim=2, kernel_size=3, root_weight=False),
        "GMMConv with root_weight=False is not supported: PyTorch Geometric cannot run it either",
    ),
    "orders of messages": (
        lambda: pyg.GENConv(IN, 8, aggr="lstm", aggr_kwargs={"in_channels": 8, "out_channels": 8}),
        "GENConv with aggr='lstm' is not supported: it reads messages in the order of edges, which a stream has not",
    ),
    "edges of its own": (
        lambda: nearest(pyg.EdgeConv(nn.Linear(2 * IN, 4))),
        "torch_geometric.nn.DynamicEdgeConv is not supported: it makes its own edges, .* Nearest: EdgeConv",
    ),
    "nearest quantiles": (
        lambda: pyg.EdgeConv(nn.Linear(2 * IN, 4), aggr=pyg.aggr.QuantileAggregation(0.5, "nearest")),
        ".*interpolation='nearest': between two messages PyG itself takes one by how many edges are before them",
    ),
    "lower tenths": (
        lambda: pyg.GINConv(nn.Linear(IN, 4), aggr=pyg.aggr.QuantileAggregation(0.1, "lower")),
        ".*the 0.1-quantile with interpolation='lower' jumps where the place of a message is a whole number",
    ),
    "edges of unknown width": (
        lambda: pyg.EdgeConv(nn.ReLU()),
        "the width of EdgeConv's nn is unknown, since no layer says it; give export_model the width of the features: ",
    ),
    "edges of an odd width": (
        lambda: pyg.EdgeConv(nn.Linear(2 * IN + 1, 4)),
        r"EdgeConv's nn reads rows of width 13, expected an even one: \[x_v, x_u - x_v\]",
    ),
    "a mean twice": (
        lambda: pyg.EdgeConv(nn.Linear(2 * IN, 4), aggr=["mean", "max", "mean"]),
        "'mean' is 2 times among the aggregators, of which PyG itself makes wrong values",
    ),
    "deviations twice": (
        lambda: pyg.PNAConv(IN, 8, ["std", "max", "std"], SCALERS, DEGREES),
        "'std' is 2 times among the aggregators, of which PyG itself makes wrong values",
    ),
    "pna aggregators": (
        lambda: pyg.PNAConv(IN, 8, ["mean", pyg.aggr.LSTMAggregation(IN, IN)], SCALERS, DEGREES),
        "PNAConv with aggr=.* is not supported: it reads messages in the order .*; supported: sum, mean",
    ),
}


def test_kernels_that_are_too_wide_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (notes, read_convs):
        monkeypatch.setattr(one, "LARGEST", 100)
    with pytest.raises(ExportError, match="sum of 24 numbers of each row to 12 is too wide to be read"):
        export_model(pyg.GMMConv(4, 3, dim=3, kernel_size=2, separate_gaussians=True), tmp_path)


@pytest.mark.parametrize("what", REFUSED)
def test_what_freshet_does_not_have_is_refused_by_name(what: str, tmp_path: Path) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ExportError, match=f"^module_0: {message}"):
        export_model(alone(make()), tmp_path)
    with pytest.raises(ExportError, match=rf"^module_0[^:]*(:\d+\))?: {message}"):
        export_model(Traced(make()), tmp_path)
    assert not list(tmp_path.iterdir())


def test_deviations_that_float32_rounds_are_held_to_the_module_in_float64(tmp_path: Path) -> None:
    """A deviation is 0 up to 0.0032, so what PyG rounds in float32 may turn one on: its float64 decides."""
    torch.manual_seed(2)
    module = pyg.EdgeCNN(IN, 3, 3, aggr="std").eval()
    for name, parameter in module.named_parameters():
        parameter.data += 10 * name.endswith("bias")
    export_model(module, tmp_path / "m")
    model = load_model(tmp_path / "m")
    graphs = plain_graphs(trace(module), model, None)
    assert check(theirs_of(module, graphs.run), ours_of(model, graphs), graphs) < 1e-4
    module.convs[2].register_forward_hook(lambda *args: args[-1] + 1)
    with pytest.raises(ExportError, match=r"largest difference .* A layer does something that Freshet did not see"):
        check(theirs_of(module, graphs.run), ours_of(model, graphs), graphs)


def test_ten_neighbours_that_are_alike_do_not_deviate() -> None:
    """In float32 PyG's deviation of theirs is what its means have rounded away, as docs/design/aggregates.md says."""
    alike, at = torch.full((10, 1), 37.3), torch.zeros(10, dtype=torch.long)
    assert round(pyg.aggr.StdAggregation()(alike, at).item(), 3) == 0.016
    assert pyg.aggr.StdAggregation()(alike.double(), at).item() == 0
    synopsis = MomentsSynopsis("std")
    state = synopsis.whole(alike.numpy(), at.numpy(), np.zeros((1, 1), np.float32))
    assert synopsis.read(state, np.array([10])).tolist() == [[0]]
