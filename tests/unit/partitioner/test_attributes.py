"""Attributes of edges in the Partitioner: the last add of an epoch holds, and no table has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import Events
from freshet.partitioner.graph_tables import EDGE_WIDTH
from freshet.schema import Features
from freshet.state.codec import Block
from freshet.state.task_parts import TaskParts

FEATURES, CTL = Features(1, 2), np.zeros(8, np.int64)
A, B, ZEROS = (1.0, 2.0), (1.0, 3.0), (0.0, 0.0)


def add(src: int, dst: int, attr: tuple[float, ...] | None = None, weight: float = 1.0, kind: str | None = None) -> Any:
    return "add_edge", src, dst, weight, kind, *(() if attr is None else (-1, attr))


class Told:
    """A Partitioner, and what it says of each epoch's edges, by group."""

    def __init__(self, parts: int = 1, **options: Any) -> None:
        tasks = TaskParts.dealt(parts, 1)
        self.core = Partitioner(parts, FEATURES, PartitionerConfig(**options), tasks)

    def block(self, *rows: Any) -> Block:
        change = self.core.partition(Events.decode(events_of(rows, FEATURES).encode()))
        (block,) = self.core.split(change, CTL, 0)
        return block

    def epoch(self, *rows: Any) -> dict[str, list[Any]]:
        block, found = self.block(*rows), dict[str, list[Any]]()
        for group in ("add", "rew"):
            if block.get(f"{group}_src").size:
                found[group] = list(map(tuple, block.get(f"{group}_attr").tolist()))
        if block.get("del_src").size:
            found["del"] = block.get("del_type").tolist()
        return found


def test_the_last_add_of_an_epoch_holds() -> None:
    told = Told()
    assert told.epoch(add(1, 2, A), add(1, 2, B), add(2, 1)) == {"add": [B, ZEROS]}
    assert told.epoch(add(1, 2, A)) == {"rew": [A]}, "its attributes alone may have changed"
    assert told.epoch(add(1, 2, A)) == {"rew": [A]}, "whether they have, who keeps them knows"
    assert told.epoch(add(1, 2)) == {"rew": [ZEROS]}
    assert told.epoch(("del_edge", 1, 2), add(1, 2, B)) == {"rew": [B]}
    assert told.epoch(add(1, 2, A), ("del_edge", 1, 2)) == {"del": [0]}
    assert told.epoch(add(1, 2, A), ("del_edge", 1, 2)) == {}
    assert told.epoch(("del_vertex", 2), add(2, 1, B)) == {"rew": [B]}


def test_only_a_weight_that_changes_is_a_new_context() -> None:
    told = Told()
    told.epoch(add(1, 2, A))
    assert not told.block(add(1, 2, B)).get("c_slot").size
    block = told.block(add(1, 2, A, 3.0))
    assert block.get("c_degree").tolist() == [3.0]
    assert (block.get("rew_old").tolist(), block.get("rew_new").tolist()) == ([1.0], [3.0])


def test_edges_of_one_pair_are_told_apart_by_their_types() -> None:
    told = Told()
    block = told.block(add(1, 2, A), add(1, 2, B, kind="a"), add(1, 2, kind="b"))
    assert sorted(zip(block.get("add_type").tolist(), map(tuple, block.get("add_attr").tolist()), strict=True)) == [
        (0, A), (1, B), (2, ZEROS),
    ]  # fmt: skip
    block = told.block(add(1, 2, A, kind="b"), ("del_edge", 1, 2, "a"))
    assert (block.get("rew_type").tolist(), block.get("del_type").tolist()) == ([2], [1])


def test_undirected_edges_have_their_attributes_both_ways() -> None:
    told = Told(undirected=True)
    assert told.epoch(add(1, 2, A), add(3, 3, B)) == {"add": [A, A, B]}
    assert told.epoch(add(2, 1, B)) == {"rew": [B, B]}


@pytest.mark.parametrize("parts", [1, 3, 20])
def test_no_table_has_them_and_a_row_stays_forty_bytes(parts: int) -> None:
    rows = [add(k % 7, k % 5, (k / 2, -k / 4)) for k in range(40)]
    told, plain = Told(parts), Partitioner(parts, Features(1), PartitionerConfig(), TaskParts.dealt(parts, 1))
    told.core.partition(events_of(rows, FEATURES))
    plain.partition(events_of([row[:5] for row in rows], Features(1)))
    assert EDGE_WIDTH == 10
    for name in ("edge", "vertex", "scalars", "parts"):
        assert told.core.tables[name].data.tobytes() == plain.tables[name].data.tobytes(), name
    places = told.core.edge_places()
    assert places.shape == (5, told.core.edges) and len(np.unique(places, axis=1).T) == told.core.edges
