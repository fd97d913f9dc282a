"""Writes snapshot folders: a job's live graph block by block, or arrays as they are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.files.json_file import write_json
from freshet.files.whole import write_whole
from freshet.kind_rows import KindRows
from freshet.operators.parser.keys import KEY_FIELD
from freshet.partitioner.events import DEFAULT_TYPE, NO_TS
from freshet.partitioner.ids import INT, NO_KEY, Ids
from freshet.partitioner.live_graph import PlacedGraph
from freshet.schema import ATTR, FeatureRows

ROWS = 1 << 18  # per row group


def write_live_graph(folder: Path, graph: PlacedGraph, x: FeatureRows, info: dict[str, Any]) -> None:
    """Write vertices.parquet, edges.parquet and snapshot.json (`info`) into a folder that exists.

    Edges stand as the job has them: those of an undirected job both ways. Those that follow others by themselves, as
    their relation mirrors one, are left out. The column `type` is left out where the job knows the default type alone;
    elsewhere that one is null. The column `ts` is there where edges expire, `key` where they have keys, `kind` where
    kinds of vertices have names, `src_kind` and `dst_kind` where the type alone does not say them.
    """
    _write_vertices(folder / "vertices.parquet", graph, x)
    _write_edges(folder / "edges.parquet", graph.without_mirrors())
    write_json(folder / "snapshot.json", info)


def _write_vertices(path: Path, graph: PlacedGraph, x: FeatureRows) -> None:
    ids, kinds = graph.ids, graph.kinds if graph.kinds and graph.kinds.are_named else None
    names = pa.array(() if kinds is None else kinds.names, pa.string())
    width = x.matrix.shape[1] if x.several is None else -1
    fields = [("id", _id_type(ids)), *(() if kinds is None else (("kind", pa.string()),))]
    schema = pa.schema([*fields, ("x", pa.list_(pa.float32(), width))])
    with pq.ParquetWriter(path, schema, write_page_checksum=True) as writer:
        for begin in range(0, len(ids), ROWS):
            end = min(begin + ROWS, len(ids))
            columns = [_id_array(ids.slice(begin, end))]
            if kinds is not None and graph.kind is not None:
                columns.append(names.take(pa.array(graph.kind[begin:end])))
            rows = x[begin:end]
            columns.append(_vectors(rows.matrix) if rows.several is None else _ragged(rows.several))
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _write_edges(path: Path, graph: PlacedGraph) -> None:
    kind, kinds = _id_type(graph.ids), graph.kinds
    fields = [("src", kind), ("dst", kind), ("weight", pa.float32())]
    typed = graph.types != (DEFAULT_TYPE,)
    names = _relation_columns(graph)
    attr = graph.values.attr
    fields += [(name, pa.string()) for name in names] if typed else []
    fields += [] if attr is None else [(ATTR, pa.list_(pa.float32(), attr.shape[1] if kinds is None else -1))]
    fields += [] if graph.ts is None else [("ts", pa.int64())]
    keys = graph.edge_keys
    fields += [] if keys is None else [(KEY_FIELD, _id_type(keys))]
    schema = pa.schema(fields)
    with pq.ParquetWriter(path, schema, write_page_checksum=True) as writer:
        for begin in range(0, len(graph.src), ROWS):
            some = slice(begin, begin + ROWS)
            ends = [_id_array(graph.ids.take(rows[some])) for rows in (graph.src, graph.dst)]
            columns = [*ends, pa.array(np.ascontiguousarray(graph.values[some].weight), pa.float32())]
            if typed:
                etype = pa.array(np.ascontiguousarray(graph.etype[some]))
                columns += [name.take(etype) for name in names.values()]
            if attr is not None and kinds is None:
                columns.append(_vectors(attr[some]))
            elif attr is not None and kinds is not None:
                columns.append(_narrow_attr(attr[some], kinds.edge_widths[graph.etype[some]]))
            if graph.ts is not None:
                columns.append(pa.array(graph.ts[some], mask=graph.ts[some] == NO_TS))
            if keys is not None:
                columns.append(_keys(keys.slice(begin, min(begin + ROWS, len(keys)))))
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _vectors(rows: np.ndarray) -> pa.Array:
    """Rows as fixed-size lists of float32."""
    some = np.ascontiguousarray(rows, np.float32)
    return pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), some.shape[1])


def _relation_columns(graph: PlacedGraph) -> dict[str, pa.Array]:
    """Values of the columns that say the type of an edge, for each type, by column."""
    kinds = graph.kinds
    if kinds is None:
        return {"type": pa.array([name or None for name in graph.types], pa.string())}
    triples = [kinds.triple(one) for one in kinds.relations]
    columns = {"type": [name for _, name, _ in triples]}
    if not kinds.type_says_all:
        columns |= {"src_kind": [source for source, _, _ in triples], "dst_kind": [target for _, _, target in triples]}
    return {name: pa.array(values, pa.string()) for name, values in columns.items()}


def _ragged(rows: KindRows) -> pa.Array:
    """Rows of several widths as lists of float32."""
    offsets = np.append(0, np.cumsum(np.array(rows.widths, np.int64)[rows.kind]))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(np.ascontiguousarray(rows.values)))


def _narrow_attr(attr: np.ndarray, widths: np.ndarray) -> pa.Array:
    """Attributes as lists as long as the relation of each edge has them, null where that has none."""
    values = attr[np.arange(attr.shape[1]) < widths[:, None]]
    offsets = pa.array(np.append(0, np.cumsum(widths)), pa.int32(), mask=np.append(widths == 0, False))
    return pa.ListArray.from_arrays(offsets, pa.array(values))


def _id_type(ids: Ids) -> pa.DataType:
    return pa.int64() if ids.kind == INT else pa.string()


def _id_array(ids: Ids) -> pa.Array:
    """A block of ids; its texts are far below the 2 GiB that an array of strings holds."""
    if ids.kind == INT:
        return pa.array(ids.ints)
    packed = ids.compact()
    offsets = np.ascontiguousarray(packed.offsets, np.int32)
    return pa.StringArray.from_buffers(len(packed), pa.py_buffer(offsets), pa.py_buffer(packed.data))


def _keys(keys: Ids) -> pa.Array:
    """Keys of edges, null for those without one."""
    if keys.kind == INT:
        return pa.array(keys.ints, mask=keys.ints == NO_KEY)
    none = pa.array(np.diff(keys.offsets) == 0)
    return pc.if_else(none, pa.scalar(None, pa.string()), _id_array(keys))


def write_snapshot(
    folder: Path | str,
    ids: Sequence[int] | Sequence[str] | np.ndarray,
    x: np.ndarray | Sequence[Sequence[float] | np.ndarray],
    src: Sequence[int] | Sequence[str] | np.ndarray,
    dst: Sequence[int] | Sequence[str] | np.ndarray,
    weight: np.ndarray | None = None,
    edge_type: Sequence[str | None] | None = None,
    label: np.ndarray | None = None,
    info: dict[str, Any] | None = None,
    attr: np.ndarray | Sequence[Sequence[float] | None] | None = None,
    kinds: Sequence[str] | None = None,
    end_kinds: tuple[Sequence[str], Sequence[str]] | None = None,
    edge_key: Sequence[int | None] | Sequence[str | None] | np.ndarray | None = None,
) -> None:
    """Write a snapshot folder; `src` and `dst` are ids, not rows.

    `kinds` of the vertices; `end_kinds`: those of the edges' sources and destinations, where types don't say them.
    `edge_key`: integers or strings that tell apart edges of one source, destination and type; None is no key. Without
    it the last of such edges holds.
    Shapes:
        x (vertices, features) float32; weight (edges,) float32; label (vertices,) int64; attr (edges, width) float32;
        x and attr may also be rows of several widths
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    vertices = {"id": _plain_ids(ids), "x": _vectors(np.asarray(x)) if kinds is None else _lists(x)}
    if kinds is not None:
        vertices["kind"] = pa.array(list(kinds), pa.string())
    if label is not None:
        vertices["label"] = pa.array(np.asarray(label, np.int64))
    edges = {"src": _plain_ids(src, vertices["id"].type), "dst": _plain_ids(dst, vertices["id"].type)}
    if weight is not None:
        edges["weight"] = pa.array(np.asarray(weight, np.float32))
    if edge_type is not None:
        edges["type"] = pa.array(list(edge_type), pa.string())
    if end_kinds is not None:
        edges["src_kind"], edges["dst_kind"] = (pa.array(list(one), pa.string()) for one in end_kinds)
    if attr is not None:
        edges[ATTR] = _lists(attr)
    if edge_key is not None:
        edges[KEY_FIELD] = _plain_keys(edge_key)
    write_tables(folder, pa.table(vertices), pa.table(edges))
    if info is not None:
        write_whole(folder / "snapshot.json", orjson.dumps(info, option=orjson.OPT_INDENT_2))


