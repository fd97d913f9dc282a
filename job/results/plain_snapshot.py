"""A snapshot read by columns for `freshet check`: only the usual types; all others are checked row by row.

The rules are those of job/results/plain_rules.py and plain_kinds.py, implemented for whole columns. If a column has an
unusual type, or a row is not valid, nothing is decided here: `plain_reader.snapshot_events` then reads the snapshot,
slowly, and names the row. Nothing of the job's own reader is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.job.errors import UsageError
from freshet.job.results.plain_graph import SnapshotGraph
from freshet.job.results.plain_kinds import KIND_FIELDS, PlainKindsRules
from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.arrow.parquet_file import open_parquet
from freshet.partitioner.config import NO_RULES, GraphRules
from freshet.partitioner.reference.kinds import kinds_of, mirrors_of
from freshet.schema import ATTR, WEIGHT, EdgeValues, Features

_TYPES_MAX = 256
_KEYS_MAX, _EDGES_MAX = 2**62, 2**30
_ROWS_AT_ONCE = 1 << 16


class _Unusual(Exception):
    """Something that is to be judged row by row."""


class _Types(NamedTuple):
    """The types of edges.

    Shapes: number (edges,) int64, of each edge; mirrors (types,) int64, the type of the edge that follows, -1 for none
    """

    number: np.ndarray
    names: list[str]
    mirrors: np.ndarray


class _Vertices(NamedTuple):
    """All vertices, in the order of their coming.

    Shapes: ids n; kind (n,) uint8, None: they have none; own (rows of the vertices' file,) numbers of vertices; ends
    (2, edges) likewise
    """

    ids: list[Any]
    kind: np.ndarray | None
    own: np.ndarray
    ends: np.ndarray


def read_snapshot(folder: Path, rules: PlainRules, graph: GraphRules = NO_RULES) -> SnapshotGraph | None:
    """Read a snapshot; None where it has to be read row by row.

    Raises: UsageError for a file that can't be read.
    """
    vertices, edges = (folder / f"{name}.parquet" for name in ("vertices", "edges"))
    path = vertices
    try:
        own = _column(vertices, "id")
        path = edges
        of, types = [own, _column(edges, "src"), _column(edges, "dst")], _types(edges, rules, graph)
        values = _values(edges, types, rules)
        path = vertices
        every = _every(of, types, rules, vertices)
        odd_loops = graph.forbid_typed_loops and len(types.names) > 1 and (every.ends[0] == every.ends[1]).any()
        has_times = graph.edge_ttl_ms and _has(edges, "ts")
        if odd_loops or has_times or (graph.edge_keys and _has(edges, "key")):
            return None
        keys, values = _last_of_equal(types, every.ends, values, len(every.ids))
        x = _zeros(every, rules.features)
        read = SnapshotGraph(every.ids, x, keys, values, types.names, every.kind)
        _read_features(vertices, every.own, read)
    except _Unusual:
        return None
    except (OSError, pa.ArrowException) as error:
        msg = f"--snapshot {path}: can't be read: {error}"
        raise UsageError(msg) from None
    return read


def _has(path: Path, column: str) -> bool:
    return column in pq.read_schema(path).names


def _column(path: Path, name: str) -> pa.ChunkedArray:
    if not _has(path, name):
        raise _Unusual
    return pq.read_table(path, columns=[name])[name]


def _every(columns: list[pa.ChunkedArray], types: _Types, rules: PlainRules, path: Path) -> _Vertices:
    """Number the vertices of the columns, those of the vertices' file first, then sources and destinations."""
    codes, ids = _numbered(columns, rules)
    rows, kind = len(columns[0]), None
    if isinstance(rules, PlainKindsRules):
        kinds = kinds_of(rules.features)
        of_ends = kinds.ends[:, types.number]
        pairs = codes * np.int64(len(kinds)) + np.concatenate([_kinds(path, rules, rows), of_ends.reshape(-1)])
        coded = pa.array(pairs).dictionary_encode()
        codes, (places, code) = coded.indices.to_numpy(), np.divmod(coded.dictionary.to_numpy(), len(kinds))
        ids = [(kinds.names[k], ids[place]) for k, place in zip(code.tolist(), places.tolist(), strict=True)]
        kind = code.astype(np.uint8)
    return _Vertices(ids, kind, codes[:rows], codes[rows:].reshape(2, -1))


def _numbered(columns: list[pa.ChunkedArray], rules: PlainRules) -> tuple[np.ndarray, list[Any]]:
    """All ids in the order of their coming, and for each row of the columns which one it is.

    Shapes: codes (rows of all columns,) int32
    """
    kind = columns[0].type
    if not any(map(len, columns)) or any(column.type != kind or column.null_count for column in columns):
        raise _Unusual
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        for column in columns:
            _check_text(column)
            if (pc.max(pc.binary_length(column)).as_py() or 0) > rules.id_bytes_max:
                raise _Unusual
    elif not pa.types.is_signed_integer(kind):
        raise _Unusual
    if not rules.takes_ids_of(int if pa.types.is_integer(kind) else str):
        raise _Unusual
    wide = pa.int64() if pa.types.is_integer(kind) else pa.large_string()
    every = pa.chunked_array([chunk for column in columns for chunk in column.cast(wide).chunks], wide)
    coded = _coded(every)
    return coded.indices.to_numpy(), coded.dictionary.to_pylist()


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded


def _check_text(column: pa.ChunkedArray) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:  # not UTF-8
        raise _Unusual from None


def _texts(path: Path, name: str) -> tuple[np.ndarray, list[str | None]]:
    """The texts of a column in the order of their coming, and for each row which one it is."""
    column = _column(path, name)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int32), [None]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise _Unusual
    _check_text(column)
    coded = _coded(column)
    return coded.indices.to_numpy(), coded.dictionary.to_pylist()


