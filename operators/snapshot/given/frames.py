"""Frames of vertices and edges: of pandas or polars, Arrow tables, and what else gives Arrow its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from freshet.operators.parser.arrow.arrays import is_list, is_number, one_array, usual_array
from freshet.operators.parser.keys import KEY_FIELD
from freshet.operators.snapshot.given.columns import (
    ids_of,
    keys_of,
    labels_of,
    lists_of,
    matrix_of,
    names_of,
    numbers_of,
    refuse,
    times_of,
    vectors,
)
from freshet.operators.snapshot.given.graph import GivenEdges, GivenVertices
from freshet.schema import ATTR

OF_VERTICES = "id", "x", "label", "kind"
OF_EDGES = "src", "dst", "weight", "type", ATTR, KEY_FIELD, "ts", "src_kind", "dst_kind"
_LISTS = "x", ATTR  # which several columns of numbers may make up
# What others call these columns.
_ALSO = {
    "id": "node_id node vertex vertex_id nid",
    "x": "features feature feat feats embedding",
    "label": "y labels target_class class",
    "src": "source from src_id source_id sender u head",
    "dst": "target to dest destination dst_id target_id receiver v tail",
    "weight": "edge_weight weights w",
    "type": "edge_type etype rel relation",
    ATTR: "edge_attr edge_attrs attrs attributes",
    "ts": "timestamp time",
}
Named: TypeAlias = Mapping[Any, Any]


class Frame:
    """Columns of a frame, whichever library it is of, each read as Arrow when it is wanted."""

    def __init__(self, given: Any, where: str) -> None:
        """`where`: what messages call it.

        Raises: SnapshotError for what is no frame.
        """
        self.where, self._given = where, _readable(given, where)
        names = list(self._given.columns if self._is_frame else self._given.column_names)
        if wrong := [name for name in names if not isinstance(name, str)]:
            refuse(f"{where}: expected columns with names, got {wrong[0]!r}; rename it")
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            refuse(f"{where}: {len(twice)} names of columns are there twice, such as {twice[0]!r}; rename one")
        self.names: list[str] = names

    @property
    def _is_frame(self) -> bool:
        """True for pandas and polars."""
        return not isinstance(self._given, pa.Table)

    def read(self, name: str) -> pa.Array:
        """Return a column as one array.

        Raises: SnapshotError where its values are of several types.
        """
        try:
            if not self._is_frame:
                column = self._given[name]
            elif hasattr(self._given, "iloc"):
                column = pa.array(self._given[name], from_pandas=True)
            else:
                column = self._given[name].to_arrow()
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            refuse(f"{self.where}: {name}: expected values of one type: {str(error).partition(chr(10))[0][:200]}")
        return usual_array(one_array(column))


def vertices_of(frame: Frame, columns: Named, kind: str | None = None) -> GivenVertices:
    """Return the vertices of a frame; `columns`: names in the frame by those of a snapshot; `kind`: of all of them.

    Raises: SnapshotError naming the frame, the column and the row.
    """
    where = frame.where
    found = _resolved(frame, columns, OF_VERTICES, ("id", "x") if kind is None else ("id",))
    if kind is not None and "kind" in found:
        refuse(f"{where}: kind: the frame is of the kind {kind}; leave the column out: columns={{'kind': None}}")
    ids = ids_of(frame.read(found["id"]), f"{where}: {found['id']}")
    several = kind is not None or "kind" in found
    values, lengths = _numbers(frame, found["x"], "x" in columns, several=several) if "x" in found else _none(len(ids))
    label = labels_of(frame.read(found["label"]), f"{where}: {found['label']}") if "label" in found else None
    if "kind" in found:
        return GivenVertices(where, ids, values, lengths, label, names_of(frame.read(found["kind"]), f"{where}: kind"))
    kinds = None if kind is None else pa.array([kind], pa.string()).take(pa.array(np.zeros(len(ids), np.int64)))
    return GivenVertices(where, ids, values, lengths, label, kinds)


def edges_of(frame: Frame, columns: Named, relation: tuple[str, str, str] | None = None) -> GivenEdges:
    """Return the edges of a frame; `relation`: of all of them, its kinds empty where the type says them.

    Raises: SnapshotError naming the frame, the column and the row.
    """
    where = frame.where
    found = _resolved(frame, columns, OF_EDGES, ("src", "dst"))
    made = {}
    readers = {"src": ids_of, "dst": ids_of, "ts": times_of, KEY_FIELD: keys_of}
    readers |= dict.fromkeys(("type", "src_kind", "dst_kind"), names_of)
    for name, of in found.items():
        if name == ATTR:
            made[name] = vectors(*_numbers(frame, of, ATTR in columns, several=True))
        elif name == "weight":
            made[name] = pa.array(numbers_of(frame.read(of), f"{where}: {of}"))
        else:
            made[name] = readers[name](frame.read(of), f"{where}: {of}")
    for name, value in zip(("src_kind", "type", "dst_kind"), relation or (), strict=False):
        if value and name in made:
            refuse(f"{where}: {name}: the frame is of {value!r}; leave the column out: columns={{{name!r}: None}}")
        if value:
            made[name] = pa.array([value], pa.string()).take(pa.array(np.zeros(len(made["src"]), np.int64)))
    return GivenEdges(where, made)


def left_out(frame: Frame, columns: Named, known: Sequence[str]) -> list[str]:
    """Return the columns of a frame that no snapshot has."""
    used = {one for name in known for one in _listed(columns.get(name, name))}
    silenced = {name for name in known if name in columns and columns[name] is None}
    return [name for name in frame.names if name not in used | silenced]


def mapping_of(columns: Any) -> Named:
    """Return the names of columns as they were given.

    Raises: SnapshotError for what is no mapping.
    """
    if not isinstance(columns, Mapping):
        refuse(f"columns: expected a mapping such as {{'src': 'payer'}}, got {type(columns).__name__}", "columns")
    return columns


def refuse_unknown(columns: Named, known: Sequence[str]) -> None:
    """Check that names of columns are given for columns that a snapshot has.

    Raises: SnapshotError otherwise.
    """
    for name, of in columns.items():
        if name not in known:
            turned = isinstance(of, str) and of in known
            near = get_close_matches(str(name), known, n=1, cutoff=0.6)
            hint = f"; write {{{of!r}: {name!r}}}" if turned else f"; did you mean {near[0]!r}?" if near else ""
            refuse(f"columns: {name!r}: no column of a snapshot, which has {', '.join(known)}{hint}", "columns")
        if not (of is None or isinstance(of, str) or (name in _LISTS and _are_names(of))):
            wanted = "a name, or a list of names" if name in _LISTS else "a name"
            refuse(f"columns: {name}: expected {wanted}, got {of!r}", "columns")


def _are_names(of: Any) -> bool:
    return isinstance(of, list | tuple) and bool(of) and all(isinstance(one, str) for one in of)


def _listed(of: Any) -> list[str]:
    return [] if of is None else [of] if isinstance(of, str) else list(of)


def _resolved(frame: Frame, columns: Named, known: Sequence[str], required: Sequence[str]) -> dict[str, Any]:
    """Return the frame's columns by the names that a snapshot has.

    Raises: SnapshotError for one that is not there, and for one that looks like another name of one.
    """
    found: dict[str, Any] = {}
    for name in known:
        of = columns.get(name, name)
        if name in columns:
            for one in _listed(of):
                if one not in frame.names:
                    refuse(f"{frame.where}: no column {one!r}, which columns names; {_has(frame)}", "columns")
            if of is not None:
                found[name] = of
        elif name in frame.names:
            found[name] = name
    rest = [name for name in frame.names if name not in {one for of in found.values() for one in _listed(of)}]
    rest = [name for name in rest if columns.get(name, name) is not None]
    for name in required:
        if name not in found:
            near = next((one for one in rest if one.lower() in _ALSO[name].split()), None)
            shown = repr(near) if near else "['a', 'b', ...]" if name == "x" else "..."
            refuse(f"{frame.where}: no column {name}; {_has(frame)}: name it by columns={{{name!r}: {shown}}}", name)
    for one in rest:
        for name in known:
            if name not in found and name not in columns and _means(one, name):
                refuse(
                    f"{frame.where}: {one}: no column of a snapshot; name it by columns={{{name!r}: {one!r}}}, or "
                    f"leave it out by columns={{{name!r}: None}}",
                    "columns",
                )
    return found


def _means(one: str, name: str) -> bool:
    """Return whether a column would change what a model returns, by a name that others have for it or misspelt."""
    also = _ALSO[name].split() if name in ("weight", "type", ATTR) else ()
    return one.lower() in also or bool(get_close_matches(one.lower(), [name], cutoff=0.75))


def _has(frame: Frame) -> str:
    return f"it has {', '.join(frame.names) or 'none'}"


def _none(rows: int) -> tuple[np.ndarray, np.ndarray]:
    return np.empty(0, np.float32), np.zeros(rows, np.int64)


def _numbers(frame: Frame, of: Any, is_named: bool, *, several: bool) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a column of lists, or of columns of numbers, row by row; `several`: of several lengths.

    Raises: SnapshotError as `matrix_of`.
    """
    if isinstance(of, str):
        column, where = frame.read(of), f"{frame.where}: {of}"
        if not is_named and is_number(column.type):
            refuse(
                f"{where}: expected lists of numbers, got {column.type}; one column is {{{of!r}: [{of!r}]}}", "columns"
            )
        if is_list(column.type) or not is_named:
            if several:
                return lists_of(column, where)
            values = matrix_of(column, where)
            return values.reshape(-1), np.full(len(column), values.shape[1], np.int64)
        of = [of]
    rows = [numbers_of(frame.read(one), f"{frame.where}: {one}") for one in of]
    matrix = np.stack(rows, axis=1)
    return np.ascontiguousarray(matrix).reshape(-1), np.full(len(matrix), len(of), np.int64)


def _readable(given: Any, where: str) -> Any:
    """A frame whose columns can be read by name."""
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.RecordBatchReader):
        return given.read_all()
    if hasattr(given, "iloc") and hasattr(given, "reset_index"):  # pandas; a named index is a column
        names = [name for name in given.index.names if name is not None and name not in given.columns]
        return given.reset_index(level=names) if names else given
    if _is_polars(given):
        return given.collect() if type(given).__name__ == "LazyFrame" else given
    if hasattr(given, "__arrow_c_stream__"):
        return pa.table(given)
    refuse(f"{where}: expected a frame of pandas or polars or an Arrow table, got {type(given).__name__}")


def _is_polars(given: Any) -> bool:
    return type(given).__module__.partition(".")[0] == "polars" and type(given).__name__ in ("DataFrame", "LazyFrame")


def by_name(given: Any, what: str) -> Iterator[tuple[Any, Any]]:
    """Yield the frames of a mapping with their kinds or relations, or the one that is given with None.

    Raises: SnapshotError for an empty mapping.
    """
    if not isinstance(given, Mapping):
        yield None, given
        return
    if not given:
        refuse(f"{what}: expected a frame, or a frame for each kind, got an empty mapping", what)
    yield from given.items()
