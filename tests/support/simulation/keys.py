"""Keys of edges in simulated jobs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from freshet.operators.settings import Settings
from freshet.partitioner.events import Events
from tests.support.graphs.keyed_streams import with_keys


def draw_keys(
    seed: int, events: Events, settings: Settings, snapshot: Events | None, kinds: Sequence[str] = ("int", "string")
) -> tuple[Events, Settings, Events | None]:
    """In a third of the cases edges have keys, some of one hash."""
    rng = random.Random(f"draws keys {seed}")  # of its own: the other cases stay what they were
    if rng.random() > 0.35:
        return events, settings, snapshot
    return keyed(seed, rng.choice(kinds), events, settings, snapshot)


def keyed(
    seed: int, kind: str, events: Events, settings: Settings, snapshot: Events | None = None
) -> tuple[Events, Settings, Events | None]:
    """Return the same with keys of that kind."""
    options = settings.partitioning
    if snapshot is not None:  # of which no edge may be rejected
        one_loop = options.forbid_typed_loops or options.one_loop_relations
        snapshot = with_keys(snapshot, -1 - seed, kind, loops=not one_loop)
    partitioning = replace(options, edge_keys=kind, key_bits=(4, 64)[seed % 2])
    return with_keys(events, seed, kind), replace(settings, partitioning=partitioning), snapshot
