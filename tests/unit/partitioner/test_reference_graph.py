"""What events mean, on graphs of a few vertices."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from freshet.partitioner.config import GraphRules
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features

Row = tuple[Any, ...]


def graph(rows: list[Row], id_kind: str = "int", edge_types: list[str] | None = None, **rules: Any) -> ReferenceGraph:
    reference = ReferenceGraph(Features(1), GraphRules(edge_types=rules.pop("of_types", None), **rules))
    reference.apply(events_of(rows, Features(1), id_kind, edge_types))
    return reference


def vertices(reference: ReferenceGraph) -> dict[Any, float]:
    ids, x, *_ = reference.arrays()
    return dict(zip(ids, x[:, 0].tolist(), strict=True))


def edges(reference: ReferenceGraph) -> dict[tuple[Any, Any, str], float]:
    ids, _, src, dst, values = reference.arrays()
    rows = zip(src.tolist(), dst.tolist(), reference.edge_types(), values.weight.tolist(), strict=True)
    found = {(ids[s], ids[d], name): w for s, d, name, w in rows}
    assert len(found) == len(src)
    return found


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("add_vertex", 1)], {1: 0}),
        ([("add_vertex", 1, [5])], {1: 5}),
        ([("add_vertex", 1, [5]), ("add_vertex", 1)], {1: 5}),
        ([("add_vertex", 1), ("add_vertex", 1, [6])], {1: 6}),
        ([("set_features", 1, [5]), ("set_features", 1, [7])], {1: 7}),
        ([("add_edge", 1, 2)], {1: 0, 2: 0}),
        ([("set_features", 1, [5]), ("add_edge", 1, 2)], {1: 5, 2: 0}),
        ([("del_edge", 1, 2), ("del_vertex", 3)], {}),
        ([("add_vertex", 1, [5]), ("del_vertex", 1)], {}),
        ([("add_vertex", 1, [5]), ("del_vertex", 1), ("add_vertex", 1)], {1: 0}),
        ([("add_vertex", 1, [5]), ("del_vertex", 1), ("add_edge", 2, 1)], {2: 0, 1: 0}),
    ],
)
def test_vertices(rows: list[Row], expected: dict[int, float]) -> None:
    assert vertices(graph(rows)) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("add_edge", 1, 2)], {(1, 2, ""): 1}),
        ([("add_edge", 1, 2, 3.0), ("add_edge", 1, 2)], {(1, 2, ""): 1}),
        ([("add_edge", 1, 2), ("add_edge", 2, 1, 2.0)], {(1, 2, ""): 1, (2, 1, ""): 2}),
        ([("add_edge", 1, 2), ("add_edge", 1, 2, 2.0, "a")], {(1, 2, ""): 1, (1, 2, "a"): 2}),
        ([("add_edge", 1, 2, 1, "a"), ("del_edge", 1, 2)], {(1, 2, "a"): 1}),
        ([("add_edge", 1, 2, 1, "a"), ("del_edge", 1, 2, "a")], {}),
        ([("add_edge", 1, 1), ("add_edge", 1, 1, 1, "a"), ("del_edge", 1, 1)], {(1, 1, "a"): 1}),
        ([("add_edge", 1, 2), ("add_edge", 2, 1), ("add_edge", 2, 2), ("add_edge", 3, 1), ("del_vertex", 2)],
         {(3, 1, ""): 1}),
        ([("add_edge", 1, 2), ("del_vertex", 2), ("add_vertex", 2)], {}),
    ],
)  # fmt: skip
def test_edges(rows: list[Row], expected: dict[Any, float]) -> None:
    assert edges(graph(rows)) == expected


def test_undirected_edges_are_mirrored_and_loops_are_not() -> None:
    rows: list[Row] = [("add_edge", 1, 2, 3.0), ("add_edge", 3, 3, 2.0), ("add_edge", 2, 1, 5.0), ("add_edge", 1, 4)]
    assert edges(graph(rows, undirected=True)) == {
        (1, 2, ""): 5,
        (2, 1, ""): 5,
        (3, 3, ""): 2,
        (1, 4, ""): 1,
        (4, 1, ""): 1,
    }
    rows += [("del_edge", 4, 1), ("del_edge", 3, 3), ("del_edge", 3, 3)]
    reference = graph(rows, undirected=True)
    assert edges(reference) == {(1, 2, ""): 5, (2, 1, ""): 5}
    assert edges(graph([*rows, ("del_vertex", 2)], undirected=True)) == {}


def test_loops_of_a_second_type_are_rejected_for_gcn() -> None:
    rows: list[Row] = [
        ("add_edge", 1, 1, 2.0, "a"),
        ("add_edge", 1, 1, 3.0),
        ("add_edge", 1, 2, 1.0, "b"),
        ("add_edge", 1, 1, 4.0, "a"),
    ]
    reference = graph(rows, forbid_typed_loops=True)
    assert edges(reference) == {(1, 1, "a"): 4, (1, 2, "b"): 1}
    assert reference.rejected == 1
    assert (1, 1, "") in edges(graph(rows))
    # once the first loop is gone, one of another type may come
    rows = [*rows, ("del_edge", 1, 1, "a"), ("add_edge", 1, 1, 5.0, "b")]
    assert edges(graph(rows, forbid_typed_loops=True)) == {(1, 2, "b"): 1, (1, 1, "b"): 5}


def test_the_default_type_has_a_name_in_typed_models() -> None:
    rows: list[Row] = [("add_edge", 1, 2), ("add_edge", 1, 2, 2.0, "cites"), ("add_edge", 1, 2, 1.0, "writes")]
    expected = {(1, 2, "cites"): 2, (1, 2, "writes"): 1}
    assert edges(graph(rows, edge_types=["cites", "writes"])) == expected
    assert edges(graph(rows, of_types=("cites", "writes"))) == expected


def test_deleting_what_is_not_there_changes_nothing() -> None:
    reference = graph([("del_vertex", 1), ("del_edge", 1, 2), ("add_edge", 1, 2), ("del_edge", 2, 1)])
    assert (vertices(reference), edges(reference)) == ({1: 0, 2: 0}, {(1, 2, ""): 1})


def test_string_ids() -> None:
    reference = graph([("add_edge", "a", "b"), ("del_vertex", "a")], "string")
    assert (vertices(reference), reference.id_kind) == ({"b": 0}, "string")
    assert ReferenceGraph(Features(1)).id_kind == "int"


def test_random_streams_against_sets() -> None:
    """Adjacency both ways round stays in step, whatever happens."""
    rng = random.Random(5)
    for undirected in (False, True):
        reference = ReferenceGraph(Features(1), GraphRules(undirected))
        present: set[tuple[int, int]] = set()
        for _ in range(3000):
            u, v = rng.randrange(6), rng.randrange(6)
            mirrored = {(u, v), (v, u)} if undirected else {(u, v)}
            op = rng.choice(["add_edge", "del_edge", "del_vertex"])
            if op == "add_edge":
                present |= mirrored
                row: Row = (op, u, v)
            elif op == "del_edge":
                present -= mirrored
                row = (op, u, v)
            else:
                present = {edge for edge in present if u not in edge}
                row = (op, u)
            reference.apply(events_of([row]))
            assert {key[:2] for key in edges(reference)} == present
        assert present


def test_an_empty_graph() -> None:
    ids, x, src, dst, values = ReferenceGraph(Features(3)).arrays()
    assert (ids, x.shape, len(src), len(dst), len(values)) == ([], (0, 3), 0, 0, 0)
    assert (x.dtype, src.dtype, values.weight.dtype) == (np.float32, np.int64, np.float32)
