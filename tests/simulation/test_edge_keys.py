"""Parallel edges: every layer sums over all of them, as PyTorch Geometric's do, through crashes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest

from freshet.gnn.model import Model
from freshet.gnn.pyg import oracle as pyg
from freshet.kinds import Kinds
from freshet.operators.epochs.cut_log import CutLog
from freshet.partitioner.config import STRATEGIES, GraphRules
from freshet.partitioner.events import Events
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Graph
from tests.support.graphs.keyed_streams import KeyedKindGraph, keyed_rows, with_keys
from tests.support.graphs.kind_reference import KindGraph
from tests.support.graphs.models import IN_WIDTH, all_small_models
from tests.support.graphs.streams import random_records, to_events
from tests.support.simulation.drawn import check
from tests.support.simulation.drawn_kinds import BY_DEGREES, MANY, MESSAGES, KindsCase, draw_kinds
from tests.support.simulation.oracle import NO_FAULTS, assert_exact, job_settings, run, sealed_by
from tests.support.simulation.pages import page_bytes
from tests.support.simulation.simulator import Faults, Simulation
from tests.support.stages.cuts import copied

MODELS = sorted(all_small_models())
FAULTS = Faults(barrier=0.08, tick=0.005, crashes=3, crash=0.02)


def second_opinion(model: Model, graph: Graph) -> np.ndarray:
    """The embeddings by PyTorch Geometric in float64; not of layers that it does not have."""
    rows: np.ndarray = pyg.forward(model, graph, dtype=np.float64)[-1]
    return rows


@pytest.mark.parametrize("name", MODELS)
def test_a_job_with_keys_equals_full_passes(name: str) -> None:
    seed, model = MODELS.index(name), all_small_models()[name]()
    rng, parts, kind = random.Random(f"keyed {name}"), 1 + seed % 4, ("int", "string")[seed // 4 % 2]
    records = random_records(rng, 90, IN_WIDTH, vertices=rng.choice([4, 7]), types=("a", "b") if seed % 5 == 0 else ())
    events = with_keys(to_events(records, IN_WIDTH, edge_width=model.edge_features), seed, kind)
    settings = job_settings(
        model, parts, 11, edge_keys=kind, strategy=STRATEGIES[seed // 2 % 4], undirected=seed % 7 == 3, key_bits=4
    )
    settings = sealed_by(settings, marker_interval_ms=2)
    with page_bytes(1):
        log = CutLog()
        crashed = run(settings, model, events, log, seed, FAULTS)
        calm = run(settings, model, events, copied(log), seed + 1, NO_FAULTS)
    assert _compared(model, events, crashed) > 20
    assert crashed.rows() == calm.rows()


def _compared(model: Model, events: Events, simulation: Simulation) -> int:
    """Hold all epochs against full passes, also PyTorch Geometric's where it has the layers; how many rows."""
    try:
        return assert_exact(model, events, simulation, another=lambda graph: second_opinion(model, graph))[0]
    except TypeError as error:
        assert "the PyG oracle knows no" in str(error)
        return assert_exact(model, events, simulation)[0]


def test_streams_have_parallel_edges_and_loops() -> None:
    records = random_records(random.Random(1), 90, IN_WIDTH, vertices=4)
    events = with_keys(to_events(records, IN_WIDTH), 1, "int")
    graph, most, loops = ReferenceGraph(events.features, GraphRules(edge_keys="int")), 0, 0
    for event in range(len(events)):
        graph.apply(events.slice(event, event + 1))
        arrays = graph.arrays()
        pairs = Counter(zip(arrays.src.tolist(), arrays.dst.tolist(), strict=True))
        most = max(most, *pairs.values(), 0)
        loops = max(loops, *(count for (src, dst), count in pairs.items() if src == dst), 0)
    assert most > 2 and loops > 1


class KeyedKindsCase(KindsCase):
    """A drawn job with kinds of vertices whose edges have keys."""

    def empty_graph(self, kinds: Kinds) -> KindGraph:
        """Return the graph that takes the rows."""
        return KeyedKindGraph(kinds, self.settings.partitioning.degree_relations)


@pytest.mark.parametrize("family", [0, MANY, BY_DEGREES, MESSAGES])
def test_relations_sum_over_parallel_edges(family: int) -> None:
    crashes = 0
    for seed in range(3):
        case = draw_kinds(seed, family)
        kind = ("int", "string")[seed % 2]
        events = with_keys(case.events, seed, kind)
        settings = replace(case.settings, partitioning=replace(case.settings.partitioning, edge_keys=kind))
        given = {one.name: getattr(case, one.name) for one in fields(case)}
        given |= {"events": events, "settings": settings, "rows": tuple(keyed_rows(case.rows, events))}
        result = check(KeyedKindsCase(**given))
        assert result.rows > 20
        crashes += result.crashes
    assert crashes
