"""Reads snapshot folders: a whole graph as Parquet, as blocks of events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from freshet.errors import InputError
from freshet.files.json_file import DamagedFileError, read_json
from freshet.kinds import Kinds, some_names
from freshet.operators.limits import ID_BYTES_MAX
from freshet.operators.parser.arrow.arrays import advice_on
from freshet.operators.parser.arrow.parquet_file import open_parquet
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.keys import KEY_FIELD, KeyRules
from freshet.partitioner.events import OP_ADD_EDGE, OP_ADD_VERTEX, OP_NAMES, Events
from freshet.partitioner.ids import INT, STRING
from freshet.partitioner.times.units import MS, TsUnit
from freshet.schema import ATTR, Features, dropped_among

BLOCK_ROWS = 65_536
_BUFFER_BYTES = 1 << 20  # in place of all that a row group has of a column, which may be of any size

# In snapshot.json of a folder that `freshet embed` wrote; the latter has what it made, and of which graph.
MODEL_SHA256, OF_EMBED = "model_sha256", "embeddings"

KEY_SOURCES = "key_sources"
EVENT_TS = "event_ts"  # in snapshot.json of an export: the largest `ts` that the job had seen

_COLUMNS = {"vertices": ("id", "x"), "edges": ("src", "dst", "weight", "type", "attr")}
_REQUIRED = {"vertices": ("id", "x"), "edges": ("src", "dst")}
_OF_KINDS = {"vertices": ("kind",), "edges": ("src_kind", "dst_kind")}  # of models whose kinds have names
_OPS = {"vertices": OP_ADD_VERTEX, "edges": OP_ADD_EDGE}

_ADVICE = "put it back from a copy, or make the snapshot again (or take crc32 out of it, if you have changed it)"


class SnapshotError(InputError):
    """A snapshot folder that cannot be used; the message names the file, the row (from 0) and why."""


@with_config(ConfigDict(extra="allow"))
class _Info(TypedDict, total=False):
    """Fields of snapshot.json that are read, if there is one."""

    undirected: bool
    model_sha256: str
    event_ts: int
    positions: Any
    key_sources: list[str]  # of a job with --edge-key offset: the sources by whose numbers edges have keys


@dataclass(frozen=True)
class Snapshot:
    """A graph to start from: `blocks()` gives add_vertex events with features, then add_edge events.

    Applied in order they make the snapshot's graph: of equal vertices, and of equal (src, dst, type, key), the last row
    holds, and unknown ends of edges become vertices with zero features. The column `label` is not read.
    `is_timed`: the edges' column `ts` is read, and the largest `ts` of the job that exported the graph. `ts_unit` is
    that of integers there, unless a job exported them, which are milliseconds.
    """

    folder: Path
    features: Features
    id_kind: str
    edge_types: tuple[str, ...] | None
    vertices: int
    edges: int
    info: dict[str, Any] = field(default_factory=dict)  # snapshot.json, where there is one
    id_bytes_max: int = ID_BYTES_MAX
    is_timed: bool = False
    cast_ids: bool = False
    remark: str = ""  # on what its files lack
    ts_unit: TsUnit = MS
    key_kind: str = ""  # of the edges' column `key`; empty: there is none

    @property
    def is_empty(self) -> bool:
        """True if there are no rows, which would say the kind of the ids."""
        return not self.vertices and not self.edges

    def blocks(self, block_rows: int = BLOCK_ROWS, mapped: bool = True) -> Iterator[Events]:
        """The graph as events, validated as they are read; positions are rows of the file + 1.

        `mapped`: the files are mapped, which is quicker, and counts as memory of the process.

        Raises:
            SnapshotError: a row that is no vertex or edge, or a file that cannot be read.
        """
        most, unit = self.id_bytes_max, MS if EVENT_TS in self.info else self.ts_unit
        of = self.features, self.id_kind, self.edge_types
        keys = KeyRules("", self.key_kind, most)
        parser = Parser(*of, id_bytes_max=most, cast_ids=self.cast_ids, ts_unit=unit, keys=keys)
        for name in ("vertices", "edges"):
            columns = (*_COLUMNS[name], *(("ts",) if self.is_timed and name == "edges" else ()))
            columns += _OF_KINDS[name] if _names_kinds(self.features) else ()
            columns += (KEY_FIELD,) if self.key_kind and name == "edges" else ()
            needed = dict.fromkeys(_required(name, self.features), "")
            if 0 in self.features.widths and name == "vertices":
                needed["x"] = ", expected an empty list for a kind without features"
            for block in _blocks(self.folder / f"{name}.parquet", name, (columns, needed), parser, block_rows, mapped):
                yield self._stamped(block) if name == "vertices" else block

    def repeats_in_words(self, repeats: int) -> str:
        """Say how many edges repeat one before them, which they take the place of."""
        same = "(src, dst, type, key)" if self.key_kind else "(src, dst, type)"
        found = f"{self.folder / 'edges.parquet'}: {repeats:,} of {self.edges:,} edges repeat a {same}; the last one "
        if self.key_kind:
            return found + "of each holds: to count all of them, give each a key of its own"
        return found + (
            "of each holds, as without keys a graph has one edge of a type between two vertices: to count all of them, "
            "give each a key of its own in a column key, or sum their weights into one edge first"
        )

    def _stamped(self, block: Events) -> Events:
        """The vertices of a block, which say the largest `ts` of the job that exported them; it matters once."""
        event_ts = self.info.get(EVENT_TS) if self.is_timed else None
        return block if event_ts is None else replace(block, ts=np.full(len(block), event_ts, np.int64))


def open_snapshot(
    folder: Path | str,
    features: Features,
    id_kind: str | None = None,
    edge_types: Sequence[str] | None = None,
    id_bytes_max: int = ID_BYTES_MAX,
    *,
    is_timed: bool = False,
    cast_ids: bool = False,
    ts_unit: TsUnit = MS,
) -> Snapshot:
    """The snapshot in a folder, its columns checked but its rows not yet read.

    Args:
        folder: the folder.
        features: the model's raw features.
        id_kind: "int" or "string" to insist on one.
        edge_types: a typed model's edge types.
        id_bytes_max: the longest that a string id may be in UTF-8; a row with a longer one is refused as it is read.
        is_timed: whether times are read, too.
        cast_ids: whether integers are taken as the strings that write them.
        ts_unit: the unit of integers among these.

    Raises:
        SnapshotError: files, columns or ids are not as they must be.
    """
    folder = Path(folder)
    if not folder.is_dir():
        msg = f"{folder}: expected a snapshot folder (vertices.parquet, edges.parquet), found none"
        raise SnapshotError(msg)
    schemas, counts = {}, {}
    for name in ("vertices", "edges"):
        path = folder / f"{name}.parquet"
        try:
            with pq.ParquetFile(path) as file:
                schemas[name], counts[name] = file.schema_arrow, file.metadata.num_rows
        except (OSError, pa.ArrowException) as error:
            msg = f"{path}: cannot be read as Parquet: {error}"
            raise SnapshotError(msg) from error
        needed = _required(name, features)
        missing = [column for column in needed if column not in schemas[name].names]
        if missing:
            msg = f"{path}: expected columns {', '.join(needed)}, missing {', '.join(missing)}"
            msg += _listed(features.kinds, missing)
            msg += "; rename edge_type to type" if "type" in missing and "edge_type" in schemas[name].names else ""
            raise SnapshotError(msg)
    _refuse_kinds(folder, schemas, features)
    _refuse_widths(folder, schemas, features)
    of_rows = {name: schema for name, schema in schemas.items() if counts[name]}
    kind = _id_kind(folder, of_rows, id_kind, cast_ids)
    types = tuple(edge_types) if edge_types else None
    info = _read_info(folder)
    lacks = "" if features.kinds is None else features.kinds.without_types(schemas["edges"].names)
    if "edge_type" in schemas["edges"].names and "type" not in schemas["edges"].names:
        lacks += f"{'; ' if lacks else ''}edge_type is not read: name the column type"
    remark = f"{folder / 'edges.parquet'}: {lacks}" if lacks else ""
    counted = counts["vertices"], counts["edges"]
    found = Snapshot(folder, features, kind, types, *counted, info, id_bytes_max, is_timed, cast_ids, remark, ts_unit)
    return replace(found, key_kind=_key_kind(folder, schemas["edges"]))


def _key_kind(folder: Path, edges: pa.Schema) -> str:
    """Return the kind of the keys of a snapshot's edges; empty where they have none.

    Raises:
        SnapshotError: the column has another type.
    """
    if KEY_FIELD not in edges.names or pa.types.is_null(found := edges.field(KEY_FIELD).type):
        return ""
    if (kind := _kind_of(found)) is None:
        msg = f"{folder / 'edges.parquet'}: {KEY_FIELD}: expected integers or strings, got {found}{advice_on(found)}"
        raise SnapshotError(msg)
    return kind


def _names_kinds(features: Features) -> bool:
    return features.kinds is not None and features.kinds.are_named


def _required(name: str, features: Features) -> tuple[str, ...]:
    """The columns that a file must have, for a model with such features."""
    if name == "vertices":
        return ("id", "kind", "x") if _names_kinds(features) else _REQUIRED[name]
    may_lack = features.kinds is None or features.kinds.untyped is not None
    return _REQUIRED[name] if may_lack else (*_REQUIRED[name], "type")


def _listed(kinds: Kinds | None, missing: Sequence[str]) -> str:
    """Names that a missing column of kinds or types would have, for a reason."""
    if kinds is None or not {"kind", "type"} & set(missing):
        return ""
    names, which = (kinds.names, "kinds") if "kind" in missing else (kinds.types, "edge types")
    return f"; the model's {which} {some_names(names)}"


def _refuse_kinds(folder: Path, schemas: dict[str, pa.Schema], features: Features) -> None:
    """See that no column names kinds of vertices which the model does not have.

    Other columns that no model reads are ignored. Without these, vertices of two kinds that share an id become one.

    Raises:
        SnapshotError: one does.
    """
    for name, columns in _OF_KINDS.items():
        fields = [] if _names_kinds(features) else [field for field in schemas[name] if field.name in columns]
        there = [field.name for field in fields if not pa.types.is_null(field.type)]
        if there:
            msg = (
                f"{folder / name}.parquet: has {' and '.join(there)}, but the model has no kinds of vertices, so that "
                "two kinds' vertices with the same id would become one: give a model with kinds, or a snapshot of one "
                "kind without this column (rename the column if it means something else)"
            )
            raise SnapshotError(msg)


def _refuse_widths(folder: Path, schemas: dict[str, pa.Schema], features: Features) -> None:
    """See that rows of one width have a width that the model has; rows of other kinds and relations are seen as read.

    Raises:
        SnapshotError: they have not.
    """
    kind = schemas["vertices"].field("x").type
    if pa.types.is_struct(kind):
        msg = f"{folder / 'vertices.parquet'}: x: expected lists of numbers, got {str(kind)[:80]}{advice_on(kind)}"
        raise SnapshotError(msg)
    width = getattr(kind, "list_size", features.width)
    if width not in features.widths:
        msg = f"{folder / 'vertices.parquet'}: x: expected the model's {features}, got {width}"
        raise SnapshotError(msg)
    names = schemas["edges"].names
    found = getattr(schemas["edges"].field(ATTR).type, "list_size", None) if ATTR in names else None
    wanted = [features.given_edge_width] if features.kinds is None else features.kinds.edge_widths.tolist()
    if features.given_edge_width and found is not None and found not in wanted:
        msg = f"{folder / 'edges.parquet'}: attr: expected the model's {features.given_edge_width} numbers, got {found}"
        raise SnapshotError(msg)


def dropped_columns(folder: Path | None, features: Features) -> list[str]:
    """Return the columns of a snapshot's edges that the graph does not keep; none where it can't be read."""
    if folder is None or features.given_edge_width:
        return []
    try:
        return dropped_among(pq.read_schema(folder / "edges.parquet").names)
    except (OSError, pa.ArrowException):
        return []


def id_kind_of(folder: Path) -> str | None:
    """The kind of ids that a snapshot seems to have; None where it can't be read, as `open_snapshot` will say."""
    try:
        kind = pq.read_schema(folder / "vertices.parquet").field("id").type
    except (OSError, pa.ArrowException, KeyError):
        return None
    return _kind_of(kind)


