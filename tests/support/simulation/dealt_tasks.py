"""Random jobs of many parts, dealt to tasks in one way and another: every epoch must have the same bits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

from freshet.operators.epochs.cut_log import CutLog
from tests.support.simulation.drawn import Case, Result, simulate
from tests.support.simulation.oracle import NO_FAULTS
from tests.support.simulation.simulator import Faults, Simulation
from tests.support.stages.cuts import copied

ONE_TASK, OTHERS, MOVED = 1, (2, 4), (1, 4, 2)
Tasks = int | list[int]  # of all layers, or of each from 1 on


def run_on_tasks(case: Case, log: CutLog, tasks: Iterator[Tasks], faults: Faults) -> Simulation:
    """The case with so many tasks in each of its attempts."""

    def deal(simulation: Simulation) -> None:
        simulation.tasks = lambda: next(tasks)

    return simulate(case, log, case.seed, faults, deal)


def check_tasks(case: Case, parts: int) -> Result:
    """Run the case with so many parts on one task, on two and four, and on others after each of three crashes.

    Then with numbers of tasks that differ by layer, which a crash changes, too.

    Raises: AssertionError where an epoch is not that of the oracle, or has other bits than on one task.
    """
    case = replace(case, settings=replace(case.settings, parts=parts))
    alone = run_on_tasks(case, CutLog(), repeat(ONE_TASK), NO_FAULTS)
    rows, worst = case.judge(alone)
    expected = _told(alone)
    # of a copy, as nobody may take a log over that another attempt still has
    for tasks in OTHERS:
        found = run_on_tasks(case, copied(alone.log), repeat(tasks), NO_FAULTS)
        assert _told(found) == expected, f"{tasks} tasks"
    faults = replace(case.faults, crashes=len(MOVED), crash=case.faults.crash / 4, linger=0.0)
    moved = run_on_tasks(case, copied(alone.log), chain(MOVED, repeat(3)), faults)
    assert _told(moved) == expected, f"tasks {MOVED}, then 3, after {moved.crashes} crashes"
    layered = run_on_tasks(case, copied(alone.log), _drawn_by_layer(case), faults)
    assert _told(layered) == expected, f"tasks by layer, after {layered.crashes} crashes"
    return Result(len(expected), moved.crashes, rows, 0, 0, 0, moved.aside_bytes, worst=worst)


def _told(run: Simulation) -> dict[int, Any]:
    """The rows of every epoch that has some: a clock may cut one more, without events, behind the end of the log."""
    return {epoch: rows for epoch, rows in run.rows().items() if rows}


def _drawn_by_layer(case: Case) -> Iterator[list[int]]:
    """Numbers of tasks of each layer."""
    rng = random.Random(f"tasks by layer {case.seed}")
    while True:
        yield [min(case.settings.parts, rng.choice([1, 2, 3, 5])) for _ in case.plan.layers]