def _kinds(path: Path, rules: PlainKindsRules, rows: int) -> np.ndarray:
    """The number of the kind of each row of the vertices' file."""
    kinds = kinds_of(rules.features)
    if not kinds.are_named:
        return np.zeros(rows, np.int64)
    codes, given = _texts(path, KIND_FIELDS[0])
    if not all(name in kinds.names for name in given):
        raise _Unusual
    return np.array([kinds.kind_codes[str(name)] for name in given], np.int64)[codes]


def _types(path: Path, rules: PlainRules, graph: GraphRules) -> _Types:
    """The types of the edges; one alone where the file says none."""
    rows = pq.read_metadata(path).num_rows
    if isinstance(rules, PlainKindsRules):
        return _relations(path, rules, graph, rows)
    types, number = [rules.default_type], np.zeros(rows, np.int64)
    if _has(path, "type"):
        codes, given = _texts(path, "type")
        if len(given) > _TYPES_MAX or not all(rules.is_type(name) for name in given):
            raise _Unusual
        names = [rules.default_type if name is None else name for name in given]
        types = list(dict.fromkeys(names))
        number = np.array([types.index(name) for name in names], np.int64)[codes]
    return _Types(number, types, np.arange(len(types)) if graph.undirected else np.full(len(types), -1))


