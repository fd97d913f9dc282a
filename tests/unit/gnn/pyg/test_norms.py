"""Norms: exact ones equal PyG on any graph; those of the whole graph on the one they were frozen at, and say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.data import Data  # noqa: E402

from freshet.gnn.describe import describe_data, describe_text  # noqa: E402
from freshet.gnn.model import Model, load_model  # noqa: E402
from freshet.gnn.oracles import whole_graph  # noqa: E402
from freshet.gnn.plan import compile_plan  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.gnn.pyg.forward.trace import trace  # noqa: E402
from freshet.gnn.pyg.kinds.calling import ModuleCall  # noqa: E402
from freshet.gnn.pyg.kinds.metadata import WITHOUT_KINDS  # noqa: E402
from freshet.gnn.pyg.statistics import gather, plain_inputs  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support import oracle  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402

IN, HIDDEN = 6, 5


def trained(module: Any) -> Any:
    """Parameters and running statistics as training would leave them."""
    generator = torch.Generator().manual_seed(5)
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            if name == "running_mean":
                buffer.normal_(generator=generator)
            elif name == "running_var":
                buffer.uniform_(0.5, 2, generator=generator)
        for parameter in part.parameters(recurse=False):
            if parameter.dim() == 1:
                parameter.data.normal_(0.5, 1, generator=generator)
    return module.eval()


def stack(make: Callable[[], Any]) -> Any:
    """A norm between two convs, and another behind the last."""
    convs = [pyg.GraphConv(IN, HIDDEN), pyg.SAGEConv(HIDDEN, HIDDEN)]
    layers = [(convs[0], "x, edge_index -> x"), make(), nn.ReLU(), (convs[1], "x, edge_index -> x"), make()]
    return trained(pyg.Sequential("x, edge_index", layers))


def tensors(graph: Graph) -> tuple[Any, Any]:
    return torch.from_numpy(graph.x), torch.from_numpy(np.stack([graph.src, graph.dst]))


def assert_same(model: Model, module: Any, graph: Graph) -> None:
    with torch.no_grad():
        truth = module(*tensors(graph)).numpy()
    plain = Graph.plain(*graph[:3])
    atol = 3e-5 * max(1, np.abs(truth).max())
    for rows in (whole_graph.forward(compile_plan(model), plain)[-1], oracle.forward(model, plain)[-1]):
        np.testing.assert_allclose(rows, truth, rtol=0, atol=atol)


EXACT: dict[str, Callable[[], Any]] = {
    "torch layer norm": lambda: nn.LayerNorm(HIDDEN, eps=0.01),
    "torch layer norm, no bias": lambda: nn.LayerNorm(HIDDEN, bias=False),
    "torch layer norm, plain": lambda: nn.LayerNorm([HIDDEN], elementwise_affine=False),
    "node": lambda: pyg.LayerNorm(HIDDEN, mode="node"),
    "node, plain": lambda: pyg.LayerNorm(HIDDEN, affine=False, mode="node", eps=0.1),
    "rms": lambda: nn.RMSNorm(HIDDEN),
    "rms, plain": lambda: nn.RMSNorm([HIDDEN], eps=0.1, elementwise_affine=False),
    "batch": lambda: pyg.BatchNorm(HIDDEN),
    "batch, of several processes": lambda: nn.SyncBatchNorm(HIDDEN),
    "instance with statistics": lambda: pyg.InstanceNorm(HIDDEN, affine=True, track_running_stats=True),
}
FROZEN: dict[str, tuple[Callable[[], Any], str]] = {
    "graph": (lambda: pyg.GraphNorm(HIDDEN), "graph_norm"),
    "layer": (lambda: pyg.LayerNorm(HIDDEN), "layer_norm"),
    "layer, plain": (lambda: pyg.LayerNorm(HIDDEN, eps=0.1, affine=False), "layer_norm"),
    "pair": (lambda: pyg.PairNorm(scale=1.5), "pair_norm"),
    "pair, each": (lambda: pyg.PairNorm(scale=2.0, scale_individually=True, eps=0.01), "pair_norm"),
    "mean": (lambda: pyg.MeanSubtractionNorm(), "mean_subtraction_norm"),
    "instance": (lambda: pyg.InstanceNorm(HIDDEN), "instance_norm"),
    "instance, affine": (lambda: pyg.InstanceNorm(HIDDEN, affine=True, eps=0.1), "instance_norm"),
    "size": (lambda: pyg.GraphSizeNorm(), "graph_size_norm"),
    "batch without statistics": (lambda: pyg.BatchNorm(HIDDEN, track_running_stats=False), "batch_norm"),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_norms_equal_pyg_on_any_graph(name: str, tmp_path: Path) -> None:
    module = stack(EXACT[name])
    model = export_model(module, tmp_path)
    assert load_model(tmp_path).sha256() == model.sha256()
    assert not model.is_approximate and not describe_data(tmp_path)["approximate"]
    for seed in range(3):
        assert_same(model, module, random_graph(seed, width=IN))


@pytest.mark.parametrize("norm", ["graph_norm", "pair_norm"])
def test_norms_over_all_edges_are_frozen_as_well(norm: str, tmp_path: Path) -> None:
    """EdgeCNN has its norms inside the network on edges, too."""
    module, graph = pyg.EdgeCNN(IN, HIDDEN, 2, 3, norm=norm).eval(), random_graph(4, width=IN)
    with pytest.raises(ExportError, match=r"^convs.0.nn.norms.0: .* depends on the whole graph"):
        export_model(module, tmp_path / "m")
    model = export_model(module, tmp_path, stats_from=tensors(graph))
    assert model.is_approximate
    with torch.no_grad():
        want = module(torch.from_numpy(graph.x), torch.from_numpy(np.stack([graph.src, graph.dst]))).numpy()
    np.testing.assert_allclose(oracle.forward(model, Graph.plain(*graph[:3]))[-1], want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", FROZEN)
def test_norms_of_the_whole_graph_equal_pyg_on_the_graph_they_were_frozen_at(name: str, tmp_path: Path) -> None:
    make, kind = FROZEN[name]
    module, graph = stack(make), random_graph(4, width=IN)
    model = export_model(module, tmp_path, stats_from=tensors(graph))
    assert load_model(tmp_path).sha256() == model.sha256()
    assert [layer.of for layer in model.layers if layer.is_approximate] == [kind, kind]
    assert_same(model, module, graph)
    with pytest.raises(AssertionError):
        assert_same(model, module, random_graph(5, width=IN, vertices=80))
    data = describe_data(tmp_path)
    assert data["approximate"] and data["layers"][0]["then"][0] == f"{kind} (frozen)"
    assert "approximate" in describe_text(tmp_path)


@pytest.mark.parametrize("name", FROZEN)
def test_without_a_graph_they_are_refused_by_name_with_what_to_do(name: str, tmp_path: Path) -> None:
    module = stack(FROZEN[name][0])
    shown = type(module[1]).__name__
    message = (
        rf"^module_1: {shown}.* depends on the whole graph.*stats_from=\(x, edge_index\).*approximate. Exact instead"
    )
    with pytest.raises(ExportError, match=message):
        export_model(module, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("norm", ["layer_norm", "GraphNorm", "pair_norm", "instance_norm"])
def test_basic_models_with_norms_inside_and_out(norm: str, tmp_path: Path) -> None:
    graph = random_graph(6, width=IN)
    for number, module in enumerate(
        (pyg.GIN(IN, HIDDEN, 3, 4, norm=norm), pyg.GCN(IN, HIDDEN, 2, norm=norm, jk="last"))
    ):
        trained(module)
        model = export_model(module, tmp_path / str(number), stats_from=tensors(graph))
        assert model.is_approximate
        assert_same(model, module, graph)
    module = trained(pyg.GraphSAGE(IN, HIDDEN, 2, norm="layer_norm", norm_kwargs={"mode": "node"}))
    assert not export_model(module, tmp_path / "exact").is_approximate


def test_attention_and_a_head_with_a_frozen_norm(tmp_path: Path) -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = pyg.GAT(IN, HIDDEN, 2, norm="GraphNorm", heads=1)
            self.head = nn.Sequential(pyg.GraphNorm(HIDDEN), nn.Linear(HIDDEN, 3), nn.LogSoftmax(-1))

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.head(self.body(x, edge_index))

    module, graph = trained(Classifier()), random_graph(9, width=IN)
    model = export_model(module, tmp_path, stats_from=tensors(graph), head="head")
    assert [layer.type for layer in model.head] == ["frozen_norm", "linear", "log_softmax"]
    with torch.no_grad():
        rows = module.body(*tensors(graph))
        logits = module.head(rows).numpy()
    plan = compile_plan(model)
    plain = Graph.plain(*graph[:3])
    np.testing.assert_allclose(whole_graph.forward(plan, plain)[-1], rows.numpy(), atol=1e-4)
    np.testing.assert_allclose(plan.logits(rows.numpy()), logits, atol=1e-4)


def test_a_norm_that_is_called_twice_is_frozen_twice(tmp_path: Path) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.norm = (
                pyg.SAGEConv(IN, HIDDEN),
                pyg.SAGEConv(HIDDEN, HIDDEN),
                pyg.GraphNorm(HIDDEN),
            )

        def forward(self, x: Any, edge_index: Any) -> Any:
            x = self.norm(self.first(x, edge_index)).relu()
            return self.norm(self.second(x, edge_index))

    module, graph = trained(Shared()), random_graph(7, width=IN)
    model = export_model(module, tmp_path, stats_from=tensors(graph))
    assert not np.allclose(model.weights["layers.1.scale"], model.weights["layers.4.scale"])
    assert_same(model, module, graph)


def test_the_graph_may_be_a_data_object_arrays_or_have_weights(tmp_path: Path) -> None:
    graph = random_graph(8, width=IN)
    x, edge_index = tensors(graph)
    module = trained(pyg.GCN(IN, HIDDEN, 2, norm="GraphNorm"))
    weight = torch.from_numpy(graph.values.weight)
    given = [(x, edge_index), (graph.x, np.stack([graph.src, graph.dst])), Data(x=x, edge_index=edge_index)]
    given += [(x, edge_index, weight), Data(x=x, edge_index=edge_index, edge_weight=weight)]
    models = [export_model(module, tmp_path / str(i), stats_from=one) for i, one in enumerate(given)]
    hashes = [model.sha256() for model in models]
    assert hashes[0] == hashes[1] == hashes[2] != hashes[3] == hashes[4]
    with torch.no_grad():
        truth = module(x, edge_index, edge_weight=weight).numpy()
    np.testing.assert_allclose(oracle.forward(models[3], graph)[-1], truth, atol=1e-4)


WRONG: dict[str, tuple[Any, str]] = {
    "rows alone": ((np.ones((3, IN), np.float32),), "stats_from: got tuple, expected"),
    "width": ((np.ones((3, 2), np.float32), np.array([[0], [1]])), "stats_from: the module cannot run on this graph"),
    "edges": ((np.ones((3, IN), np.float32), np.ones((2, 1))), r"edge_index float64 \(2, 1\); expected"),
    "empty": ((np.ones((0, IN), np.float32), np.ones((2, 0), int)), "not empty"),
    "weights": (
        (np.ones((3, IN), np.float32), np.array([[0], [1]]), np.ones(2)),
        "stats_from: got 2 weights for 1 edges",
    ),
    "words": (("a", "b"), "stats_from: .*; expected"),
}


@pytest.mark.parametrize("what", WRONG)
def test_other_graphs_are_refused(what: str, tmp_path: Path) -> None:
    given, message = WRONG[what]
    with pytest.raises(ExportError, match=message):
        export_model(pyg.GCN(IN, HIDDEN, 2, norm="GraphNorm"), tmp_path / "m", stats_from=given)
    assert not (tmp_path / "m").exists()


def test_a_graph_that_no_norm_needs_changes_nothing(tmp_path: Path) -> None:
    module = pyg.GCN(IN, HIDDEN, 2)
    with_graph = export_model(module, tmp_path / "a", stats_from=tensors(random_graph(1, width=IN)))
    assert with_graph.sha256() == export_model(module, tmp_path / "b").sha256()


def test_a_norm_that_does_something_else_is_noticed() -> None:
    module = pyg.GCN(IN, HIDDEN, 2, norm="GraphNorm")
    module.norms[0].register_forward_hook(lambda *args: args[-1] + 1)
    graph = plain_inputs(tensors(random_graph(1, width=IN)))
    with pytest.raises(
        ExportError, match=r"norms.0: torch_geometric.nn.GraphNorm gives something other than its formula"
    ):
        gather(module, ModuleCall("forward", traced=trace(module).run), WITHOUT_KINDS, graph)


def test_two_dimensional_layer_norms_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"1: normalized_shape=\(2, 5\), but rows have one dimension"):
        export_model(nn.ModuleList([pyg.SAGEConv(IN, HIDDEN), nn.LayerNorm((2, HIDDEN))]), tmp_path / "m")
