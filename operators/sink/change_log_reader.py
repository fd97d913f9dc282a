"""Reads a change log back: the embedding of every live vertex, at the end or after an epoch.

Of the rows of an id the one with the greatest epoch counts; a deleted id has no embedding. Two passes: the narrow
columns of all files decide which rows count, then only those rows are taken from the vectors, file by file, so that
memory follows the vertices and not the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.errors import InputError
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.log_proof import BASE_PREFIX, epochs_of, reading

_ROW = ["id", "epoch", "deleted"]


class NoChangeLogError(InputError):
    """The folder holds no change log."""


@dataclass(frozen=True, slots=True)
class State:
    """The live vertices after an epoch, in ascending order of their ids.

    Shapes: ids (n,) int64, or n strings (object); epochs (n,) int64; vectors (n, width) float32, or (n, 0) unread
    """

    ids: np.ndarray
    epochs: np.ndarray
    vectors: np.ndarray
    duplicates: int  # rows that share id and epoch with another: a sound log has none


@dataclass(frozen=True, slots=True)
class Positions:
    """Input that each epoch read.

    Shapes: epoch, partition, next_offset, events (k,) int64; source k strings (object)
    """

    epoch: np.ndarray
    source: np.ndarray
    partition: np.ndarray
    next_offset: np.ndarray
    events: np.ndarray

    def upto(self, epoch: int) -> Positions:
        """Return those of the epochs up to this one."""
        return self.only(self.epoch <= epoch)

    def only(self, within: np.ndarray) -> Positions:
        """Return those where `within`, (k,) bool, is True."""
        return Positions(*(getattr(self, field.name)[within] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Scan:
    """Properties of all rows of a log, including superseded ones.

    Shapes: epochs, counts (k,) int64, the epochs that have rows and how many; nonfinite_epochs ascending int64
    """

    epochs: np.ndarray
    counts: np.ndarray
    nonfinite: int  # rows that hold NaN or infinity
    nonfinite_epochs: np.ndarray
    dead_nonzero: int  # rows of deleted vertices that are not zero


@dataclass(frozen=True, slots=True)
class _Narrow:
    """The narrow columns of all files one after the other: ids as codes (see `_encoded`), and where each file ends."""

    codes: np.ndarray
    labels: np.ndarray | None
    epochs: np.ndarray
    deleted: np.ndarray
    ends: np.ndarray
    in_base: np.ndarray


def narrow_rows(path: Path) -> pa.Table:
    """The columns `id`, `epoch` and `deleted` of a file of the log, or of a base.

    Ids are int64 or large_string, whatever wrote the file: bases of earlier versions have 32-bit offsets.

    Raises: DamagedFileError for a file that is no whole one.
    """
    with reading(path) as file:
        table = pq.read_table(file, columns=_ROW, page_checksum_verification=True).select(_ROW)
    if not pa.types.is_string(table["id"].type):
        return table
    return table.set_column(table.schema.get_field_index("id"), "id", table["id"].cast(pa.large_string()))


class ChangeLogReader:
    """A change log as it stands: names that start with `.` or `_` are ignored, and what was read is kept."""

    def __init__(self, out: str | Path, kind: str = "") -> None:
        """Find the files of `out`; `kind`: whose log it is, where the model returns several.

        Raises:
            NoChangeLogError: there is no folder `embeddings` in it, or none of the kind.
        """
        self.kind, self._folders = kind, LogFolders(Path(out), kind)
        folder = self._folders.embeddings
        self.where = f"{folder.relative_to(out)}{'' if kind else '/'}"  # in the output folder
        if not folder.is_dir():
            msg = f"{out} holds no folder {self.where}: expected the --out folder of a run"
            raise NoChangeLogError(msg)
        self.files = _visible(folder)

    def final(self, vectors: bool = True) -> State:
        """The state after the last epoch that any file holds."""
        return self.state_at(None, vectors)

    def state_at(self, epoch: int | None, vectors: bool = True) -> State:
        """The state after that epoch; with `vectors=False` without the embeddings."""
        all_rows = self._narrow
        codes, labels, numbers = all_rows.codes, all_rows.labels, all_rows.epochs
        within = np.arange(len(numbers)) if epoch is None else np.flatnonzero(numbers <= epoch)
        order = within[np.lexsort((numbers[within], codes[within]))]
        same_id = codes[order[1:]] == codes[order[:-1]]
        repeats = all_rows.in_base[order[1:]] | all_rows.in_base[order[:-1]]
        duplicates = int((same_id & (numbers[order[1:]] == numbers[order[:-1]]) & ~repeats).sum())
        newest = order[np.append(~same_id, True)] if order.size else order
        newest = newest[~all_rows.deleted[newest]]
        ids = labels[codes[newest]] if labels is not None else codes[newest]
        wide = self._vectors(newest, all_rows.ends) if vectors else np.empty((len(newest), 0), np.float32)
        return State(ids, numbers[newest], wide, duplicates)

    def positions(self) -> Positions:
        """Return the records of `epochs/`, in the order of the epochs; epochs without input have no row here."""
        return self._positions

    @cached_property
    def _positions(self) -> Positions:
        return _positions_of(_epochs_in(path) for path in _visible(self._folders.epochs))

    def last_epoch(self) -> int | None:
        """The last epoch that `epochs/` records: complete in all files of a run that came to its end or was stopped."""
        epochs = self.epochs()
        return int(epochs.max()) if epochs.size else None

    def epochs(self) -> np.ndarray:
        """The epochs that `epochs/` records, once for each partition that they read from."""
        return self._epochs

    @cached_property
    def _epochs(self) -> np.ndarray:
        files = [_epochs_in(path)["epoch"].to_numpy() for path in _visible(self._folders.epochs)]
        return np.concatenate([np.empty(0, np.int64), *files])

    def scan(self) -> Scan:
        """Look at every row, file by file; those that a base repeats are counted once."""
        rows = self._narrow
        nonfinite, dead_nonzero = [np.empty(0, np.int64)], 0
        for number, path in enumerate(self.files):
            at = int(rows.ends[number])
            for values in _embeddings_of(path):
                here = slice(at, at + len(values))
                nonfinite.append(rows.epochs[here][~np.isfinite(values).all(axis=1)])
                dead_nonzero += int((values != 0).any(axis=1)[rows.deleted[here]].sum())
                at += len(values)
        found = np.concatenate(nonfinite)
        epochs, counts = np.unique(rows.epochs[~rows.in_base], return_counts=True)
        return Scan(epochs, counts, len(found), np.unique(found), dead_nonzero)

    @cached_property
    def _narrow(self) -> _Narrow:
        ids: list[pa.Array] = []
        epochs, deleted, ends = [np.empty(0, np.int64)], [np.empty(0, bool)], [0]
        for path in self.files:
            table = narrow_rows(path)
            ids += table["id"].chunks
            epochs.append(table["epoch"].to_numpy())
            deleted.append(table["deleted"].to_numpy())
            ends.append(ends[-1] + table.num_rows)
        kind = ids[0].type if ids else pa.int64()
        codes, labels = _encoded(pa.chunked_array(ids, kind))
        in_base = np.repeat([path.name.startswith(BASE_PREFIX) for path in self.files], np.diff(ends)).astype(bool)
        return _Narrow(codes, labels, np.concatenate(epochs), np.concatenate(deleted), np.array(ends), in_base)

    def _vectors(self, rows: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The embeddings of these rows of all files, in that order."""
        if not self.files:
            return np.empty((0, 0), np.float32)
        with reading(self.files[0]) as first:
            width = pq.read_schema(first).field("embedding").type.list_size
        out = np.empty((len(rows), width), np.float32)
        order = np.argsort(rows)
        ascending = rows[order]
        for number, path in enumerate(self.files):
            begin, end = np.searchsorted(ascending, ends[number : number + 2])
            if begin == end:
                continue
            at = int(ends[number])
            with reading(path) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
                for group in range(file.num_row_groups):
                    count = file.metadata.row_group(group).num_rows
                    begin, end = np.searchsorted(ascending, (at, at + count))
                    if begin < end:
                        values = _embeddings_in(file, group)
                        out[order[begin:end]] = values[ascending[begin:end] - at]
                    at += count
        return out


