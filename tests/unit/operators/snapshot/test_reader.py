"""Snapshots: read as events, refused by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.kinds import Kinds, Relation
from freshet.operators.snapshot.reader import Snapshot, SnapshotError, open_snapshot
from freshet.operators.snapshot.writer import write_snapshot
from freshet.partitioner.events import OP_ADD_EDGE, OP_ADD_VERTEX, Events
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.schema import Features
from tests.support.graphs.models import IN_WIDTH
from tests.support.graphs.shop_kinds import KINDS
from tests.support.malformed.snapshots import WRONG_SNAPSHOTS, WrongSnapshot


def replay(snapshot: Snapshot, block_rows: int = 1000) -> ReferenceGraph:
    graph = ReferenceGraph(snapshot.features)
    for block in snapshot.blocks(block_rows):
        assert len(block) <= block_rows
        graph.apply(block)
    return graph


@pytest.mark.parametrize("string_ids", [False, True])
@pytest.mark.parametrize("block_rows", [1, 3, 1000])
def test_a_snapshot_reads_as_it_was_written(tmp_path: Path, string_ids: bool, block_rows: int) -> None:
    def name(row: int) -> Any:
        return f"v{row}" if string_ids else row * 10

    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    write_snapshot(
        tmp_path,
        [name(k) for k in range(5)],
        x,
        [name(k) for k in (0, 1, 2, 0, 7)],
        [name(k) for k in (1, 2, 2, 1, 0)],
        weight=np.array([1, 2, 3, 4, 5]),
        edge_type=[None, "a", None, None, "b"],
        label=np.arange(5),
        info={"positions": {"0": 5}},
    )
    snapshot = open_snapshot(tmp_path, Features(2))
    assert (snapshot.id_kind, snapshot.vertices, snapshot.edges) == ("string" if string_ids else "int", 5, 5)
    assert snapshot.info == {"positions": {"0": 5}}
    graph = replay(snapshot, block_rows)
    arrays = graph.arrays()
    assert arrays.ids == [name(k) for k in (0, 1, 2, 3, 4, 7)]
    assert np.array_equal(arrays.x, np.vstack([x, np.zeros((1, 2), np.float32)]))
    rows = zip(arrays.src.tolist(), arrays.dst.tolist(), graph.edge_types(), arrays.values.weight.tolist(), strict=True)
    # of the two edges 0 -> 1 the last one holds; 7 is known from an edge alone
    assert sorted(rows) == [(0, 1, "", 4), (1, 2, "a", 2), (2, 2, "", 3), (5, 0, "b", 5)]


def test_vertices_come_before_edges_with_their_rows_as_positions(tmp_path: Path) -> None:
    write_snapshot(tmp_path, [1, 2], np.ones((2, 1)), [1], [2])
    blocks = list(open_snapshot(tmp_path, Features(1)).blocks())
    assert [block.op.tolist() for block in blocks] == [[OP_ADD_VERTEX] * 2, [OP_ADD_EDGE]]
    assert [block.position.tolist() for block in blocks] == [[1, 2], [1]]


def test_a_snapshot_without_edges_or_without_anything(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "a", [1], np.ones((1, 3)), [], [])
    assert len(replay(open_snapshot(tmp_path / "a", Features(3)))) == 1
    write_snapshot(tmp_path / "b", [], np.ones((0, 3)), [], [])
    assert list(open_snapshot(tmp_path / "b", Features(3)).blocks()) == []


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 2)])
def test_other_types_of_lists_and_ids(tmp_path: Path, kind: pa.DataType) -> None:
    vertices = {"id": pa.array([1, 2], pa.int32()), "x": pa.array([[1, 2], [3, 4]], kind)}
    pq.write_table(pa.table(vertices), tmp_path / "vertices.parquet")
    edges = {"src": pa.array([1], pa.uint64()), "dst": pa.array([2], pa.int8()), "attr": pa.array([[1.0]])}
    pq.write_table(pa.table(edges), tmp_path / "edges.parquet")
    graph = replay(open_snapshot(tmp_path, Features(2)))
    assert graph.arrays().x.tolist() == [[1, 2], [3, 4]]


def test_edge_types_of_a_typed_model(tmp_path: Path) -> None:
    write_snapshot(tmp_path, [1, 2], np.ones((2, 1)), [1, 1, 1], [2, 2, 2], edge_type=["b", None, "a"])
    (_, edges) = open_snapshot(tmp_path, Features(1), edge_types=["a", "b"]).blocks()
    assert (edges.etype.tolist(), edges.types) == ([1, 0, 0], ("a", "b"))
    with pytest.raises(SnapshotError, match=r"edges\.parquet: row 2: type: expected one of the model's edge types b"):
        list(open_snapshot(tmp_path, Features(1), edge_types=["b"]).blocks())


def test_folders_and_columns_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="expected a snapshot folder"):
        open_snapshot(tmp_path / "missing", Features(1))
    with pytest.raises(SnapshotError, match=r"vertices\.parquet: cannot be read as Parquet"):
        open_snapshot(tmp_path, Features(1))
    write_snapshot(tmp_path, [1], np.ones((1, 3)), [1], [1])
    with pytest.raises(SnapshotError, match="expected the model's 2 features, got 3"):
        open_snapshot(tmp_path, Features(2))
    with pytest.raises(SnapshotError, match="expected ids of the kind string, got int"):
        open_snapshot(tmp_path, Features(3), "string")
    (tmp_path / "snapshot.json").write_text("{")
    with pytest.raises(SnapshotError, match=r"snapshot\.json: damaged"):
        open_snapshot(tmp_path, Features(3))
    (tmp_path / "snapshot.json").unlink()
    pq.write_table(pa.table({"src": ["a"], "dst": [1]}), tmp_path / "edges.parquet")
    with pytest.raises(SnapshotError, match="expected ids of one kind"):
        open_snapshot(tmp_path, Features(3))
    pq.write_table(pa.table({"src": [1.5], "dst": [1]}), tmp_path / "edges.parquet")
    with pytest.raises(SnapshotError, match="src: expected integers or strings, got double"):
        open_snapshot(tmp_path, Features(3))
    pq.write_table(pa.table({"source": [1], "dst": [1]}), tmp_path / "edges.parquet")
    with pytest.raises(SnapshotError, match="expected columns src, dst, missing src"):
        open_snapshot(tmp_path, Features(3))


@pytest.mark.parametrize("wrong", WRONG_SNAPSHOTS, ids=lambda wrong: f"{wrong.file}: {wrong.reason}")
def test_kinds_that_are_not_the_models_are_refused(tmp_path: Path, wrong: WrongSnapshot) -> None:
    wrong.write(tmp_path / "S")
    features = Features.of_kinds(KINDS) if wrong.kinds else Features(IN_WIDTH)
    with pytest.raises(SnapshotError) as caught:
        list(open_snapshot(tmp_path / "S", features).blocks())
    assert f"{wrong.file}.parquet" in str(caught.value) and wrong.reason in str(caught.value)


@pytest.mark.parametrize(
    ("name", "columns", "error"),
    [
        ("vertices", {"id": [1, None], "x": [[1.0], [2.0]]}, "row 1: id: missing"),
        ("vertices", {"id": [1, 2], "x": [[1.0], None]}, "row 1: x: missing"),
        ("vertices", {"id": [1, 2], "x": [[1.0], [1.0, 2.0]]}, "row 1: x: expected 1 numbers, got 2"),
        ("vertices", {"id": [1, 2], "x": [[1.0], [float("nan")]]}, "row 1: x: not finite in float32 at index 0"),
        ("vertices", {"id": [1, 2], "x": ["a", "b"]}, "row 0: x: expected a list of numbers"),
        ("edges", {"src": [1, None], "dst": [1, 2]}, "row 1: src: missing"),
        ("edges", {"src": [1, 1], "dst": [1, 2**63]}, "row 1: dst: expected an integer within int64"),
        ("edges", {"src": [1], "dst": [1], "weight": [float("inf")]}, "row 0: weight: not finite"),
        ("edges", {"src": [1], "dst": [1], "type": [5]}, "row 0: type: expected a string"),
        (
            "edges",
            {"src": [1, 1], "dst": [1, 1], "type": ["a", ""]},
            "row 1: type: expected a name, got an empty string",
        ),
        ("edges", {"src": [1], "dst": [1], "type": ["é" * 513]}, "row 0: type: expected at most 1024 bytes, got 1026"),
    ],
)
def test_bad_rows_are_refused_by_file_and_row(
    tmp_path: Path, name: str, columns: dict[str, list[Any]], error: str
) -> None:
    write_snapshot(tmp_path, [1], np.ones((1, 1)), [1], [1])
    arrays = {column: pa.array(values, pa.uint64() if 2**63 in values else None) for column, values in columns.items()}
    pq.write_table(pa.table(arrays), tmp_path / f"{name}.parquet")
    with pytest.raises(SnapshotError, match=error) as caught:
        list(open_snapshot(tmp_path, Features(1)).blocks())
    assert f"{name}.parquet" in str(caught.value)


def test_a_kind_without_features_has_empty_lists(tmp_path: Path) -> None:
    features = Features.of_kinds(Kinds(("user", "item"), (0, 1), (Relation(0, "buys", 1),)))
    write_snapshot(tmp_path, [1, 2], [[], [1.0]], [1], [2], edge_type=["buys"], kinds=["user", "item"])
    assert sum(map(len, open_snapshot(tmp_path, features).blocks())) == 3
    write_snapshot(tmp_path, [1, 2], [None, [1.0]], [1], [2], edge_type=["buys"], kinds=["user", "item"])
    with pytest.raises(SnapshotError, match="row 0: x: missing, expected an empty list for a kind without features"):
        list(open_snapshot(tmp_path, features).blocks())


def test_an_id_that_is_too_long_is_refused_by_file_and_row(tmp_path: Path) -> None:
    write_snapshot(tmp_path, ["a", "x" * 1025], np.ones((2, 1)), ["a"], ["a"])
    with pytest.raises(SnapshotError, match=r"vertices\.parquet: row 1: id: expected at most 1024 bytes, got 1025"):
        list(open_snapshot(tmp_path, Features(1)).blocks())
    assert sum(map(len, open_snapshot(tmp_path, Features(1), id_bytes_max=1025).blocks())) == 3


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float16()), pa.large_list(pa.float16()), pa.list_(pa.float16(), 2)], ids=str
)
def test_features_of_16_bits_are_widened(tmp_path: Path, kind: pa.DataType) -> None:
    """Every value is the same: also the largest, the smallest of all, and what is beyond float16's whole numbers."""
    halves = np.array([[0.1, 65504], [2**-24, -2049.0], [-0.0, 3.14159]], np.float16)
    x = pa.array(list(halves), kind)
    weight = pa.array(np.array([0.3, 2.0], np.float16))
    pq.write_table(pa.table({"id": [1, 2, 3], "x": x}), tmp_path / "vertices.parquet")
    pq.write_table(pa.table({"src": [1, 2], "dst": [2, 3], "weight": weight}), tmp_path / "edges.parquet")
    found = Events.concatenate(list(open_snapshot(tmp_path, Features(2)).blocks(2)))
    assert found.x.matrix.dtype == np.float32
    assert found.x.matrix.tobytes() == halves.astype(np.float32).tobytes()
    assert found.values.weight[3:].tolist() == np.array([0.3, 2.0], np.float16).astype(np.float32).tolist()


