"""Modules of models without kinds make the rows of the oracle, and the same model when they are saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import freshet  # noqa: E402
from freshet.gnn.any_plan import load_any_plan  # noqa: E402
from freshet.gnn.model import WEIGHTS_FILE, Model, load_model, save_model  # noqa: E402
from freshet.gnn.oracles import own_scale, whole_graph  # noqa: E402
from freshet.gnn.plan import Plan  # noqa: E402
from freshet.gnn.pyg.check import off  # noqa: E402
from freshet.gnn.torch_modules.loading import module_of  # noqa: E402
from freshet.kinds_graph import RelationEdges  # noqa: E402
from freshet.schema import WEIGHT, Graph  # noqa: E402
from tests.support.graphs.gradients import assert_gradients  # noqa: E402
from tests.support.graphs.models import all_small_models, conv, linear, make_model, random_model  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402
from tests.support.graphs.torch_graphs import plain_inputs, with_parallel_edges  # noqa: E402

MODELS = all_small_models()


def assert_rows(model: Model, graph: Graph) -> None:
    """Compare both precisions with the oracle, at the scale of each value."""
    module = module_of(model)
    inputs = [
        plain_inputs(graph, edge_features=model.edge_features, real=one) for one in (torch.float32, torch.float64)
    ]
    with torch.no_grad():
        rows = module(**inputs[0]).numpy()
        exact = module.double()(**inputs[1]).numpy()
    assert rows.dtype == np.float32
    assert off([rows], [own_scale.forward(model, graph)]) < 1e-5
    assert off([exact], [own_scale.forward(model, graph, tolerance=1e-9)]) < 1e-9


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_those_of_the_oracle(name: str) -> None:
    model, seed = MODELS[name](), list(MODELS).index(name)
    graph = random_graph(seed, vertices=30, edges=120)
    assert_rows(model, graph)
    assert_rows(model, Graph(graph.x, *with_parallel_edges(RelationEdges(*graph[1:]), seed)))
    assert module_of(model).model().sha256() == model.sha256()


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_differences(name: str) -> None:
    model, seed = MODELS[name](), list(MODELS).index(name)
    module = module_of(model).double()
    if not list(module.parameters()):
        pytest.skip("no layer has weights")
    graph = random_graph(seed, vertices=12, edges=40)
    inputs = plain_inputs(graph, edge_features=model.edge_features, real=torch.float64)
    assert_gradients(module, lambda: [module(**inputs)], seed)


@pytest.mark.parametrize("seed", range(8))
def test_random_models(seed: int) -> None:
    assert_rows(random_model(seed), random_graph(seed + 100))


@pytest.mark.parametrize(
    "name", ["gcn_conv-default-narrowing", "graph_conv-max-widening", "pin_sage_conv-default-2-layers"]
)
@pytest.mark.parametrize("what", ["no edges", "no vertices", "one vertex", "negative weights"])
def test_odd_graphs(name: str, what: str) -> None:
    graph = random_graph(5)
    if what == "negative weights":
        weight = np.where(np.arange(len(graph.src)) % 3, graph.values.weight, -graph.values.weight)
        graph = graph._replace(values=type(graph.values)(len(weight), {WEIGHT: weight.astype(np.float32)}))
        if name.startswith("gcn"):
            return  # a degree below 0 has no root
    else:
        count = {"no edges": 9, "no vertices": 0, "one vertex": 1}[what]
        graph = Graph.plain(graph.x[:count], *np.empty((2, 0), np.int64))
    assert_rows(MODELS[name](), graph)


def trained(folder: Path, model: Model) -> Any:
    save_model(model, folder)
    return freshet.to_torch(folder)


def test_nothing_trained_is_the_same_file(tmp_path: Path) -> None:
    model = make_model(
        3, [conv("gat_conv", 6, 4, heads=2), {"type": "relu"}, conv("gcn_conv", 4, 5)], head=[linear(5, 2)]
    )
    module = trained(tmp_path / "M", model)
    module.save(tmp_path / "M2")
    freshet.export_model(module, tmp_path / "M3")
    freshet.to_torch(tmp_path / "M").double().save(tmp_path / "M4")
    before = (tmp_path / "M" / WEIGHTS_FILE).read_bytes()
    for folder in ("M2", "M3", "M4"):
        assert (tmp_path / folder / WEIGHTS_FILE).read_bytes() == before
        assert load_model(tmp_path / folder).sha256() == model.sha256()


def test_a_trained_module_is_a_model(tmp_path: Path) -> None:
    model = make_model(4, [conv("sage_conv", 6, 8), {"type": "relu"}, conv("gat_conv", 8, 5)], head=[linear(5, 3)])
    module, graph = trained(tmp_path / "M", model), random_graph(8)
    inputs, labels = plain_inputs(graph, edge_features=0), torch.arange(50) % 3
    optimizer, losses = torch.optim.Adam(module.parameters(), lr=0.02), []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(module.logits(module(**inputs)), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    module.save(tmp_path / "M2")
    plan = load_any_plan(tmp_path / "M2")
    assert isinstance(plan, Plan)
    rows = whole_graph.forward(plan, graph)[-1]
    with torch.no_grad():
        np.testing.assert_allclose(module(**inputs).numpy(), rows, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            module.logits(torch.from_numpy(rows)).numpy(), plan.logits(rows), rtol=1e-4, atol=1e-5
        )
    assert load_model(tmp_path / "M2").sha256() != model.sha256()
