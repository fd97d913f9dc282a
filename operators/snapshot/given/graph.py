"""A graph of checked columns, as the two tables of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.operators.parser.keys import KEY_FIELD
from freshet.operators.snapshot.given.columns import refuse, vectors
from freshet.schema import ATTR

_EDGE_COLUMNS = "src", "dst", "weight", "type", "src_kind", "dst_kind", ATTR, "ts", KEY_FIELD
_IDENTITY = "src", "dst", "type", "src_kind", "dst_kind", KEY_FIELD  # what makes two edges the same


class GivenVertices(NamedTuple):
    """Vertices of a table.

    Shapes: ids (n,) int64 or strings; values (numbers of all rows,) float32, features of one row after the other, and
        lengths (n,) int64, how many each has; label (n,) int64 or None; kind (n,) strings, None without kinds
    """

    where: str
    ids: pa.Array
    values: np.ndarray
    lengths: np.ndarray
    label: pa.Array | None = None
    kind: pa.Array | None = None


class GivenEdges(NamedTuple):
    """Edges of a table: columns by the names that a snapshot has, attr as lists of float32."""

    where: str
    columns: dict[str, pa.Array]


@dataclass(frozen=True)
class GivenGraph:
    """The tables of a snapshot, and what is to be said of them.

    `kinds`: number of vertices and width of features by kind, "" without kinds. `relations`: number of edges by
    relation, as (source kind, type, target kind), ("", type, "") without kinds.
    """

    vertices: pa.Table
    edges: pa.Table
    kinds: Mapping[str, tuple[int, int]]
    relations: Mapping[tuple[str, str, str], int]
    remarks: list[str] = field(default_factory=list)


def graph_of(vertices: Sequence[GivenVertices], edges: Sequence[GivenEdges], edge_keys: bool) -> GivenGraph:
    """Return the tables of a graph; `edge_keys`: edges that repeat one before them get a key, and count each.

    Raises: SnapshotError for ids of two types, ids that are there twice, and features of several widths in a kind.
    """
    _refuse_mixed(vertices, edges)
    for one in vertices:
        _refuse_twice(one)
    kinds = _kinds_of(vertices)
    table = _edge_table(edges, "" not in kinds)
    _refuse_other_kinds(edges, kinds)
    remarks = [*_unknown_ends(vertices, table)]
    if (repeated := _ranks(table, _IDENTITY)).any():
        if edge_keys and KEY_FIELD not in table.column_names:
            keys = pa.array(repeated, pa.int64(), mask=repeated == 0)
            table = table.append_column(KEY_FIELD, keys)
            remarks.append(f"{_count(repeated)} edges repeat one before them, and count each: they have keys")
        else:
            remarks.append(
                f"{_count(repeated)} of {table.num_rows:,} edges repeat the source, target and type of one before "
                "them: the last one of each holds; edge_keys=True counts each of them"
            )
    return GivenGraph(_vertex_table(vertices, kinds), table, kinds, _relations_of(table), remarks)


def _count(repeated: np.ndarray) -> str:
    return f"{int((repeated > 0).sum()):,}"


def _refuse_mixed(vertices: Sequence[GivenVertices], edges: Sequence[GivenEdges]) -> None:
    columns = [(f"{one.where}: id", one.ids) for one in vertices]
    columns += [(f"{one.where}: {end}", one.columns[end]) for one in edges for end in ("src", "dst")]
    given = [(where, array.type) for where, array in columns if len(array)]
    for where, kind in given:
        if kind != given[0][1]:
            refuse(f"{where}: expected ids of one type, as {given[0][0]} ({given[0][1]}), got {kind}")


def _refuse_twice(given: GivenVertices) -> None:
    columns = {"id": given.ids} | ({} if given.kind is None else {"kind": given.kind})
    repeated = _ranks(pa.table(columns), tuple(columns))
    if repeated.any():
        row = int(np.argmax(repeated > 0))
        of = "" if given.kind is None else f" of the kind {given.kind[row].as_py()}"
        refuse(f"{given.where}: id: row {row}: {given.ids[row].as_py()!r}{of} is there before; give each vertex once")


def _kinds_of(vertices: Iterable[GivenVertices]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for one in vertices:
        names = pc.unique(one.kind).to_pylist() if one.kind is not None else [""]
        for name in names:
            rows = np.arange(len(one.ids))
            if one.kind is not None:
                rows = np.flatnonzero(pc.equal(one.kind, name).to_numpy(zero_copy_only=False))
            lengths = one.lengths[rows]
            if len(lengths) and (differ := lengths != lengths[0]).any():
                at = int(np.argmax(differ))
                of = f" of the kind {name}" if name else ""
                refuse(f"{one.where}: x: row {rows[at]}: expected {lengths[0]} numbers{of}, got {lengths[at]}")
            found[name] = len(rows), int(lengths[0]) if len(lengths) else 0
    if "" in found and not found[""][1]:
        refuse(f"{next(iter(vertices)).where}: x: expected vertices with features, got none")
    return found


def _vertex_table(vertices: Sequence[GivenVertices], kinds: Mapping[str, tuple[int, int]]) -> pa.Table:
    width = kinds[""][1] if "" in kinds else -1
    has_label, has_kind = any(one.label is not None for one in vertices), "" not in kinds
    made = []
    for one in vertices:
        values = pa.array(one.values, pa.float32())
        rows = pa.FixedSizeListArray.from_arrays(values, width) if width > 0 else vectors(one.values, one.lengths)
        columns = {"id": one.ids, "x": rows} | ({"kind": one.kind} if has_kind else {})
        if has_label:
            columns["label"] = pa.nulls(len(one.ids), pa.int64()) if one.label is None else one.label
        made.append(pa.table(columns))
    return _joined(made, "id")


def _edge_table(edges: Sequence[GivenEdges], has_kinds: bool) -> pa.Table:
    """All edges in one table; those of a table that lacks a column have nulls there."""
    names = [name for name in _EDGE_COLUMNS if any(name in one.columns for one in edges)]
    types = {name: next(one.columns[name].type for one in edges if name in one.columns) for name in names}
    widths = {int(one) for part in edges for one in _widths(part)}
    if ATTR in types and not has_kinds:
        if len(widths) > 1:
            refuse(f"edges: attr: expected as many numbers in each row, got {', '.join(map(str, sorted(widths)))}")
        types[ATTR] = pa.list_(pa.float32(), widths.pop() if widths else 0)
    made = []
    for one in edges:
        rows = len(one.columns["src"])
        columns = {name: one.columns.get(name, pa.nulls(rows, types[name])) for name in names}
        if KEY_FIELD in columns and len({types[KEY_FIELD], columns[KEY_FIELD].type}) > 1:
            refuse(f"{one.where}: key: expected keys of one type, got {columns[KEY_FIELD].type} and {types[KEY_FIELD]}")
        if ATTR in columns and not has_kinds:
            columns[ATTR] = columns[ATTR].cast(types[ATTR])
        made.append(pa.table(columns))
    return _joined(made, "src", "dst")


def _widths(part: GivenEdges) -> list[int]:
    """The lengths of the attributes of a table's edges."""
    if ATTR not in part.columns:
        return []
    return list(pc.unique(pc.list_value_length(part.columns[ATTR])).drop_null().to_pylist())