def test_16_bits_that_are_no_number_are_refused_by_row(tmp_path: Path) -> None:
    x = pa.array([np.array([1], np.float16), np.array([np.inf], np.float16)], pa.list_(pa.float16(), 1))
    pq.write_table(pa.table({"id": [1, 2], "x": x}), tmp_path / "vertices.parquet")
    pq.write_table(pa.table({"src": [1], "dst": [2]}), tmp_path / "edges.parquet")
    with pytest.raises(SnapshotError, match="row 1: x: not finite in float32 at index 0"):
        list(open_snapshot(tmp_path, Features(1)).blocks())


@pytest.mark.parametrize("kind", [pa.float64(), pa.null(), pa.int32()])
def test_a_file_without_rows_says_nothing_of_ids(tmp_path: Path, kind: pa.DataType) -> None:
    """Pandas writes columns of nothing as doubles or nulls."""
    nothing = pa.array([], kind)
    pq.write_table(
        pa.table({"id": ["a"], "x": pa.array([[1.0]], pa.list_(pa.float32(), 1))}), tmp_path / "vertices.parquet"
    )
    pq.write_table(pa.table({"src": nothing, "dst": nothing}), tmp_path / "edges.parquet")
    snapshot = open_snapshot(tmp_path, Features(1))
    assert (snapshot.id_kind, snapshot.edges, snapshot.is_empty) == ("string", 0, False)
    assert replay(snapshot).arrays().ids == ["a"]
    pq.write_table(pa.table({"id": nothing, "x": nothing}), tmp_path / "vertices.parquet")
    assert open_snapshot(tmp_path, Features(1)).is_empty
    assert open_snapshot(tmp_path, Features(1), "string").id_kind == "string"
    assert not replay(snapshot).arrays().ids
