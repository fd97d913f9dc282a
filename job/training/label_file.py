"""Files and frames of labels: a row for each labelled vertex, checked before anything is joined."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.errors import InputError
from freshet.operators.parser.formats import TABLES, begins_wrong, format_of
from freshet.operators.snapshot.given.columns import ids_of, labels_of, names_of, times_of
from freshet.operators.snapshot.given.frames import Frame
from freshet.operators.snapshot.reader import SnapshotError

_COLUMNS = "id", "label", "kind", "ts"
_START_BYTES = 64


class Labels(NamedTuple):
    """Labels by vertex, each vertex once.

    Shapes: ids (n,) int64 or string; labels (n,) int64; kinds (n,) string, or None; ts (n,) int64, or None
    """

    where: str  # what messages begin with
    ids: pa.Array
    labels: np.ndarray
    kinds: pa.Array | None
    ts: np.ndarray | None

    def of(self, kind: str) -> Labels:
        """Return the labels of one kind, all where no kinds are named."""
        if self.kinds is None:
            return self
        return self._taken(np.flatnonzero(pc.equal(self.kinds, kind).to_numpy(zero_copy_only=False)))

    def _taken(self, rows: np.ndarray) -> Labels:
        indices = pa.array(rows, pa.int64())
        kinds = None if self.kinds is None else self.kinds.take(indices)
        ts = None if self.ts is None else self.ts[rows]
        return Labels(self.where, self.ids.take(indices), self.labels[rows], kinds, ts)

    def distinct(self) -> Labels:
        """Return one row for each vertex: the one with the greatest `ts`.

        Raises: InputError naming a vertex that has two labels, at one time or without times.
        """
        groups = _codes(self.ids) if self.kinds is None else _pairs(_codes(self.kinds), _codes(self.ids))
        ts = np.zeros(len(groups), np.int64) if self.ts is None else self.ts
        order = np.lexsort((ts, groups))
        is_last = np.append(groups[order][1:] != groups[order][:-1], True)[: len(groups)]
        ends = order[is_last]
        holding = ends[np.cumsum(is_last) - is_last]
        wrong = (ts[order] == ts[holding]) & (self.labels[order] != self.labels[holding])
        if wrong.any():
            self._refuse_two(*sorted((int(order[wrong][0]), int(holding[wrong][0]))))
        return self._taken(np.sort(ends))

    def _refuse_two(self, first: int, second: int) -> NoReturn:
        vertex = repr(self.ids[first].as_py())
        of_kind = "" if self.kinds is None else f"{self.kinds[first].as_py()} "
        advice = "a column ts says which is newer" if self.ts is None else "their ts is the same"
        msg = (
            f"{self.where}: id: row {second}: {of_kind}{vertex} has the label {self.labels[second]}, and "
            f"{self.labels[first]} in row {first}; expected one label for each vertex ({advice})"
        )
        raise InputError(msg)


def read_labels(given: Any) -> Labels:
    """Return the labels of a Parquet or Arrow file, or of a frame.

    Raises: InputError naming the file, the column and the row (from 0).
    """
    is_path = isinstance(given, str | Path)
    where = str(given) if is_path else "labels"
    try:
        frame = Frame(_table(Path(given)) if is_path else given, where)
        _refuse_missing(frame)
        ids = ids_of(frame.read("id"), f"{where}: id")
        kinds = names_of(frame.read("kind"), f"{where}: kind") if "kind" in frame.names else None
        ts = times_of(frame.read("ts"), f"{where}: ts") if "ts" in frame.names else None
        labels = _classes(frame.read("label"), f"{where}: label")
    except SnapshotError as error:
        raise InputError(str(error)) from None
    if ts is not None:
        _refuse_nulls(ts, f"{where}: ts")
    return Labels(where, ids, labels, kinds, None if ts is None else ts.to_numpy())


def _table(path: Path) -> pa.Table:
    if path.is_dir():
        msg = f"{path}: a folder; expected one file of labels"
        raise InputError(msg)
    name = format_of(path)
    try:
        with path.open("rb") as file:
            start = file.read(_START_BYTES)
        if name not in TABLES:
            msg = (
                f"{path}: expected a file of labels that ends in {' or '.join(f'.{one}' for one in TABLES)}; read "
                "others by pandas or polars, and give the frame"
            )
            raise InputError(msg)
        if why := begins_wrong(path, start):
            msg = f"{path}: {why}"
            raise InputError(msg)
        reader = TABLES[name].reader()
        schema = reader.schema(str(path))
        wanted = [one for one in schema.names if one in _COLUMNS]
        batches = reader.batches(str(path), 0, wanted)[0]
        return _joined(batches, schema, wanted)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"{path}: can't be read as labels: {reason}"
        raise InputError(msg) from error


def _joined(batches: Iterable[pa.RecordBatch], schema: pa.Schema, wanted: list[str]) -> pa.Table:
    """Return the wanted columns; a column whose name is there twice stays twice, for `Frame` to refuse."""
    empty = schema.empty_table()
    if len(set(wanted)) < len(wanted):
        return empty
    return pa.Table.from_batches([one.select(wanted) for one in batches], empty.select(wanted).schema)


def _refuse_missing(frame: Frame) -> None:
    for name in ("id", "label"):
        if name not in frame.names:
            msg = (
                f"{frame.where}: no column {name}; expected id and label (and kind, ts); it has "
                f"{', '.join(frame.names) or 'none'}"
            )
            raise InputError(msg)


def _classes(array: pa.Array, where: str) -> np.ndarray:
    """Return the numbers of classes, (n,) int64.

    Raises: InputError for nulls and negative numbers; SnapshotError for what is no integer.
    """
    found = labels_of(array, where)
    _refuse_nulls(found, where)
    classes = found.to_numpy()
    if (wrong := classes < 0).any():
        row = int(np.argmax(wrong))
        msg = f"{where}: row {row}: expected the number of a class, 0 or greater, got {classes[row]}"
        raise InputError(msg)
    return classes


def _refuse_nulls(array: pa.Array, where: str) -> None:
    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        msg = f"{where}: row {row}: missing (null or NaN); fill it, or drop the row"
        raise InputError(msg)


def _codes(array: pa.Array) -> np.ndarray:
    """Return equal integers for equal values, (n,) int64."""
    return array.dictionary_encode().indices.to_numpy().astype(np.int64)


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return equal integers for equal pairs."""
    return first * (int(second.max(initial=0)) + 1) + second
