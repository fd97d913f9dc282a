"""Snapshots of several kinds: written, read as events, and refused by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.kinds import Kinds, Relation
from freshet.operators.snapshot.reader import SnapshotError, open_snapshot
from freshet.operators.snapshot.writer import write_live_graph, write_snapshot
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import Events
from freshet.partitioner.live_graph import PlacedGraph
from freshet.schema import FeatureRows, Features

RELATIONS = (
    Relation(0, "buys", 1, edge_width=2),
    Relation(1, "rev_buys", 0, edge_width=2, mirrors=0),
    Relation(0, "knows", 0, edge_width=1),
    Relation(0, "likes", 1),
)
KINDS = Kinds(("user", "item"), (2, 3), RELATIONS)
SHARED = Kinds(("user", "item"), (2, 3), (*RELATIONS, Relation(1, "likes", 1)))
ONE = Kinds(("",), (2,), (Relation(0, "cites", 0), Relation(0, "writes", 0)))
X = [[1, 2], [3, 4, 5], [6, 7], [8, 9, 10]]
Ids = list[Any]


def write(folder: Path, model: Kinds, *, strings: bool = False, **other: Any) -> Path:
    def named(ids: list[int]) -> Ids:
        return [f"v{one}" for one in ids] if strings else ids

    given: dict[str, Any] = {
        "ids": named([1, 1, 2, 3]),
        "x": X,
        "kinds": ["user", "item", "user", "item"],
        "src": named([1, 2, 1, 7]),
        "dst": named([1, 3, 2, 1]),
        "weight": np.array([1, 2, 3, 4], np.float32),
        "edge_type": ["buys", "buys", "knows", "likes"],
        "attr": [[1, 2], None, [5], None],
    }
    if not model.type_says_all:
        given["end_kinds"] = ["user"] * 3 + ["item"], ["item", "item", "user", "item"]
    write_snapshot(folder, **given | other)
    return folder


def graph_of(folder: Path, kinds: Kinds, rows: int = 3) -> tuple[PlacedGraph, Events]:
    features = Features.of_kinds(kinds)
    snapshot = open_snapshot(folder, features)
    events = Events.concatenate(list(snapshot.blocks(rows)))
    core = Partitioner(2, features, PartitionerConfig(id_kind=snapshot.id_kind))
    core.partition(events, snapshot=True)
    return core.live_graph(), events


def edges_of(graph: PlacedGraph) -> dict[tuple[Any, ...], float]:
    ids = graph.ids.to_list()
    ends = zip(graph.etype.tolist(), graph.src.tolist(), graph.dst.tolist(), strict=True)
    weights = graph.values.weight.tolist()
    return {(graph.types[e], ids[s], ids[d]): w for (e, s, d), w in zip(ends, weights, strict=True)}


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("kinds", [KINDS, SHARED])
def test_a_graph_of_kinds_is_read_as_it_was_written(tmp_path: Path, kinds: Kinds, strings: bool) -> None:
    graph, events = graph_of(write(tmp_path / "S", kinds, strings=strings), kinds)
    assert graph.kind is not None
    assert [events.x.row(k).tolist() for k in range(len(events.x))] == X
    name = (lambda one: f"v{one}") if strings else int
    vertices = list(zip(graph.kind.tolist(), graph.ids.to_list(), strict=True))
    born = (int(not kinds.type_says_all), name(7))
    assert sorted(vertices) == sorted([(0, name(1)), (1, name(1)), (0, name(2)), (1, name(3)), born])
    likes = "likes" if kinds.type_says_all else "item,likes,item"
    expected = {("buys", name(1), name(1)): 1, ("rev_buys", name(1), name(1)): 1, ("buys", name(2), name(3)): 2}
    expected |= {("rev_buys", name(3), name(2)): 2, ("knows", name(1), name(2)): 3, (likes, name(7), name(1)): 4}
    assert edges_of(graph) == expected
    by_edge = {
        (e, s): a
        for e, s, a in zip(events.etype, events.a.to_list(), events.values.full_attr(2).tolist(), strict=True)
        if any(a)
    }
    assert by_edge == {(0, name(1)): [1, 2], (2, name(1)): [5, 0]}

    # what a job writes of it is read as the same graph; edges of mirrors are not among it
    by_kind = [
        np.arange(5, dtype=np.float32)[: int((graph.kind == k).sum())][:, None] + np.zeros(w)
        for k, w in enumerate(kinds.widths)
    ]
    x = FeatureRows.of_kinds(graph.kind, by_kind, Features.of_kinds(kinds))
    attr = np.arange(2.0 * len(graph.src), dtype=np.float32).reshape(-1, 2)
    values = type(graph.values)(len(graph.src), graph.values.given, attr)
    (tmp_path / "T").mkdir()
    write_live_graph(tmp_path / "T", type(graph)(**{**fields_of(graph), "values": values}), x, {})
    again, events = graph_of(tmp_path / "T", kinds)
    assert again.kind is not None
    assert edges_of(again) == expected
    assert list(zip(again.kind.tolist(), again.ids.to_list(), strict=True)) == vertices
    assert [events.x.row(k).tolist() for k in range(5)] == [x.row(k).tolist() for k in range(5)]
    table = pq.read_table(tmp_path / "T" / "edges.parquet")
    assert table.num_rows == 4
    widths = {"buys": 2, "knows": 1}
    lengths = [(row["type"], None if row["attr"] is None else len(row["attr"])) for row in table.to_pylist()]
    assert all(size == widths.get(name) for name, size in lengths)
    assert ("src_kind" in table.column_names) == (not kinds.type_says_all)
    assert pq.read_schema(tmp_path / "T" / "vertices.parquet").field("x").type == pa.list_(pa.float32())


def fields_of(graph: PlacedGraph) -> dict[str, Any]:
    return {name: getattr(graph, name) for name in graph.__slots__}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"kinds": ["user", "item", None, "item"]}, "vertices.parquet: row 2: kind: missing"),
    (
        {"kinds": ["user", "item", "shop", "item"]},
        "vertices.parquet: row 2: kind: expected one of the model's kinds user, i",
    ),
    ({"x": [*X[:2], [1, 2, 3], X[3]]}, "vertices.parquet: row 2: x: expected 2 numbers for the kind 'user', got 3"),
    (
        {"x": np.ones((4, 4), np.float32)},
        "vertices.parquet: x: expected the model's 2 features of user, 3 features of item",
    ),
    ({"edge_type": None}, "edges.parquet: expected columns src, dst, type, missing type"),
    ({"edge_type": ["buys", None, "knows", "likes"]}, "edges.parquet: row 1: type: missing"),
    (
        {"edge_type": ["buys", "rev_buys", "knows", "likes"]},
        "edges.parquet: row 1: type: edges of 'rev_buys' follow those",
    ),
    (
        {"attr": [[1, 2], None, [5, 6], None]},
        "edges.parquet: row 2: attr: expected 1 numbers for edges of 'knows', got 2",
    ),
    ({"attr": np.ones((4, 3), np.float32)}, "edges.parquet: attr: expected the model's 2 numbers, got 3"),
]


@pytest.mark.parametrize(("other", "why"), BAD)
def test_bad_rows_are_named(tmp_path: Path, other: dict[str, Any], why: str) -> None:
    with pytest.raises(SnapshotError) as raised:
        graph_of(write(tmp_path, KINDS, **other), KINDS)
    assert why in str(raised.value)


def test_vertices_without_kinds_are_refused(tmp_path: Path) -> None:
    write_snapshot(tmp_path, [1, 2], np.ones((2, 2)), [1], [2], edge_type=["knows"])
    with pytest.raises(SnapshotError, match=r"vertices\.parquet: expected columns id, kind, x, missing kind"):
        open_snapshot(tmp_path, Features.of_kinds(KINDS))


def test_one_kind_with_relations_has_no_column_of_kinds(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "S", [1, 2], np.ones((2, 2)), [1, 1], [2, 2], edge_type=["cites", "writes"])
    graph, _ = graph_of(tmp_path / "S", ONE)
    assert edges_of(graph) == {("cites", 1, 2): 1, ("writes", 1, 2): 1}
    (tmp_path / "T").mkdir()
    write_live_graph(tmp_path / "T", graph, FeatureRows(np.ones((2, 2), np.float32)), {})
    assert pq.read_schema(tmp_path / "T" / "vertices.parquet").names == ["id", "x"]
    assert pq.read_schema(tmp_path / "T" / "vertices.parquet").field("x").type == pa.list_(pa.float32(), 2)
    assert edges_of(graph_of(tmp_path / "T", ONE)[0]) == edges_of(graph)
    sole = Kinds(("",), (2,), ONE.relations[:1])
    write_snapshot(tmp_path / "U", [1, 2], np.ones((2, 2)), [1, 1], [2, 2])
    for kinds in (sole, ONE):
        assert edges_of(graph_of(tmp_path / "U", kinds)[0]) == {("cites", 1, 2): 1}, "it is of the first relation"
    assert [open_snapshot(tmp_path / "U", Features.of_kinds(kinds)).remark for kinds in (sole, ONE)] == [
        "",
        f"{tmp_path / 'U' / 'edges.parquet'}: no column type: each edge is taken as 'cites', the first of the model's "
        "edge types",
    ]