def _kind_of(kind: pa.DataType) -> str | None:
    """The kind of ids that a column of this type holds; None where it is none."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_integer(kind):
        return INT
    return STRING if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


def _id_kind(folder: Path, schemas: dict[str, pa.Schema], wanted: str | None, cast_ids: bool) -> str:
    """The kind of a snapshot's ids, by the files that have rows: of those without, pandas knows no types.

    Raises:
        SnapshotError: there are several kinds, or another one than the one that is wanted.
    """
    kinds = {}
    for name, column in (("vertices", "id"), ("edges", "src"), ("edges", "dst")):
        if name not in schemas:
            continue
        found = schemas[name].field(column).type
        kind = _kind_of(found)
        if kind is None:
            msg = f"{folder / name}.parquet: {column}: expected integers or strings, got {found}{advice_on(found)}"
            raise SnapshotError(msg)
        kinds[column] = STRING if cast_ids else kind
    if len(set(kinds.values())) > 1:
        msg = f"{folder}: expected ids of one kind, got {kinds}; --id-type string takes integers as strings"
        raise SnapshotError(msg)
    found_kind = next(iter(kinds.values()), None)
    if wanted is not None and found_kind not in (None, wanted):
        msg = f"{folder}: expected ids of the kind {wanted}, got {found_kind}"
        raise SnapshotError(msg)
    return found_kind or wanted or INT


def _read_info(folder: Path) -> dict[str, Any]:
    path = folder / "snapshot.json"
    try:
        return dict(read_json(path, _Info, _ADVICE) or {})
    except DamagedFileError as error:
        raise SnapshotError(str(error)) from None


def _blocks(
    path: Path,
    name: str,
    columns_of: tuple[tuple[str, ...], dict[str, str]],
    parser: Parser,
    block_rows: int,
    mapped: bool,
) -> Iterator[Events]:
    """`columns_of` it: all that are read, and those that have a value in every row, with a hint if one has none."""
    first, (wanted, needed) = 0, columns_of
    op = OP_NAMES[_OPS[name]]
    try:
        with open_parquet(path, memory_map=mapped, buffer_size=0 if mapped else _BUFFER_BYTES) as file:
            columns = [column for column in wanted if column in file.schema_arrow.names]
            for batch in file.iter_batches(block_rows, columns=columns, use_threads=True):
                for column, hint in needed.items():
                    _refuse_nulls(path, first, column, batch.column(columns.index(column)), hint)
                ops = pa.DictionaryArray.from_arrays(np.zeros(batch.num_rows, np.int8), pa.array([op]))
                table = pa.table([ops, *batch.columns], names=["op", *columns])
                events, letters = parser.parse_table(table, Origin(name=str(path)), first, time.time() * 1e3)
                if letters:
                    msg = f"{path}: row {letters[0].offset}: {letters[0].error}"
                    raise SnapshotError(msg)
                first += batch.num_rows
                if len(events):
                    yield events
    except (OSError, pa.ArrowException) as error:
        msg = f"{path}: cannot be read: {error}"
        raise SnapshotError(msg) from error


def _refuse_nulls(path: Path, first: int, name: str, array: pa.Array, hint: str) -> None:
    if array.null_count:
        row = first + int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        msg = f"{path}: row {row}: {name}: missing{hint}"
        raise SnapshotError(msg)