def write_tables(folder: Path, vertices: pa.Table, edges: pa.Table) -> None:
    """Write the tables of a snapshot into a folder that exists."""
    pq.write_table(vertices, folder / "vertices.parquet", write_page_checksum=True)
    pq.write_table(edges, folder / "edges.parquet", write_page_checksum=True)


def _lists(rows: np.ndarray | Sequence[Sequence[float] | np.ndarray | None]) -> pa.Array:
    return _vectors(rows) if isinstance(rows, np.ndarray) else pa.array(list(rows), pa.list_(pa.float32()))


def _plain_ids(ids: Sequence[int] | Sequence[str] | np.ndarray, kind: pa.DataType | None = None) -> pa.Array:
    if kind is None:
        kind = pa.string() if len(ids) and isinstance(ids[0], str) else pa.int64()
    return pa.array(ids, kind)


def _plain_keys(keys: Sequence[int | None] | Sequence[str | None] | np.ndarray) -> pa.Array:
    """Keys as they are given, of the kind of the first one that is not None."""
    first = next((key for key in keys if key is not None), 0)
    found = pa.array(keys, pa.string() if isinstance(first, str) else pa.int64())
    if pc.any(pc.equal(found, pa.scalar("" if isinstance(first, str) else NO_KEY, found.type))).as_py():
        msg = "edge_key: expected integers above -2**63, or strings that are not empty; None means no key"
        raise ValueError(msg)
    return found
