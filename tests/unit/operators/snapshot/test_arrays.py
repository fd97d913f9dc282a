"""A snapshot as arrays: the last of equal rows holds, unknown ends have zero features, ids of both kinds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.operators.snapshot.arrays import feature_width, read_arrays
from freshet.operators.snapshot.reader import SnapshotError
from freshet.operators.snapshot.writer import write_snapshot


@pytest.mark.parametrize("name", [lambda k: 10 * k, lambda k: f"v{k}"], ids=["int", "string"])
def test_last_rows_hold_and_unknown_ends_are_zero(name, tmp_path: Path) -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    src, dst = [0, 1, 0, 0], [1, 9, 1, 1]
    types, weight = ["a", "a", "a", "b"], np.array([1, 2, 3, 4], np.float32)
    write_snapshot(
        tmp_path, [name(k) for k in (0, 1, 2, 0)], x, [name(k) for k in src], [name(k) for k in dst], weight, types
    )
    got = read_arrays(tmp_path)
    np.testing.assert_array_equal(got.x, [[6, 7], [2, 3], [4, 5], [0, 0]])
    np.testing.assert_array_equal(got.edge_index, [[1, 0, 0], [3, 1, 1]])
    np.testing.assert_array_equal(got.edge_weight, [2, 3, 4])
    assert got.edge_attr is None


@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 2), pa.list_(pa.float64())], ids=str)
def test_attributes_go_with_their_edges_and_are_zeros_without(kind: pa.DataType, tmp_path: Path) -> None:
    write_snapshot(tmp_path, [1, 2, 3], np.ones((3, 1), np.float32), [1, 2, 1, 3], [2, 3, 2, 1])
    edges, rows = pq.read_table(tmp_path / "edges.parquet"), [[0.5, 1.5], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    pq.write_table(edges.append_column("attr", pa.array(rows, kind)), tmp_path / "edges.parquet")
    got = read_arrays(tmp_path)
    assert got.edge_attr is not None and got.edge_attr.dtype == np.float32
    assert got.edge_attr.tolist() == [rows[1], rows[2], rows[3]], "of equal edges the last one holds"
    ragged = pa.array([None, [1.0], *rows[2:]], pa.list_(pa.float64()))
    pq.write_table(edges.append_column("attr", ragged), tmp_path / "edges.parquet")
    assert read_arrays(tmp_path).edge_attr is None, "a model that reads none takes any"
    gaps = pa.array([rows[0], None, None, rows[3]], pa.list_(pa.float64()))
    pq.write_table(edges.append_column("attr", gaps), tmp_path / "edges.parquet")
    assert (got := read_arrays(tmp_path).edge_attr) is not None and got.tolist() == [[0, 0], [0, 0], rows[3]]


def test_lists_of_any_length_and_no_edges(tmp_path: Path) -> None:
    write_snapshot(tmp_path, [1, 2], np.ones((2, 3), np.float32), [], [])
    table = pq.read_table(tmp_path / "vertices.parquet")
    pq.write_table(table.set_column(1, "x", table["x"].cast(pa.list_(pa.float32()))), tmp_path / "vertices.parquet")
    got = read_arrays(tmp_path)
    assert feature_width(tmp_path) == 3
    assert got.x.shape == (2, 3) and got.edge_index.shape == (2, 0) and got.edge_weight.shape == (0,)


def test_what_is_no_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="expected a snapshot's vertices with a column x"):
        read_arrays(tmp_path)
    pq.write_table(
        pa.table({"id": pa.array([], pa.int64()), "x": pa.array([], pa.list_(pa.float32()))}),
        tmp_path / "vertices.parquet",
    )
    with pytest.raises(SnapshotError, match="expected vertices with features, got none"):
        read_arrays(tmp_path)
