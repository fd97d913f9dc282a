"""Times of the events of simulated jobs."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from freshet.operators.settings import Settings
from freshet.partitioner.events import NO_TS, Events


def draw_times(
    seed: int, events: Events, settings: Settings, snapshot: Events | None
) -> tuple[Events, Settings, Events | None]:
    """In a third of the cases events have times, edges expire, and most often a time may be too far ahead.

    In half of these, intervals of event time end epochs, too.
    """
    rng = random.Random(f"times {seed}")  # of its own, likewise
    if rng.random() > 0.35:
        return events, settings, snapshot
    ttl_ms = rng.choice([20, 100, 500, 3000])
    partitioning = replace(settings.partitioning, edge_ttl_ms=ttl_ms, ts_jump_ms=rng.choice([0, 30, 200]))

    def times(count: int, first: int) -> np.ndarray:
        drawn = [first + 10 * k + rng.choice([0, 0, 5, -30, -ttl_ms, -2 * ttl_ms]) for k in range(count)]
        far = [ts + 100_000 if rng.random() < 0.02 else ts for ts in drawn]
        return np.array([NO_TS if rng.random() < 0.1 else ts for ts in far], np.int64)

    if snapshot is not None:
        snapshot = replace(snapshot, ts=times(len(snapshot), -10 * len(snapshot)))
    events = replace(events, ts=times(len(events), 0))
    settings = replace(settings, partitioning=partitioning)
    if random.Random(f"intervals {seed}").random() < 0.5:
        settings = replace(settings, sealing=replace(settings.sealing, epoch_event_time_ms=rng.choice([40, 150, 1000])))
    return events, settings, snapshot
