"""A sweep that is broken on purpose: a page never becomes durable."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from freshet.state.sweep import Mutations, Sweeper
from tests.support.simulation.simulator import Simulation

# Not the Partitioner's: without a page of its edges it would follow links in circles.
_TABLES = {
    "FeatureStorage": ["x", "flags"],
    "LayerStorage": ["z", "s", "note", "flags", "in.head", "x"],
    "LayerTail": ["partial", "index", "flags", "x"],
}
_TABLES_OF_KINDS = {  # of the first kind and relation
    "FeatureStorage": ["k0.x", "k0.flags"],
    "LayerStorage": ["r0.z", "r0.s", "r0.in.head", "k0.flags", "k0.x"],
    "LayerTail": ["r0.partial", "k0.flags", "k0.x"],
}


class LeavesPagesOut(Sweeper):
    """A sweep that leaves one page out: always the same one."""

    left_out = ""

    def mark(self, epoch: int) -> dict[int, Mutations]:
        return self._without(super().mark(epoch))

    def step(self) -> dict[int, Mutations]:
        return self._without(super().step())

    def _without(self, changes: dict[int, Mutations]) -> dict[int, Mutations]:
        for out in changes.values():
            out.puts = [(key, value) for key, value in out.puts if not key.startswith(f"{self.left_out}@")]
        return changes


def leave_a_page_out(seed: int, parts: int, *, with_kinds: bool = False) -> Callable[[Simulation], None]:
    """The first page of one table of one operator never becomes durable."""
    rng = random.Random(f"page {seed}")

    def hook(simulation: Simulation) -> None:
        tables = _TABLES_OF_KINDS if with_kinds else _TABLES
        kind = rng.choice([*tables][: 3 if parts > 1 else 2])
        table, before = rng.choice(tables[kind]), simulation.on_stage

        def on_stage(stage: Any) -> None:
            before(stage)
            if type(stage.core).__name__ == kind:
                stage.sweeper.__class__ = LeavesPagesOut
                stage.sweeper.left_out = f"{table}/0"

        simulation.on_stage = on_stage

    return hook