def _embeddings_of(path: Path) -> Iterator[np.ndarray]:
    """The embeddings of a file by row groups."""
    with reading(path) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            yield _embeddings_in(file, group)


def _embeddings_in(file: pq.ParquetFile, group: int) -> np.ndarray:
    column = file.read_row_group(group, columns=["embedding"])["embedding"].combine_chunks()
    flat = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return flat.flatten().to_numpy().reshape(-1, flat.type.list_size)


def _epochs_in(path: Path) -> pa.Table:
    """A file of `epochs/`.

    Raises: DamagedFileError for one that is no whole one.
    """
    with reading(path) as file:
        return pq.read_table(file).select(["epoch", "source", "partition", "next_offset", "events"])


def _with_input(epochs: pa.Table) -> pa.Table:
    """The rows that name a source, of which an epoch read; of one without input it is null, in earlier versions empty.

    Those of epoch 0 say what a snapshot covers, which the job has not read.
    """
    return epochs.filter(pc.and_(pc.not_equal(epochs["source"], ""), pc.greater(epochs["epoch"], 0)))


def epochs_between(log: LogFolders, after: int, upto: int) -> tuple[np.ndarray, Positions]:
    """Return the epochs past `after` that `epochs/` has up to `upto`, ascending, and the input that they read.

    Only the files that have some of them are read.

    Raises: DamagedFileError for a file that is no whole one.
    """
    tables = []
    for path in _visible(log.epochs):
        first, last = epochs_of(path)
        if last > after and first <= upto:
            table = _epochs_in(path)
            within = pc.and_(pc.greater(table["epoch"], after), pc.less_equal(table["epoch"], upto))
            tables.append(table.filter(within))
    numbers = [table["epoch"].to_numpy() for table in tables]
    return np.unique(np.concatenate([np.empty(0, np.int64), *numbers])), _positions_of(tables)


def _positions_of(tables: Iterable[pa.Table]) -> Positions:
    """Return the rows of files of `epochs/` that say input, in the order of the epochs."""
    columns = {name: [] for name in ("epoch", "partition", "next_offset", "events")}  # type: dict[str, list[np.ndarray]]
    sources = [np.empty(0, object)]
    for table in map(_with_input, tables):
        sources.append(np.array(table["source"].to_pylist(), object))
        for name, pieces in columns.items():
            pieces.append(table[name].to_numpy().astype(np.int64))
    joined = {name: np.concatenate([np.empty(0, np.int64), *pieces]) for name, pieces in columns.items()}
    order = np.argsort(joined["epoch"], kind="stable")
    source = np.concatenate(sources)
    return Positions(source=source[order], **{name: column[order] for name, column in joined.items()})


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")))


def _encoded(ids: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray | None]:
    """Ids as integers that compare like them, and for strings what each integer stands for."""
    if pa.types.is_integer(ids.type):
        return ids.to_numpy(), None
    coded = ids.combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0)
    labels = np.array(coded.dictionary.to_pylist(), object)
    rank = np.argsort(labels, kind="stable")
    place = np.empty(len(rank), np.int64)
    place[rank] = np.arange(len(rank))
    return place[coded.indices.to_numpy()], labels[rank]
