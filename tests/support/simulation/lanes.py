"""The lanes of a simulated job's input, and who reads them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from freshet.operators.epochs.cut import FILES, Lane
from freshet.operators.settings import Settings
from freshet.partitioner.events import Events

if TYPE_CHECKING:
    from tests.support.simulation.simulator import Simulation

READERS_MAX = 3


def lanes_of(events: Events, topics: Sequence[int]) -> dict[Lane, Events]:
    """The events of each lane in order: those of all files, and of each partition of each topic."""
    if not topics:
        return {FILES: events}
    rows: dict[Lane, list[int]] = {}
    for row, place in enumerate(zip(events.source.tolist(), events.partition.tolist(), strict=True)):
        rows.setdefault(place if place[0] in topics else FILES, []).append(row)
    found = {}
    for lane, chosen in sorted(rows.items()):
        one = Events.concatenate([events.slice(row, row + 1) for row in chosen])
        last = int(one.position[-1]), int(one.source[-1]), int(one.partition[-1])
        found[lane] = replace(one, end_position=last[0], end_source=last[1], end_partition=last[2])
    return found


def has_readers(settings: Settings, seed: int) -> bool:
    """Return whether a seed draws readers of the topic, as in two thirds of the cases that have one."""
    return bool(settings.topics) and random.Random(f"readers {seed}").random() < 2 / 3


def draw_readers(simulation: Simulation, seed: int) -> None:
    """Draw how many readers each attempt has, and for the last partition when it is added."""
    rng = random.Random(f"number of readers {seed}")  # of its own: a schedule does not depend on it
    simulation.readers = lambda: rng.randint(1, READERS_MAX)
    if len(simulation.lanes) > 1:
        simulation.appears[len(simulation.lanes) - 1] = rng.choice([0, 100, 1000])
