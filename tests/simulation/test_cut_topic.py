"""Simulated jobs whose cut log is a topic: crashes, and attempts that were thought dead and cut once more."""

from __future__ import annotations

from typing import Any

import pytest

from freshet.operators.epochs.cut import Cut
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.cut_segments import FencedError
from freshet.operators.epochs.cut_topic import CutTopic
from tests.support.simulation.drawn import draw, eager, simulate
from tests.support.simulation.oracle import assert_exact
from tests.support.simulation.simulator import Simulation
from tests.support.stages.channels import ChannelInMemory, TopicInMemory


def test_every_epoch_is_exact_through_crashes() -> None:
    assert sum(crashes(seed) for seed in range(4)) > 4


def crashes(seed: int) -> int:
    """How often the job of this seed crashed; every epoch equals the oracle."""
    case, topic = eager(draw(seed)), TopicInMemory()

    def reopen(simulation: Any) -> None:
        before = simulation.log
        simulation.log = CutTopic(ChannelInMemory(topic), "")
        with pytest.raises(FencedError):
            before.append(Cut(before.last + 1, 1 << 40, True))

    def hook(simulation: Simulation) -> None:
        simulation.log = CutTopic(ChannelInMemory(topic), "")  # type: ignore[assignment]
        simulation.before_restore = lambda: reopen(simulation)

    run = simulate(case, CutLog(), case.seed, case.faults, hook)
    cuts = CutLog()
    for epoch in range(1, run.log.last + 1):
        cuts.append(run.log.cut_of(epoch))
    run.log = cuts
    assert_exact(case.plan_model, case.events, run, bitwise=case.exact, snapshot=case.snapshot)
    return run.crashes
