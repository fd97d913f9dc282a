"""Any stream, through any model, parts, partitioner and epoch cuts, equals a full recompute after every epoch."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from freshet.partitioner.config import STRATEGIES
from tests.support.graphs.models import IN_WIDTH, all_small_models, exact_small_models, make_model, seeds_of
from tests.support.graphs.streams import random_records, to_events
from tests.support.simulation.oracle import NO_FAULTS, assert_exact, cuts_of, job_settings, run

MODELS = all_small_models()
EXACT = exact_small_models()
RELAXED = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))

IDS = st.integers(0, 6)
VALUES = st.lists(st.integers(-2, 2).map(float), min_size=IN_WIDTH, max_size=IN_WIDTH)
WEIGHTS = st.sampled_from([1, 2, -1, 0, 3])
TYPES = st.sampled_from([None, "a", "b"])


def _edge(op: str, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"op": st.just(op), "src": IDS, "dst": IDS}, optional=more)


def _vertex(op: str, features: str | None) -> st.SearchStrategy[dict[str, Any]]:
    always: dict[str, Any] = {"op": st.just(op), "id": IDS}
    return st.fixed_dictionaries(
        always | ({"x": VALUES} if features == "always" else {}), optional={"x": VALUES} if features == "maybe" else {}
    )


def streams(typed: bool) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Event lists over seven vertices, which hypothesis can shrink."""
    types = {"type": TYPES} if typed else {}
    edge_adds = _edge("add_edge", weight=WEIGHTS, **types)
    return st.lists(
        st.one_of(
            edge_adds,
            edge_adds,
            edge_adds,
            _edge("del_edge", **types),
            _vertex("add_vertex", "maybe"),
            _vertex("set_features", "always"),
            _vertex("del_vertex", None),
        ),
        min_size=1,
        max_size=40,
    )


SHAPES = st.fixed_dictionaries(
    {
        "parts": st.integers(1, 4),
        "strategy": st.sampled_from(STRATEGIES),
        "cuts": st.lists(st.integers(1, 9), min_size=1, max_size=4),
        "undirected": st.booleans(),
        "strings": st.booleans(),
        "seed": st.integers(0, 1000),
    }
)


def _check(model: Any, records: list[dict[str, Any]], shape: dict[str, Any], *, bitwise: bool) -> None:
    if shape["strings"]:
        ids = ("id", "src", "dst")
        records = [{k: f"n{v}" if k in ids else v for k, v in record.items()} for record in records]
    events = to_events(records, IN_WIDTH, tuple(model.edge_types), edge_width=model.edge_features)
    kind = "string" if shape["strings"] else "int"
    options = {name: shape[name] for name in ("strategy", "undirected")}
    settings_ = job_settings(model, shape["parts"], **options, id_kind=kind)
    simulation = run(settings_, model, events, cuts_of(shape["cuts"], len(events)), shape["seed"], NO_FAULTS)
    assert_exact(model, events, simulation, bitwise=bitwise)


