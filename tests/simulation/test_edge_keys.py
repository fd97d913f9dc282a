"""Parallel edges: every layer sums over all of them, as PyTorch Geometric's do, through crashes.

Drawn jobs (test_simulation.py, test_kinds.py) have keys, too: these are held against a run without crashes.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from freshet.gnn.model import Model
from freshet.gnn.pyg import oracle as pyg
from freshet.operators.epochs.cut_log import CutLog
from freshet.partitioner.config import STRATEGIES, GraphRules
from freshet.partitioner.events import Events
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Graph
from tests.support.graphs.keyed_streams import with_keys
from tests.support.graphs.models import IN_WIDTH, all_small_models
from tests.support.graphs.streams import random_records, to_events
from tests.support.simulation.oracle import assert_exact, job_settings, run, sealed_by
from tests.support.simulation.pages import page_bytes
from tests.support.simulation.simulator import Faults, Simulation

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
        assert _compared(model, events, run(settings, model, events, CutLog(), seed, FAULTS)) > 20


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
