"""A snapshot read by columns for `freshet check`: only the usual types; all others are checked row by row.

The rules are those of job/results/plain_rules.py, implemented for whole columns. If a column has an unusual type, or a
row is not valid, nothing is decided here: `plain_reader.snapshot_events` then reads the snapshot, slowly, and names the
row. Nothing of the job's own reader is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.job.errors import UsageError
from freshet.job.results.plain_graph import SnapshotGraph
from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.arrow.parquet_file import open_parquet
from freshet.partitioner.config import NO_RULES, GraphRules
from freshet.schema import WEIGHT, EdgeValues, Features

_TYPES_MAX = 256
_KEYS_MAX, _EDGES_MAX = 2**62, 2**30
_ROWS_AT_ONCE = 1 << 16


class _Unusual(Exception):
    """Something that is to be judged row by row."""


def read_snapshot(folder: Path, rules: PlainRules, graph: GraphRules = NO_RULES) -> SnapshotGraph | None:
    """Read a snapshot; None where it has to be read row by row.

    Raises: UsageError for a file that can't be read.
    """
    vertices, edges = (folder / f"{name}.parquet" for name in ("vertices", "edges"))
    path = vertices
    try:
        own = _column(vertices, "id")
        path = edges
        src, dst = _column(edges, "src"), _column(edges, "dst")
        codes, ids = _numbered([own, src, dst], rules)
        kinds, types = _types(edges, rules)
        values = _values(edges, len(src))
        ends = codes[len(own) :].reshape(2, -1)
        odd_loops = graph.forbid_typed_loops and len(types) > 1 and (ends[0] == ends[1]).any()
        has_times = graph.edge_ttl_ms and _has(edges, "ts")
        if rules.features.edge_width or _has(edges, "attr") or odd_loops or has_times:
            return None
        keys, values = _last_of_equal(kinds, ends, values, len(ids), undirected=graph.undirected)
        path = vertices
        x = _features(vertices, codes[: len(own)], len(ids), rules.features)
    except _Unusual:
        return None
    except (OSError, pa.ArrowException) as error:
        msg = f"--snapshot {path}: can't be read: {error}"
        raise UsageError(msg) from None
    return SnapshotGraph(ids, x, keys, values, types)


def _has(path: Path, column: str) -> bool:
    return column in pq.read_schema(path).names


def _column(path: Path, name: str) -> pa.ChunkedArray:
    if not _has(path, name):
        raise _Unusual
    return pq.read_table(path, columns=[name])[name]


def _numbered(columns: list[pa.ChunkedArray], rules: PlainRules) -> tuple[np.ndarray, list[int | str]]:
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
    coded = every.combine_chunks().dictionary_encode()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    return coded.indices.to_numpy(), coded.dictionary.to_pylist()


def _check_text(column: pa.ChunkedArray) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:  # not UTF-8
        raise _Unusual from None


def _types(path: Path, rules: PlainRules) -> tuple[np.ndarray | int, list[str]]:
    """The number of each edge's type, 0 where there is one alone, and the names."""
    if not _has(path, "type"):
        return 0, [rules.default_type]
    column = _column(path, "type")
    if pa.types.is_null(column.type):
        return 0, [rules.default_type]
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise _Unusual
    _check_text(column)
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    given = coded.dictionary.to_pylist()
    if len(given) > _TYPES_MAX or not all(rules.is_type(name) for name in given):
        raise _Unusual
    names = [rules.default_type if name is None else name for name in given]
    types = list(dict.fromkeys(names))
    number = np.array([types.index(name) for name in names], np.int64)
    return number[coded.indices.to_numpy()], types


def _values(path: Path, edges: int) -> EdgeValues:
    """Values of each edge."""
    if not _has(path, WEIGHT):
        return EdgeValues.default(edges)
    column = _column(path, WEIGHT)
    if not pa.types.is_floating(column.type):
        raise _Unusual
    weight = _finite(column.cast(pa.float64()).fill_null(1.0).to_numpy())
    return EdgeValues.from_columns({WEIGHT: weight}, edges)


def _finite(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32, copy=False)
    if not np.isfinite(narrow).all():
        raise _Unusual
    return narrow


def _last_of_equal(
    kinds: np.ndarray | int, ends: np.ndarray, values: EdgeValues, n: int, *, undirected: bool
) -> tuple[np.ndarray, EdgeValues]:
    """The keys of the edges in ascending order, and what each was given last.

    Shapes: ends (2, m) rows of ids; keys (edges,) int64
    """
    m = ends.shape[1]
    if (int(np.max(kinds, initial=0)) + 1) * n**2 > _KEYS_MAX or m > _EDGES_MAX:
        raise _Unusual
    src, dst = ends.astype(np.int64)
    keys = (kinds * n + src) * n + dst
    if undirected:  # each edge, then the one the other way round
        keys = np.stack([keys, (kinds * n + dst) * n + src], axis=1).reshape(-1)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    last = np.append(keys[1:] != keys[:-1], True) if m else np.empty(0, bool)
    rows = order[last]
    return keys[last], values[rows // 2 if undirected else rows]


def _features(path: Path, rows: np.ndarray, n: int, features: Features) -> np.ndarray:
    """The features of all vertices, those that came last; zeros where there are none."""
    x, first = features.zeros(n), 0
    for column in _pieces(path, "x") if _has(path, "x") else ():
        given = column.is_valid().to_numpy(zero_copy_only=False)
        values = _rows_of(column.drop_null(), features.width)
        x[rows[first : first + len(column)][given]] = values
        first += len(column)
    return x


def _pieces(path: Path, column: str) -> Iterator[pa.Array]:
    with open_parquet(path) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[column]):
            yield batch.column(0)


def _rows_of(column: pa.Array, width: int) -> np.ndarray:
    """Lists of numbers as rows."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        fits = kind.list_size == width
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        fits = not len(column) or pc.all(pc.equal(pc.list_value_length(column), width)).as_py()
    else:
        raise _Unusual
    flat = column.flatten()
    if not fits or flat.null_count or not pa.types.is_floating(flat.type):
        raise _Unusual
    return _finite(flat.to_numpy(zero_copy_only=False)).reshape(len(column), width)
