"""Reads a snapshot folder as the arrays of one graph: what a full pass of a model takes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.operators.snapshot.reader import SnapshotError, open_snapshot
from freshet.partitioner.events import OP_ADD_VERTEX
from freshet.partitioner.ids import KeyNumbers
from freshet.schema import ATTR, EdgeValues, Features


class SnapshotArrays(NamedTuple):
    """A graph by rows.

    Shapes: x (n, features) float32; edge_index (2, m) int64, sources and destinations; edge_weight (m,) float32;
    edge_attr (m, width) float32, None where edges have no attributes, or such of several widths
    """

    x: np.ndarray
    edge_index: np.ndarray
    edge_weight: np.ndarray
    edge_attr: np.ndarray | None


def read_arrays(folder: Path) -> SnapshotArrays:
    """Return the snapshot's graph; of equal vertices, and of equal (src, dst, type, key), the last row holds.

    Raises:
        SnapshotError: the folder is no snapshot, or one with kinds of vertices.
    """
    rows: dict[int | str, int] = {}
    types: dict[str, int] = {}
    keys = KeyNumbers()
    given: list[tuple[list[int], np.ndarray]] = []
    edges: list[np.ndarray] = [np.empty((0, 4), np.int64)]
    features = Features(feature_width(folder), _edge_width(folder))
    values = [EdgeValues.default(0)]
    for block in open_snapshot(folder, features).blocks():
        first = [rows.setdefault(one, len(rows)) for one in block.a.to_list()]
        if block.op[0] == OP_ADD_VERTEX:
            given.append((first, block.x.matrix))
            continue
        second = [rows.setdefault(one, len(rows)) for one in block.b.to_list()]
        names = np.array([types.setdefault(name, len(types)) for name in block.types], np.int64)
        edges.append(np.column_stack([first, second, names[block.etype], keys.of(block.keys, len(block))]))
        values.append(block.values)
    x = features.zeros(len(rows))
    for at, rows_of_block in given:
        x[at] = rows_of_block
    every, carried = np.concatenate(edges), EdgeValues.concatenate(values)
    kept = last_of_equal(every)
    attr = carried.full_attr(features.edge_width)[kept] if features.edge_width else None
    return SnapshotArrays(x, np.ascontiguousarray(every[kept, :2].T), carried.weight[kept], attr)


def last_of_equal(rows: np.ndarray) -> np.ndarray:
    """Return the number of the last one of each set of equal rows, ascending."""
    _, last = np.unique(rows[::-1], axis=0, return_index=True)
    return np.sort(len(rows) - 1 - last)


def _edge_width(folder: Path) -> int:
    """Return how many numbers the attributes of edges have; 0 without any, or where not all have as many."""
    path = Path(folder) / "edges.parquet"
    try:
        field = pq.read_schema(path).field(ATTR)
        if pa.types.is_fixed_size_list(field.type):
            return int(field.type.list_size)
        widths = pc.unique(pc.list_value_length(pq.read_table(path, columns=[ATTR])[ATTR])).drop_null()
    except (OSError, KeyError, pa.ArrowException):  # `open_snapshot` says what is wrong
        return 0
    return int(widths[0].as_py()) if len(widths) == 1 else 0


def feature_width(folder: Path) -> int:
    """Return how wide the features of a snapshot are.

    Raises:
        SnapshotError: the folder is no snapshot, or has no vertices.
    """
    path = Path(folder) / "vertices.parquet"
    try:
        kind = pq.read_schema(path).field("x").type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            batch = next(file.iter_batches(1, columns=["x"]), None)
            first = None if batch is None or not batch.num_rows else batch.column(0)[0].as_py()
    except (OSError, KeyError, pa.ArrowException) as error:
        msg = f"{path}: expected a snapshot's vertices with a column x: {error}"
        raise SnapshotError(msg) from error
    if not first:
        msg = f"{path}: expected vertices with features, got none in its first row"
        raise SnapshotError(msg)
    return len(first)