@RELAXED
@given(name=st.sampled_from(sorted(EXACT)), records=streams(typed=True), shape=SHAPES)
def test_integer_streams_are_exact(name: str, records: list[dict[str, Any]], shape: dict[str, Any]) -> None:
    note(name)
    _check(EXACT[name](), records, shape, bitwise=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_on_random_streams(name: str) -> None:
    model = MODELS[name]()
    compared = 0
    seeds = seeds_of(name, MODELS)
    for seed in seeds:
        rng = random.Random(f"{name}{seed}")
        shape = {
            "parts": 1 + seed,
            "strategy": STRATEGIES[(seed + len(name)) % 4],
            "cuts": [rng.randint(1, 40) for _ in range(3)],
            "undirected": rng.random() < 0.3,
            "seed": seed,
        }
        types = ("a", "b") if rng.random() < 0.4 else ()
        strings = rng.random() < 0.4
        records = random_records(rng, 150, IN_WIDTH, types=types, strings=strings)
        events = to_events(records, IN_WIDTH, edge_width=model.edge_features)
        options = {key: shape[key] for key in ("strategy", "undirected")}
        settings_ = job_settings(model, int(shape["parts"]), **options, id_kind="string" if strings else "int")
        log = cuts_of(list(shape["cuts"]), len(events))
        compared += assert_exact(model, events, run(settings_, model, events, log, seed, NO_FAULTS))[0]
    assert compared > 12 * len(seeds)


def test_a_typed_model_takes_its_types() -> None:
    model = make_model(
        1, [{"type": "graph_conv", "in_channels": IN_WIDTH, "out_channels": 3}], edge_types=["cites", "likes"]
    )
    records = random_records(random.Random(5), 120, IN_WIDTH, types=("cites", "likes"))
    events = to_events(records, IN_WIDTH, ("cites", "likes"))
    simulation = run(job_settings(model, 3), model, events, cuts_of([7, 20], len(events)), 1, NO_FAULTS)
    assert assert_exact(model, events, simulation)[0] > 50


def test_a_hub_passes_the_threshold_and_comes_back() -> None:
    """In-degree 1 to 60 and down to 2 again with a threshold of 3: whole, split, whole."""
    model = MODELS["graph_conv-mean-2-layers"]()
    features = random_records(random.Random(1), 0, IN_WIDTH)
    records: list[dict[str, Any]] = [*features]
    for k in range(60):
        records.append({"op": "set_features", "id": k + 1, "x": [float((k * 7 + j) % 5 - 2) for j in range(IN_WIDTH)]})
        records.append({"op": "add_edge", "src": k + 1, "dst": 0})
    records += [{"op": "del_edge", "src": k + 1, "dst": 0} for k in range(58)]
    events = to_events(records, IN_WIDTH)
    simulation = run(job_settings(model, 4), model, events, cuts_of([5], len(events)), 2, NO_FAULTS)
    assert assert_exact(model, events, simulation)[0] > 500


@pytest.mark.parametrize("name", ["graph_conv-sum-narrowing", "gine_conv-default-narrowing"])
def test_a_huge_feature_that_goes_leaves_nothing_behind(name: str) -> None:
    """A sum that held 1e7 has lost the small terms' bits; it is recomputed when the term goes."""
    model = MODELS[name]()
    small, huge = [0.1] * IN_WIDTH, [1e7] * IN_WIDTH
    records = [{"op": "add_edge", "src": k, "dst": 0} for k in range(1, 6)]
    records += [{"op": "set_features", "id": k, "x": small} for k in range(1, 6)]
    records += [{"op": "set_features", "id": 1, "x": huge}, {"op": "set_features", "id": 1, "x": small}]
    events = to_events(records, IN_WIDTH, edge_width=model.edge_features)
    simulation = run(job_settings(model, 2), model, events, cuts_of([1], len(events)), 3, NO_FAULTS)
    assert assert_exact(model, events, simulation)[0] > 20


def test_values_that_overflow_are_recomputed_when_they_go() -> None:
    """Infinity minus infinity must not stay behind as NaN."""
    model = MODELS["graph_conv-sum-2-layers"]()
    rows = [[3e38] * IN_WIDTH, [1.0] * IN_WIDTH]
    records = [{"op": "add_edge", "src": k, "dst": 0} for k in range(1, 4)]
    records += [{"op": "add_edge", "src": 0, "dst": 4}]
    records += [{"op": "set_features", "id": k, "x": rows[0]} for k in range(1, 4)]
    records += [{"op": "set_features", "id": k, "x": rows[1]} for k in range(1, 4)]
    events = to_events(records, IN_WIDTH)
    simulation = run(job_settings(model, 2), model, events, cuts_of([1], len(events)), 4, NO_FAULTS)
    last = simulation.rows()
    assert last
    _, graph = list(_graphs(events, simulation))[-1]
    assert len(graph.ids) == 5
    assert_last(model, events, simulation)


def _graphs(events: Any, simulation: Any) -> Any:
    from tests.support.simulation.oracle import references

    return references(events, simulation.log, simulation.settings)


def assert_last(model: Any, events: Any, simulation: Any) -> None:
    """Only the last epoch: in between, float64 holds what float32 does not."""
    import numpy as np

    from tests.support import oracle
    from tests.support.simulation.simulator import embeddings_after

    epoch, graph = _graphs(events, simulation)[-1]
    got = embeddings_after(simulation.rows(), epoch)
    want = oracle.forward(model, graph.graph)[-1]
    np.testing.assert_allclose(np.stack([got[key] for key in graph.ids]), want, rtol=1e-4, atol=1e-4)
