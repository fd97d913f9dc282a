"""How parts lie on tasks changes nothing: every epoch has the same bits, also where a job goes on with other tasks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, repeat
from unittest.mock import patch

import pytest

from freshet.gnn.plan import compile_plan
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.graph import part_columns
from freshet.partitioner import graph_tables
from tests.support.graphs.models import IN_WIDTH, all_small_models
from tests.support.graphs.streams import random_records, to_events
from tests.support.simulation.dealt_tasks import Tasks, check_tasks
from tests.support.simulation.drawn import draw
from tests.support.simulation.drawn_kinds import MESSAGES, draw_kinds
from tests.support.simulation.oracle import NO_FAULTS, assert_exact, job_settings
from tests.support.simulation.simulator import Faults, Simulation
from tests.support.stages.cuts import copied

PARTS = 64
LISTED = [
    "graph_conv-sum-2-layers",
    "sage_conv-several-moments-2-layers",
    "graph_conv-max-2-layers",
    "gat_conv-4-heads",
    "gine_conv-default-2-layers",
]


def simulated(name: str, tasks: Iterator[Tasks], faults: Faults, log: CutLog) -> Simulation:
    """A job of 64 parts whose attempts have these numbers of tasks."""
    model = all_small_models()[name]()
    records = random_records(random.Random(name), 160, IN_WIDTH, vertices=30)
    events = to_events(records, IN_WIDTH, edge_width=model.edge_features)
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


def tables_of(simulation: Simulation) -> set[str]:
    """The names of all operators' tables."""
    stages = [simulation._partitioner, *simulation._stages.values()]
    return {table.name for stage in stages for table in stage.core.tables}


@pytest.mark.parametrize("name", LISTED)
def test_lists_of_parts_have_the_bits_of_columns(name: str) -> None:
    """On several tasks, and through crashes."""
    log = CutLog()
    with patch.object(graph_tables, "DENSE_PARTS", PARTS), patch.object(part_columns, "DENSE_PARTS", PARTS):
        columns = simulated(name, repeat(2), NO_FAULTS, log)
    assert {"lists", "replica.head"}.isdisjoint(tables_of(columns))
    faults = Faults(barrier=0.02, tick=0.01, crashes=3, crash=0.012)
    lists = simulated(name, repeat(3), faults, copied(log))
    assert {"lists", "replica.head", "index.head"} <= tables_of(lists)
    assert lists.crashes == 3
    assert lists.rows() == columns.rows()


def test_a_job_goes_on_with_other_tasks() -> None:
    name, log = "graph_conv-mean-2-layers", CutLog()
    whole = simulated(name, repeat(1), NO_FAULTS, log).rows()
    faults = Faults(barrier=0.02, tick=0.01, crashes=3, crash=0.012)
    moved = simulated(name, chain([1, 4, 2], repeat(7)), faults, copied(log))
    assert moved.crashes == 3
    assert moved.rows() == whole


def test_each_layer_has_tasks_of_its_own() -> None:
    """More or fewer than the layer before, in other places, and after each crash in others."""
    name, log = "gcn_conv-default-2-layers", CutLog()
    whole = simulated(name, repeat(1), NO_FAULTS, log).rows()
    for tasks in ([1, 3], [3, 5]):
        assert simulated(name, repeat(tasks), NO_FAULTS, copied(log)).rows() == whole, f"{tasks} tasks"
    faults = Faults(barrier=0.02, tick=0.01, crashes=3, crash=0.012)
    dealt: list[Tasks] = [[3, 1], 2, [1, 4]]
    moved = simulated(name, chain(dealt, repeat(3)), faults, copied(log))
    assert moved.crashes == 3
    assert moved.rows() == whole


@pytest.mark.parametrize("seed", range(6))
def test_drawn_jobs_have_the_same_bits_on_any_tasks(seed: int) -> None:
    """1,000 of them: `scripts/drills/simulate.py --seed 0 --count 1000 --parts 64`."""
    assert check_tasks(draw(seed), PARTS).epochs > 3


@pytest.mark.parametrize("family", [0, MESSAGES])
def test_jobs_with_kinds_have_the_same_bits_on_any_tasks(family: int) -> None:
    assert check_tasks(draw_kinds(0, family), 4).epochs > 3
