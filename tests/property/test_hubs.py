"""Edges of hubs go, come back and get other weights: what is looked for in a long list is found by its index."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from freshet.state import adjacency
from freshet.state.memory import list_index
from tests.support.graphs.models import IN_WIDTH, all_small_models
from tests.support.graphs.streams import Record, to_events
from tests.support.simulation.oracle import NO_FAULTS, assert_exact, cuts_of, job_settings, run
from tests.support.simulation.simulator import Faults

MODELS = all_small_models()
LEAVES = 40


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have lists of more than eight entries an index; the sizes of those that were asked for."""
    monkeypatch.setattr(list_index, "LONG", 8)
    found: list[int] = []
    make_index = adjacency.Lists.make_index

    def noted(lists: adjacency.Lists, rows: np.ndarray) -> None:
        make_index(lists, rows)
        found.append(lists.index_bytes)

    monkeypatch.setattr(adjacency.Lists, "make_index", noted)
    return found


def star(rng: random.Random, types: tuple[str | None, ...]) -> list[Record]:
    """Two hubs, one that most edges come to and one that most leave: a few hundred events."""

    def edge(op: str, leaf: int) -> Record:
        ends = {"src": leaf, "dst": 0} if rng.random() < 0.5 else {"src": 1, "dst": leaf}
        weight = {"weight": rng.choice([0.5, 1.0, 3.0])} if op == "add_edge" else {}
        kind = rng.choice(types)
        return {"op": op, **ends, **weight, **({} if kind is None else {"type": kind})}

    leaves = range(2, 2 + LEAVES)
    features = [[rng.uniform(-2, 2) for _ in range(IN_WIDTH)] for _ in leaves]
    records = [{"op": "set_features", "id": k, "x": x} for k, x in zip(leaves, features, strict=True)]
    records += [edge("add_edge", k) for k in leaves for _ in range(3)]
    records += [edge(rng.choice(["add_edge", "del_edge", "del_edge"]), rng.choice(leaves)) for _ in range(150)]
    records += [{"op": "del_vertex", "id": rng.randint(0, 1)}]
    return records + [edge("add_edge", k) for k in leaves] + [edge("del_edge", k) for k in leaves]


@pytest.mark.parametrize(
    ("name", "parts", "undirected", "types"),
    [
        ("graph_conv-sum-2-layers", 1, False, (None, "a", "b")),
        ("gcn_conv-default-2-layers", 2, True, (None,)),
        ("gat_conv-default-2-layers", 1, False, (None,)),
        ("gine_conv-default-2-layers", 2, False, (None, "a", "b")),
        ("graph_conv-max-2-layers", 2, False, (None, "a", "b")),
    ],
)
def test_a_hub_is_exact_and_the_same_bits_without_an_index(
    name: str, parts: int, undirected: bool, types: tuple[Any, ...], indexed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after crashes: what is restored has no index, and makes one again."""
    model, rng = MODELS[name](), random.Random(name)
    events = to_events(star(rng, types), IN_WIDTH, edge_width=model.edge_features)
    options = job_settings(model, parts, undirected=undirected)
    cuts = cuts_of([1, 7, 3], len(events))
    crashing = run(options, model, events, cuts, 1, Faults(crashes=3, crash=0.01))
    assert crashing.crashes > 0
    assert max(indexed) > 100, "lists got an index"
    assert assert_exact(model, events, crashing)[0] > 1000
    asked = len(indexed)
    monkeypatch.setattr(list_index, "LONG", 1 << 20)
    plain = run(options, model, events, cuts, 2, NO_FAULTS)
    assert len(indexed) == asked, "lists were read through"
    assert plain.rows() == crashing.rows()