def _relations(path: Path, rules: PlainKindsRules, graph: GraphRules, rows: int) -> _Types:
    """The relations of the edges, as their types and the kinds of their ends say them."""
    kinds, number = kinds_of(rules.features), np.zeros(rows, np.int64)
    records: list[dict[str, Any]] = [{}]
    for field in ("type", *(KIND_FIELDS[1:] if kinds.are_named else ())):
        if _has(path, field):
            codes, given = _texts(path, field)
            there, number = np.unique(number * len(given) + codes, return_inverse=True)
            records = [records[one // len(given)] | {field: given[one % len(given)]} for one in there.tolist()]
    found = [rules.relation_of(record) for record in records] if rows else []
    if None in found:
        raise _Unusual
    mirrors, names = mirrors_of(kinds, undirected=graph.undirected), list(kinds.relation_names)
    following = np.array([names.index(mirrors[name]) if name in mirrors else -1 for name in names])
    return _Types(np.array(found, np.int64)[number] if rows else number, names, following)


def _values(path: Path, types: _Types, rules: PlainRules) -> EdgeValues:
    """Values of each edge."""
    edges, given = len(types.number), dict[str, np.ndarray]()
    if _has(path, WEIGHT):
        column = _column(path, WEIGHT)
        if not pa.types.is_floating(column.type) and not pa.types.is_null(column.type):
            raise _Unusual
        given[WEIGHT] = _finite(column.cast(pa.float64()).fill_null(1.0).to_numpy())
    return EdgeValues(edges, given, _attributes(path, types, rules))


def _attributes(path: Path, types: _Types, rules: PlainRules) -> np.ndarray | None:
    """The attributes of each edge that the graph keeps, zeros where it has none; None where the graph keeps none."""
    kinds, width, of_types = rules.features.kinds, rules.features.given_edge_width, rules.features.types
    if kinds is None and not width and _has(path, ATTR):  # the graph knows how wide the dropped ones are
        raise _Unusual
    attr, first = np.zeros((len(types.number), of_types + width), np.float32), 0
    for number, name in enumerate(types.names) if of_types else ():
        attr[types.number == number, rules.edge_types.index(name)] = 1
    widths = np.array([width]) if kinds is None else kinds.edge_widths
    for column in _pieces(path, ATTR) if _has(path, ATTR) else ():
        given = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        of = np.zeros(len(given), np.int64) if kinds is None else types.number[first + given]
        for wide in np.unique(widths[of]).tolist():
            mine = np.flatnonzero(widths[of] == wide)
            some = column.take(pa.array(given[mine]))
            if wide:
                attr[first + given[mine], of_types : of_types + wide] = _rows_of(some, wide)
            else:
                _numbers(some)
        first += len(column)
    return attr if attr.shape[1] else None


def _finite(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, copy=False)
    if not np.isfinite(narrow).all():
        raise _Unusual
    return narrow


def _last_of_equal(types: _Types, ends: np.ndarray, values: EdgeValues, n: int) -> tuple[np.ndarray, EdgeValues]:
    """The keys of the edges in ascending order, and what each was given last.

    Shapes: ends (2, m) rows of ids; keys (edges,) int64
    """
    m = ends.shape[1]
    if len(types.names) * n**2 > _KEYS_MAX or m > _EDGES_MAX:
        raise _Unusual
    src, dst = ends.astype(np.int64)
    keys, of = (types.number * n + src) * n + dst, np.arange(m)
    following = types.mirrors[types.number]
    if (following >= 0).any():  # each edge, then the one the other way round
        keys = np.stack([keys, (following * n + dst) * n + src], axis=1).reshape(-1)
        of = np.flatnonzero(np.stack([np.ones(m, bool), following >= 0], axis=1))
        keys, of = keys[of], of // 2
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    last = np.append(keys[1:] != keys[:-1], True) if m else np.empty(0, bool)
    return keys[last], values[of[order[last]]]


def _zeros(every: _Vertices, features: Features) -> list[np.ndarray]:
    """Features of all vertices by kind, as far as nothing says them."""
    kind = np.zeros(len(every.ids), np.uint8) if every.kind is None else every.kind
    counts = np.bincount(kind, minlength=len(features.widths)).tolist()
    return [np.zeros(shape, np.float32) for shape in zip(counts, features.widths, strict=True)]


def _read_features(path: Path, rows: np.ndarray, graph: SnapshotGraph) -> None:
    """Give vertices their features, those that came last.

    Shapes: rows (rows of the file,) numbers of vertices
    """
    first = 0
    for column in _pieces(path, "x") if _has(path, "x") else ():
        given = column.is_valid().to_numpy(zero_copy_only=False)
        vertices, column = rows[first : first + len(column)][given], column.drop_null()
        first += len(given)
        for kind, x in enumerate(graph.x):
            mine = slice(None) if graph.kind is None else np.flatnonzero(graph.kind[vertices] == kind)
            if len(some := column if isinstance(mine, slice) else column.take(pa.array(mine))):
                x[graph.x_row[vertices[mine]]] = _rows_of(some, x.shape[1])


def _pieces(path: Path, column: str) -> Iterator[pa.Array]:
    with open_parquet(path) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[column]):
            yield batch.column(0)


def _rows_of(column: pa.Array, width: int) -> np.ndarray:
    """Lists of as many numbers as rows."""
    if not (pc.all(pc.equal(pc.list_value_length(column), width)).as_py() if _is_list(column.type) else False):
        raise _Unusual
    return _numbers(column).reshape(len(column), width)


def _numbers(column: pa.Array) -> np.ndarray:
    """The numbers of all lists, of which none is null."""
    flat = column.flatten() if _is_list(column.type) else column
    if not _is_list(column.type) or flat.null_count or not pa.types.is_floating(flat.type):
        raise _Unusual
    return _finite(flat.to_numpy(zero_copy_only=False))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
