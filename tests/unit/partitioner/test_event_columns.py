"""Epochs that are ranges of one block are as if each were a block of its own: the same bytes, tables and rejects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.kinds import Kinds, Relation
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import EventRange, Events
from freshet.partitioner.net_change import EpochChange
from freshet.schema import Features
from freshet.state.codec import encode

CTL = np.zeros(9, np.int64)
IDS: dict[str, list[Any]] = {"int": [0, 7, -3, 2**40, 5], "string": ["a", "bb", "", "c" * 30, "d"]}
KEYS: dict[str, list[Any]] = {"int": [None, 1, 2], "string": [None, "k", "l" * 20]}
KINDS = Kinds(("user", "item"), (1, 2), (Relation(0, "buys", 1), Relation(1, "like", 1, 2)))


def told(core: Partitioner, change: EpochChange, epoch: int) -> list[Any]:
    blocks = [encode(block.header, block.columns) for block in core.split(change, CTL, epoch)]
    return [*blocks, change.rejected, change.effects, change.event_ts]


def tables_of(core: Partitioner) -> dict[str, Any]:
    return {table.name: (table.data.tobytes(), table.part_rows.tolist()) for table in core.tables}


def draw_rows(rng: np.random.Generator, ids: list[Any], types: list[Any], attrs: list[Any], features: Features) -> Any:
    """Events of all kinds on few vertices."""

    def one() -> Any:
        return ids[rng.integers(len(ids))]

    def row() -> tuple[Any, ...]:
        op = rng.choice(
            ["add_vertex", "del_vertex", "set_features", "add_edge", "del_edge"], p=[0.1, 0.1, 0.2, 0.4, 0.2]
        )
        if op in ("add_edge", "del_edge"):
            of = types[rng.integers(len(types))]
            more = (float(rng.integers(1, 4)), of, *attrs[rng.integers(len(attrs))]) if op == "add_edge" else (of,)
            return str(op), one(), one(), *more
        kind = int(rng.integers(len(features.widths)))
        vertex = (features.kinds.names[kind], one()) if features.kinds else one()
        x = rng.integers(-3, 3, features.widths[kind]).tolist()
        no_x = op == "del_vertex" or (op == "add_vertex" and rng.random() < 0.5)
        return (str(op), vertex) if no_x else (str(op), vertex, x)

    return [row() for _ in range(rng.integers(1, 40))]


GRAPHS: dict[str, tuple[dict[str, Any], Features, list[Any], list[Any]]] = {
    "plain": ({}, Features(2), [None], [()]),
    "types": ({"types_max": 2}, Features(2), [None, "a", "b", "c"], [()]),
    "given types": ({"edge_types": ("a", "b")}, Features(2), ["a", "b"], [()]),
    "sizes of attr": ({"undirected": True}, Features(2), [None], [(-1,), (2,), (3,)]),
    "attributes": ({}, Features(2, 2), [None, "a"], [(), (-1, (1.0, 2.0)), (-1, (0.0, 3.0))]),
    "out-degrees": ({"out_degrees": True, "strategy": "hdrf"}, Features(2), [None], [()]),
    "kinds": ({"edge_types": KINDS.relation_names}, Features.of_kinds(KINDS), list(KINDS.relation_names), [()]),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("id_kind", sorted(IDS))
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    parts=st.integers(1, 3),
    is_timed=st.booleans(),
    key_kind=st.sampled_from(["", "int", "string"]),
)
def test_ranges_of_a_block_are_epochs(
    name: str, id_kind: str, seed: int, parts: int, is_timed: bool, key_kind: str
) -> None:
    rng, (options, features, types, attrs) = np.random.default_rng(seed), GRAPHS[name]
    rules = options | ({"edge_ttl_ms": 40, "ts_jump_ms": 30} if is_timed else {})
    config = PartitionerConfig(id_kind=id_kind, edge_keys=key_kind, **rules)
    ranged, alone = (Partitioner(parts, features, config) for _ in range(2))
    epoch = 0
    for turn in range(3):
        rows = draw_rows(rng, IDS[id_kind], types, attrs, features)
        ts = [None if rng.random() < 0.2 else 20 * turn + int(rng.integers(0, 60)) for _ in rows] if is_timed else []
        keys = [KEYS[key_kind][rng.integers(3)] if row[0] == "add_edge" else None for row in rows] if key_kind else []
        block = Events.decode(events_of(rows, features, id_kind, config.edge_types, ts=ts, keys=keys).encode())
        start = 0
        while start < len(block):
            stop = min(len(block), start + int(rng.integers(1, 4)))
            own = Events.decode(EventRange(block, start, stop).cut.encode())
            found = told(ranged, ranged.partition(block, start, stop), epoch)
            assert found == told(alone, alone.partition(own), epoch), f"{name}, seed {seed}, epoch {epoch}"
            start, epoch = stop, epoch + 1
    assert tables_of(ranged) == tables_of(alone), f"{name}, seed {seed}"


def test_an_epoch_of_no_events_between_those_of_a_block() -> None:
    core, features = Partitioner(1, Features(1)), Features(1)
    block = events_of([("add_edge", 1, 2), ("add_edge", 2, 3)], features)
    core.partition(block, 0, 1)
    assert core.partition(Events.empty(features)).rejected == []
    core.partition(block, 1, 2)
    assert core.edges == 2


def test_a_piece_that_ends_within_a_message_says_so() -> None:
    block = events_of([("add_vertex", vertex) for vertex in range(4)])
    block.position[:] = [5, 5, 6, 7]
    assert [EventRange(block, 0, stop).end for stop in range(1, 5)] == [
        (0, 0, True), (0, 0, False), (0, 0, False), (0, 0, block.end_position < 7),
    ]  # fmt: skip
