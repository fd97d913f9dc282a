"""Types and widths that the Partitioner bounds, through crashes and restores: the same is refused again."""

from __future__ import annotations

import random

import pytest

from freshet.operators.epochs.cut_log import CutLog
from freshet.partitioner.config import GraphRules
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features
from tests.support.graphs.models import IN_WIDTH, all_small_models
from tests.support.graphs.streams import random_records, to_events
from tests.support.simulation.oracle import NO_FAULTS, assert_exact, job_settings, run, sealed_by
from tests.support.simulation.pages import page_bytes
from tests.support.simulation.simulator import Faults
from tests.support.stages.cuts import copied

FAULTS = Faults(barrier=0.05, tick=0.005, crashes=4, crash=0.03)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_refused_is_refused_again_after_a_crash(seed: int) -> None:
    rng = random.Random(f"types {seed}")
    records = random_records(rng, 150, IN_WIDTH, vertices=7, types=tuple("abcdefgh"), strings=seed % 2 == 1)
    for record in records:
        if record["op"] == "add_edge" and rng.random() < 0.2:
            record["attr"] = [1.0] * rng.randint(1, 2)
    events = to_events(records, IN_WIDTH)
    graph = ReferenceGraph(Features(IN_WIDTH), GraphRules(types_max=3))
    graph.apply(events)
    assert graph.rejected > 5
    model = all_small_models()["graph_conv-mean-2-layers"]()
    settings = job_settings(model, 3, 7, types_max=3, id_kind="string" if seed % 2 else "int")
    settings = sealed_by(settings, marker_interval_ms=4)
    with page_bytes(64):
        log = CutLog()
        whole = run(settings, model, events, log, seed, NO_FAULTS)
        assert assert_exact(model, events, whole)[0] > 100
        crashed = run(settings, model, events, copied(log), seed, FAULTS)
    assert crashed.crashes > 0
    assert crashed.rows() == whole.rows()
