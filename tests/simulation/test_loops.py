"""Self-loops of several types, through crashes: edges like any other to the convs that add none, refused by GCN."""

from __future__ import annotations

import random
from functools import partial

import pytest

from freshet.gnn.plan import compile_plan
from freshet.operators.epochs.cut_log import CutLog
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.streams import random_records, to_events
from tests.support.simulation.oracle import assert_exact, job_settings, run, sealed_by
from tests.support.simulation.pages import page_bytes
from tests.support.simulation.simulator import Faults

FAULTS = Faults(barrier=0.05, tick=0.005, crashes=3, crash=0.02)
TYPES = ("a", "b", "c")
gcn = partial(conv, "gcn_conv", IN_WIDTH, IN_WIDTH)
hop = partial(conv, "propagation", IN_WIDTH, IN_WIDTH, add_self_loops=False)
LAYERS = {
    "no loops": [gcn(add_self_loops=False), hop()],
    "no loops, without weights": [gcn(add_self_loops=False, edge_weights=False), hop(edge_weights=False)],
    "sums": [gcn(add_self_loops=False, normalize=False), hop(normalize=False)],
}


@pytest.mark.parametrize("name", LAYERS)
def test_convs_that_add_no_loops_take_those_of_every_type(name: str) -> None:
    rng = random.Random(f"loops {name}")
    records = random_records(rng, 160, IN_WIDTH, vertices=7, types=TYPES)
    for record in records:
        if record["op"] in ("add_edge", "del_edge") and rng.random() < 0.5:
            record["dst"] = record["src"]
    events, model = to_events(records, IN_WIDTH), make_model(5, LAYERS[name])
    graph = ReferenceGraph(Features(IN_WIDTH))
    graph.apply(events)
    arrays = graph.arrays()
    loops = arrays.src[arrays.src == arrays.dst]
    assert len(loops) > len(set(loops.tolist())) > 2, "vertices with loops of several types"
    settings = sealed_by(job_settings(model, 3, 7), marker_interval_ms=4)
    assert not settings.partitioning.forbid_typed_loops
    with page_bytes(64):
        simulation = run(settings, model, events, CutLog(), 3, FAULTS)
        assert assert_exact(model, events, simulation)[0] > 100


def test_a_conv_that_adds_loops_knows_one_of_all_types() -> None:
    forbids = [layer.one_loop for layer in compile_plan(make_model(5, [gcn(), *LAYERS["no loops"]])).layers]
    assert forbids == [True, False, False]
