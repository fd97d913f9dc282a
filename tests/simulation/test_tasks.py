"""How parts lie on tasks changes nothing: every epoch has the same bits, also where a job goes on with other tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from gnn.plan import compile_plan
from operators.epochs.cut_log import CutLog
from tests.support.cuts import copied
from tests.support.dealt_tasks import check_tasks
from tests.support.models import IN_WIDTH, all_small_models
from tests.support.oracle import NO_FAULTS, assert_exact, job_settings
from tests.support.simulated import draw
from tests.support.simulation import Faults, Simulation
from tests.support.streams import random_records, to_events

PARTS = 64


def simulated(name: str, tasks: Iterator[int], faults: Faults, log: CutLog) -> Simulation:
    """A job of 64 parts whose attempts have these numbers of tasks."""
    model = all_small_models()[name]()
    events = to_events(random_records(random.Random(name), 160, IN_WIDTH, vertices=30), IN_WIDTH)
    settings = job_settings(model, PARTS, 16, hybrid_threshold=2)
    simulation = Simulation(settings, compile_plan(model), events, log, 1, faults)
    simulation.tasks = lambda: next(tasks)
    simulation.run()
    if faults is NO_FAULTS:
        assert assert_exact(model, events, simulation)[0] > 100
    return simulation


@pytest.mark.parametrize("name", ["graph_conv-mean-2-layers", "gcn_conv-default-2-layers"])
def test_64_parts_on_any_number_of_tasks(name: str) -> None:
    log = CutLog()
    alone = simulated(name, repeat(1), NO_FAULTS, log).rows()
    for tasks in (2, 4):
        assert simulated(name, repeat(tasks), NO_FAULTS, copied(log)).rows() == alone, f"{tasks} tasks"


def test_a_job_goes_on_with_other_tasks() -> None:
    name, log = "graph_conv-mean-2-layers", CutLog()
    whole = simulated(name, repeat(1), NO_FAULTS, log).rows()
    faults = Faults(barrier=0.02, tick=0.01, crashes=3, crash=0.004)
    moved = simulated(name, chain([1, 4, 2], repeat(7)), faults, copied(log))
    assert moved.crashes == 3
    assert moved.rows() == whole


@pytest.mark.parametrize("seed", range(6))
def test_drawn_jobs_have_the_same_bits_on_any_tasks(seed: int) -> None:
    """1,000 of them: `scripts/simulate.py --seed 0 --count 1000 --parts 64`."""
    assert check_tasks(draw(seed), PARTS).epochs > 3
