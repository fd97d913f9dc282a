"""A snapshot's events in files come back as they went, keys of edges among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.operators.initial.graph_events import read_events, write_events
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.ids import NO_KEY
from freshet.schema import Features

FEATURES = Features(1)


@pytest.mark.parametrize(("kind", "keys"), [("int", [5, None, -7]), ("string", ["a", None, "ä" * 9])])
def test_keys_of_edges(tmp_path: Path, kind: str, keys: list[Any]) -> None:
    edges = [("add_edge", 1, 2), ("add_edge", 1, 2), ("add_edge", 1, 3)]
    blocks = [events_of([("add_vertex", 1, [2.0])]), events_of(edges, keys=keys), events_of(edges[:1])]
    write_events(blocks, tmp_path / "events", FEATURES, "int", lambda _: None, key_kind=kind)
    read = read_events(tmp_path / "events", FEATURES, "int", kind)
    assert [read.key_of(event) for event in range(len(read))] == [None, *keys, None]
    assert read.b.to_list() == [0, 2, 2, 3, 2]


def test_without_keys_there_is_no_column(tmp_path: Path) -> None:
    write_events([events_of([("add_edge", 1, 2)])], tmp_path / "events", FEATURES, "int", lambda _: None)
    assert read_events(tmp_path / "events", FEATURES, "int").keys is None and NO_KEY < 0
    assert not list((tmp_path / "events").glob("edge_key*"))
