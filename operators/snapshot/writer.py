"""Writes snapshot folders: a job's live graph block by block, or arrays as they are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.files.json_file import write_json
from freshet.files.whole import write_whole
from freshet.partitioner.events import DEFAULT_TYPE, INT, NO_TS, Ids
from freshet.partitioner.live_graph import LiveGraph
from freshet.schema import ATTR

ROWS = 1 << 18  # per row group


def write_live_graph(folder: Path, graph: LiveGraph, x: np.ndarray, info: dict[str, Any]) -> None:
    """Write vertices.parquet, edges.parquet and snapshot.json (`info`) into a folder that exists.

    Edges stand as the job has them: those of an undirected job both ways. The column `type` is left out where the job
    knows the default type alone; elsewhere that one is null. The column `ts` is there where edges expire.
    Shapes: x (vertices, features) float32
    """
    _write_vertices(folder / "vertices.parquet", graph.ids, x)
    _write_edges(folder / "edges.parquet", graph)
    write_json(folder / "snapshot.json", info)


def _write_vertices(path: Path, ids: Ids, x: np.ndarray) -> None:
    kind = pa.list_(pa.float32(), x.shape[1])
    schema = pa.schema([("id", _id_type(ids)), ("x", kind)])
    with pq.ParquetWriter(path, schema, write_page_checksum=True) as writer:
        for begin in range(0, len(ids), ROWS):
            vectors = _vectors(x[begin : begin + ROWS])
            columns = [_id_array(ids.slice(begin, min(begin + ROWS, len(ids)))), vectors]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _write_edges(path: Path, graph: LiveGraph) -> None:
    kind = _id_type(graph.ids)
    fields = [("src", kind), ("dst", kind), ("weight", pa.float32())]
    typed = graph.types != (DEFAULT_TYPE,)
    names = pa.array([name or None for name in graph.types], pa.string())
    attr = graph.values.attr
    fields += [("type", pa.string())] if typed else []
    fields += [] if attr is None else [(ATTR, pa.list_(pa.float32(), attr.shape[1]))]
    fields += [] if graph.ts is None else [("ts", pa.int64())]
    schema = pa.schema(fields)
    with pq.ParquetWriter(path, schema, write_page_checksum=True) as writer:
        for begin in range(0, len(graph.src), ROWS):
            some = slice(begin, begin + ROWS)
            ends = [_id_array(graph.ids.take(rows[some])) for rows in (graph.src, graph.dst)]
            columns = [*ends, pa.array(np.ascontiguousarray(graph.values[some].weight), pa.float32())]
            if typed:
                columns.append(names.take(pa.array(np.ascontiguousarray(graph.etype[some]))))
            if attr is not None:
                columns.append(_vectors(attr[some]))
            if graph.ts is not None:
                columns.append(pa.array(graph.ts[some], mask=graph.ts[some] == NO_TS))
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _vectors(rows: np.ndarray) -> pa.Array:
    """Rows as fixed-size lists of float32."""
    some = np.ascontiguousarray(rows, np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), some.shape[1])


def _id_type(ids: Ids) -> pa.DataType:
    return pa.int64() if ids.kind == INT else pa.string()


def _id_array(ids: Ids) -> pa.Array:
    """A block of ids; its texts are far below the 2 GiB that an array of strings holds."""
    if ids.kind == INT:
        return pa.array(ids.ints)
    packed = ids.compact()
    offsets = np.ascontiguousarray(packed.offsets, np.int32)
    return pa.StringArray.from_buffers(len(packed), pa.py_buffer(offsets), pa.py_buffer(packed.data))


def write_snapshot(
    folder: Path | str,
    ids: Sequence[int] | Sequence[str] | np.ndarray,
    x: np.ndarray,
    src: Sequence[int] | Sequence[str] | np.ndarray,
    dst: Sequence[int] | Sequence[str] | np.ndarray,
    weight: np.ndarray | None = None,
    edge_type: Sequence[str | None] | None = None,
    label: np.ndarray | None = None,
    info: dict[str, Any] | None = None,
    attr: np.ndarray | None = None,
) -> None:
    """Write a snapshot folder; `src` and `dst` are ids, not rows.

    Shapes:
        x (vertices, features) float32; weight (edges,) float32; label (vertices,) int64; attr (edges, width) float32
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vertices = {"id": _plain_ids(ids), "x": _vectors(x)}
    if label is not None:
        vertices["label"] = pa.array(np.asarray(label, np.int64))
    edges = {"src": _plain_ids(src, vertices["id"].type), "dst": _plain_ids(dst, vertices["id"].type)}
    if weight is not None:
        edges["weight"] = pa.array(np.asarray(weight, np.float32))
    if edge_type is not None:
        edges["type"] = pa.array(list(edge_type), pa.string())
    if attr is not None:
        edges[ATTR] = _vectors(attr)
    pq.write_table(pa.table(vertices), folder / "vertices.parquet", write_page_checksum=True)
    pq.write_table(pa.table(edges), folder / "edges.parquet", write_page_checksum=True)
    if info is not None:
        write_whole(folder / "snapshot.json", orjson.dumps(info, option=orjson.OPT_INDENT_2))


def _plain_ids(ids: Sequence[int] | Sequence[str] | np.ndarray, kind: pa.DataType | None = None) -> pa.Array:
    if kind is None:
        kind = pa.string() if len(ids) and isinstance(ids[0], str) else pa.int64()
    return pa.array(ids, kind)
