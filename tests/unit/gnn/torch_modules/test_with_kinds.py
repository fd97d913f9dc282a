"""Modules of models with kinds, called with dicts and ids, make the rows of the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import freshet  # noqa: E402
from freshet.gnn.any_plan import load_any_plan  # noqa: E402
from freshet.gnn.kind_layers.plans import KindsPlan  # noqa: E402
from freshet.gnn.kinds.learned import digests_of  # noqa: E402
from freshet.gnn.kinds.model import KindsModel, load_any_model  # noqa: E402
from freshet.gnn.model import WEIGHTS_FILE, save_model  # noqa: E402
from freshet.gnn.oracles import kinds as oracle  # noqa: E402
from freshet.gnn.oracles import whole_kinds  # noqa: E402
from freshet.gnn.pyg.check import off  # noqa: E402
from freshet.gnn.torch_modules.loading import module_of  # noqa: E402
from freshet.kinds_graph import KindsGraph  # noqa: E402
from tests.support.graphs.gradients import assert_gradients  # noqa: E402
from tests.support.graphs.kinds import (  # noqa: E402
    by_kind,
    kinds_model,
    many_relations,
    random_kinds_graph,
    random_model_of_kinds,
    sage_everywhere,
    scaled_by_degrees,
)
from tests.support.graphs.torch_graphs import kinds_inputs, with_ids, with_parallel_edges  # noqa: E402


def assert_rows(model: KindsModel, graph: KindsGraph, ids: dict[str, Any]) -> None:
    """Compare both precisions with the oracle, at the scale of each value."""
    module = module_of(model)
    inputs = [kinds_inputs(model, graph, ids, real=one) for one in (torch.float32, torch.float64)]
    with torch.no_grad():
        rows, exact = module(**inputs[0]), module.double()(**inputs[1])
    expected = oracle.forward(model, graph)
    assert list(rows) == list(exact) == model.out == list(expected)
    assert off([one.numpy() for one in rows.values()], [*expected.values()]) < 1e-5
    assert off([one.numpy() for one in exact.values()], [*oracle.forward(model, graph, tolerance=1e-9).values()]) < 1e-9
    assert module_of(model).model().sha256() == model.sha256()


@pytest.mark.parametrize("seed", range(40))
def test_random_models(seed: int) -> None:
    model = random_model_of_kinds(seed, strings=seed % 4 == 2)
    graph, ids = with_ids(model, random_kinds_graph(model, seed, vertices=25, edges=60), seed)
    assert_rows(model, graph, ids)
    assert_rows(model, graph._replace(edges=[with_parallel_edges(one, seed) for one in graph.edges]), ids)


@pytest.mark.parametrize("seed", range(0, 24))
def test_gradients_are_differences(seed: int) -> None:
    model = random_model_of_kinds(seed, strings=seed % 4 == 2)
    graph, ids = with_ids(model, random_kinds_graph(model, seed, vertices=16, edges=30), seed)
    module, inputs = module_of(model).double(), kinds_inputs(model, graph, ids, real=torch.float64)
    assert_gradients(module, lambda: [*module(**inputs).values()], seed)


@pytest.mark.parametrize("seed", range(4))
def test_more_than_eight_types_and_degrees_of_relations(seed: int) -> None:
    for model in (many_relations(seed), scaled_by_degrees(seed)):
        assert_rows(model, random_kinds_graph(model, seed), {})


def test_a_kind_and_a_relation_without_vertices_and_edges() -> None:
    model = random_model_of_kinds(3)
    for vertices, edges in ((25, 0), (25, 3), (21, 1)):
        graph, ids = with_ids(model, random_kinds_graph(model, 1, vertices=vertices, edges=edges), 1)
        assert_rows(model, graph, ids)
    empty = KindsGraph(
        [x[:0] for x in graph.x], [type(one)(one.src[:0], one.dst[:0], one.values[:0]) for one in graph.edges]
    )
    assert_rows(model, *with_ids(model, empty, 1))


ODD = ["type", "forward", "a.b", "ü – 'x'", "weights", "0"]


def odd_model() -> KindsModel:
    """Return a model whose kinds are named as attributes of modules are, or have dots in their names."""
    kinds = {name: 2 + k for k, name in enumerate(ODD)}
    relations = [{"source": a, "type": f"to.{b}", "target": b} for a, b in zip(ODD, ODD[1:] + ODD[:1], strict=True)]
    layers = [
        by_kind(
            **{name: [{"type": "linear", "in_channels": width, "out_channels": 4}] for name, width in kinds.items()}
        ),
        sage_everywhere(dict.fromkeys(kinds, 4), 3, relations),
        by_kind(**{name: [{"type": "layer_norm", "channels": 3}, {"type": "relu"}] for name in kinds}),
    ]
    heads = {name: [{"type": "linear", "in_channels": 3, "out_channels": 2}] for name in ODD}
    return kinds_model(layers, ODD, kinds, relations, heads=heads)


def test_kinds_may_have_any_names(tmp_path: Path) -> None:
    model = odd_model()
    graph = random_kinds_graph(model, 2, vertices=50)
    assert_rows(model, graph, {})
    save_model(model, tmp_path / "M")
    module = freshet.to_torch(tmp_path / "M")
    state = module.state_dict()
    assert list(state) == sorted(model.weights, key=list(state).index)
    assert set(state) == set(model.weights)
    other = module_of(odd_model().model_copy(update={"weights": {n: 0 * w for n, w in model.weights.items()}}))
    other.load_state_dict(state)
    module.save(tmp_path / "M2")
    other.save(tmp_path / "M3")
    for folder in ("M2", "M3"):
        assert (tmp_path / folder / WEIGHTS_FILE).read_bytes() == (tmp_path / "M" / WEIGHTS_FILE).read_bytes()
    rows = module(**kinds_inputs(model, graph))
    logits = oracle.logits(model, oracle.forward(model, graph))
    for kind, want in zip(ODD, logits, strict=True):
        assert off([module.logits(rows[kind], kind).detach().numpy()], [want]) < 1e-5


def test_learned_rows_are_trained_and_found_by_a_job(tmp_path: Path) -> None:
    model = random_model_of_kinds(2, strings=True)
    assert model.learned
    graph, ids = with_ids(model, random_kinds_graph(model, 5), 5)
    save_model(model, tmp_path / "M")
    module = freshet.to_torch(tmp_path / "M")
    inputs, losses = kinds_inputs(model, graph, ids), []
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        loss = sum(one.square().mean() for one in module(**inputs).values())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    kind = next(iter(model.learned))
    name = f"learned.{kind}.rows"
    asked = model.learned_rows()[kind].find(digests_of(one.encode() for one in ids[kind]))[1]
    assert asked.any()
    assert not asked.all(), "some ids are not known"
    module.save(tmp_path / "M2")
    saved = load_any_model(tmp_path / "M2")
    assert isinstance(saved, KindsModel)
    assert (saved.weights[name] != model.weights[name]).any()
    graph, _ = with_ids(saved, graph, 5)
    plan = load_any_plan(tmp_path / "M2")
    assert isinstance(plan, KindsPlan)
    rows = whole_kinds.forward(plan, graph)[-1]
    with torch.no_grad():
        for of, want in module(**inputs).items():
            np.testing.assert_allclose(want.numpy(), rows[list(model.kinds).index(of)], rtol=1e-4, atol=1e-5)
