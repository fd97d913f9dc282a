"""Reads a snapshot folder as the arrays of one graph: what a full pass of a model takes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.operators.snapshot.reader import SnapshotError, open_snapshot
from freshet.partitioner.events import OP_ADD_VERTEX
from freshet.schema import Features


class SnapshotArrays(NamedTuple):
    """A graph by rows.

    Shapes: x (n, features) float32; edge_index (2, m) int64, sources and destinations; edge_weight (m,) float32
    """

    x: np.ndarray
    edge_index: np.ndarray
    edge_weight: np.ndarray


def read_arrays(folder: Path) -> SnapshotArrays:
    """Return the snapshot's graph; of equal vertices, and of equal (src, dst, type), the last row holds.

    Raises:
        SnapshotError: the folder is no snapshot.
    """
    rows: dict[int | str, int] = {}
    types: dict[str, int] = {}
    given: list[tuple[list[int], np.ndarray]] = []
    edges: list[np.ndarray] = [np.empty((0, 3), np.int64)]
    weights: list[np.ndarray] = [np.empty(0, np.float32)]
    features = Features(feature_width(folder))
    for block in open_snapshot(folder, features).blocks():
        first = [rows.setdefault(one, len(rows)) for one in block.a.to_list()]
        if block.op[0] == OP_ADD_VERTEX:
            given.append((first, block.x.matrix))
            continue
        second = [rows.setdefault(one, len(rows)) for one in block.b.to_list()]
        names = np.array([types.setdefault(name, len(types)) for name in block.types], np.int64)
        edges.append(np.column_stack([first, second, names[block.etype]]))
        weights.append(block.values.weight)
    x = features.zeros(len(rows))
    for at, values in given:
        x[at] = values
    every, weight = np.concatenate(edges), np.concatenate(weights)
    _, last = np.unique(every[::-1], axis=0, return_index=True)
    kept = np.sort(len(every) - 1 - last)
    return SnapshotArrays(x, np.ascontiguousarray(every[kept, :2].T), weight[kept])


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