def _joined(tables: Sequence[pa.Table], *ids: str) -> pa.Table:
    """One table of several; ids of those without rows have the type of the others."""
    filled = [one for one in tables if one.num_rows] or list(tables[:1])
    return pa.concat_tables([one.cast(filled[0].schema) for one in filled])


def _refuse_other_kinds(edges: Sequence[GivenEdges], kinds: Mapping[str, tuple[int, int]]) -> None:
    for one in edges:
        for name in ("src_kind", "dst_kind"):
            if name not in one.columns:
                continue
            if "" in kinds:
                refuse(f"{one.where}: {name}: the vertices have no kinds; give each kind a frame of vertices")
            for kind in pc.unique(one.columns[name]).to_pylist():
                if kind not in kinds:
                    refuse(f"{one.where}: {name}: expected one of the kinds {', '.join(kinds)}, got {kind!r}")
        if "" not in kinds and "type" not in one.columns:
            refuse(f"{one.where}: type: missing; edges between kinds of vertices need one")


def _unknown_ends(vertices: Sequence[GivenVertices], edges: pa.Table) -> Iterable[str]:
    """Say how many ends of edges are no vertex that is given."""
    unknown = ends = 0
    for name in ("src", "dst"):
        column = f"{name}_kind"
        if vertices[0].kind is None:
            groups = [(edges[name], pa.concat_arrays([one.ids for one in vertices if len(one.ids)] or [edges[name]]))]
        elif column not in edges.column_names:  # the model says the kinds of the ends
            return
        else:
            groups = [
                (edges.filter(pc.equal(edges[column], kind))[name], one.ids.filter(pc.equal(one.kind, kind)))
                for one in vertices
                for kind in pc.unique(one.kind).to_pylist()
            ]
        for asked, known in groups:
            ends += len(asked)
            if len(asked):
                unknown += len(asked) - int(pc.sum(pc.is_in(asked, value_set=known.cast(asked.type))).as_py())
    if unknown:
        yield f"{unknown:,} of {ends:,} ends of edges are no given vertices: they become vertices with zero features"


def _ranks(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Return how many rows before each one are equal in these columns, (n,) int64."""
    columns = [table[name].combine_chunks() for name in names if name in table.column_names]
    codes = [_codes(one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one) for one in columns]
    rows = table.num_rows
    if not rows:
        return np.zeros(0, np.int64)
    order = np.lexsort(codes)
    begins = np.ones(rows, bool)
    begins[1:] = np.any([np.diff(one[order]) != 0 for one in codes], axis=0)
    first = np.maximum.accumulate(np.where(begins, np.arange(rows), 0))
    ranks = np.empty(rows, np.int64)
    ranks[order] = np.arange(rows) - first
    return ranks


def _codes(column: pa.Array) -> np.ndarray:
    if pa.types.is_int64(column.type) and not column.null_count:
        return column.to_numpy()
    codes: np.ndarray = column.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes


def _relations_of(edges: pa.Table) -> dict[tuple[str, str, str], int]:
    names = [name for name in ("src_kind", "type", "dst_kind") if name in edges.column_names]
    if not names:
        return {("", "", ""): edges.num_rows} if edges.num_rows else {}
    counted = edges.group_by(names, use_threads=False).aggregate([([], "count_all")])
    found = {}
    for row in counted.to_pylist():
        relation = (row.get("src_kind") or "", row.get("type") or "", row.get("dst_kind") or "")
        found[relation] = int(row["count_all"])
    return found
