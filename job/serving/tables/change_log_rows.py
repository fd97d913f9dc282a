"""Rows of the change log as a table takes them: what the tails no longer have, or never had."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.files.json_file import DamagedFileError
from freshet.job.serving.protocol.columns import ids_of_column, numbers, rows_of
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log_reader import narrow_rows
from freshet.operators.sink.epoch_files import times_in
from freshet.operators.sink.log_proof import BASE_PREFIX, epoch_of_base, epochs_of, reading
from freshet.state.served.ids import Ids, Texts, frozen
from freshet.state.served.times import NO_TIME, NOTHING_KNOWN, Moment

POSITIONS = b"positions"  # in a base's metadata: JSON rows of (name of the source, partition, next offset, epoch)
TIMES = b"times"  # likewise: a JSON list of the last arrival and the largest `ts` up to it
KNOWN_FROM = b"known_from"  # likewise: the first epoch of which compaction has removed no row
T = TypeVar("T")
_ADVICE = "put it back from a copy, or start the job again in a new --out"  # it may be all that is left of its rows
_TRIES = 20
_NUMBERED = re.compile(r"(.+)-\d{8}\.parquet")


class NewestRows(NamedTuple):
    """The newest row of each id in a piece of the change log or topic: those that live, and the ids deleted last.

    Shapes: epochs (n,) int64; rows (n, width) float32; dead_epochs (d,) int64
    """

    ids: Ids
    epochs: np.ndarray
    rows: np.ndarray
    dead: Ids
    dead_epochs: np.ndarray

    @property
    def newest(self) -> int:
        """The greatest epoch among them, -1 without rows."""
        return int(max(self.epochs.max(initial=-1), self.dead_epochs.max(initial=-1)))


def rows_between(log: LogFolders, after: int, upto: int, strings: bool, width: int) -> NewestRows:
    """The rows of epochs past `after`, up to `upto`; a file that goes while it is read is looked for once more.

    Where `newest_base` is past `upto` afterwards, rows may be missing: compaction has removed files that it has.
    """
    return again(lambda: _rows_between(log, after, upto, strings, width))


def positions_at(log: LogFolders, upto: int, sources: tuple[str, ...]) -> np.ndarray:
    """Return the input positions after an epoch: (source, partition, next offset, epoch), (p, 4) int64."""
    return again(lambda: _positions_at(log, upto, sources))


def times_upto(log: LogFolders, upto: int, after: int = -1) -> Moment:
    """Return the greatest times of the epochs past `after`, up to `upto`, as far as they are visible."""
    return again(lambda: _times_upto(log, upto, after))


def known_from(base: Path) -> int:
    """Return the first epoch of which compaction has removed no row; of a base of an earlier version the next one.

    Raises: DamagedFileError.
    """
    with reading(base) as file:
        raw = (pq.read_metadata(file).metadata or {}).get(KNOWN_FROM)
    return epoch_of_base(base) + 1 if raw is None else int(raw)


def again(read: Callable[[], T]) -> T:
    """Return what `read` finds; it is called once more when compaction has removed a file meanwhile."""
    for _ in range(_TRIES):
        try:
            return read()
        except FileNotFoundError:
            time.sleep(0.05)
    return read()


def _positions_at(log: LogFolders, upto: int, sources: tuple[str, ...]) -> np.ndarray:
    numbers = {name: number for number, name in enumerate(sources)}
    base = _base_of(log, upto)
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    if base is not None:
        with reading(base) as file:
            raw = (pq.read_metadata(file).metadata or {}).get(POSITIONS)
        if raw is None:
            msg = f"{base}: a base without positions of the input, of another version; {_ADVICE}"
            raise DamagedFileError(msg)
        newest = {(numbers.get(name, -1), b): (c, d) for name, b, c, d in orjson.loads(raw)}
    for path in _past(log.epochs.glob("[!._]*.parquet"), -1 if base is None else epoch_of_base(base), upto):
        with reading(path) as file:
            table = pq.read_table(file, columns=["epoch", "source", "partition", "next_offset"])
        table = table.filter(pc.less_equal(table["epoch"], upto)).sort_by("epoch")
        last = table.group_by(["source", "partition"], use_threads=False).aggregate(
            [("next_offset", "last"), ("epoch", "last")]
        )
        for row in last.to_pylist():  # few: one for each partition
            if row["source"]:
                key = numbers.get(row["source"], -1), row["partition"]
                newest[key] = row["next_offset_last"], row["epoch_last"]
    return np.array([[*key, *value] for key, value in newest.items()], np.int64).reshape(-1, 4)


def _times_upto(log: LogFolders, upto: int, after: int) -> Moment:
    base, found = _base_of(log, upto), NOTHING_KNOWN
    if base is not None and epoch_of_base(base) > after:
        with reading(base) as file:
            raw = (pq.read_metadata(file).metadata or {}).get(TIMES)
        if raw is not None:
            after, found = epoch_of_base(base), Moment(*orjson.loads(raw))
    for path in _past(log.epochs.glob("[!._]*.parquet"), after, upto):
        one = times_in(path)
        within = one.times[(one.epochs > after) & (one.epochs <= upto)]
        largest = within.max(axis=0, initial=NO_TIME).tolist()
        found = found.latest(Moment(*(None if each == NO_TIME else each for each in largest)))
    return found


def _rows_between(log: LogFolders, after: int, upto: int, strings: bool, width: int) -> NewestRows:
    base = _base_of(log, upto)
    if base is not None and epoch_of_base(base) <= after:
        base = None
    if base is not None:
        epochs_of(base)  # is it whole?
    files = (path for path in log.embeddings.glob("[!._]*.parquet") if not path.name.startswith(BASE_PREFIX))
    paths = _past(files, after if base is None else epoch_of_base(base), upto)
    paths = paths if base is None else [base, *paths]
    # Vectors are read once it is known which are wanted: most rows of a long log have been replaced.
    tables = [narrow_rows(path) for path in paths]
    if not sum(table.num_rows for table in tables):
        nothing: Ids = Texts.encode([]) if strings else frozen(np.empty(0, np.int64))
        return NewestRows(
            nothing, np.empty(0, np.int64), np.empty((0, width), np.float32), nothing, np.empty(0, np.int64)
        )
    ends = np.cumsum([table.num_rows for table in tables])
    table = pa.concat_tables(tables).combine_chunks()
    del tables
    epochs, deleted = table["epoch"].to_numpy(), table["deleted"].to_numpy()
    codes = table["id"].combine_chunks().dictionary_encode().indices.to_numpy() if strings else table["id"].to_numpy()
    at = np.flatnonzero((epochs > after) & (epochs <= upto))
    # Of one epoch's rows of an id that moved between parts, the one that lives holds.
    order = at[np.lexsort((~deleted[at], epochs[at], codes[at]))]
    newest = np.sort(order[np.append(codes[order[1:]] != codes[order[:-1]], True)]) if len(order) else order
    lives, gone = newest[~deleted[newest]], newest[deleted[newest]]
    rows, done = np.empty((len(lives), width), np.float32), 0
    for path, begin, end in zip(paths, [0, *ends[:-1]], ends, strict=True):
        wanted = lives[done : np.searchsorted(lives, end)]
        _take_vectors(path, wanted - begin, epochs[wanted], rows[done : done + len(wanted)])
        done += len(wanted)
    return NewestRows(
        ids_of_column(table["id"].take(numbers(lives))),
        epochs[lives],
        rows,
        ids_of_column(table["id"].take(numbers(gone))),
        epochs[gone],
    )


def _take_vectors(path: Path, at: np.ndarray, epochs: np.ndarray, rows: np.ndarray) -> None:
    """Take the vectors of these rows of a file; they are in ascending order.

    Raises: FileNotFoundError when the file is another one by now.
    """
    if not len(at):
        return
    begin = done = 0
    with reading(path) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            end = begin + file.metadata.row_group(group).num_rows
            upto = int(np.searchsorted(at, end))
            if upto > done:
                read = file.read_row_group(group, columns=["epoch", "embedding"])
                mine = at[done:upto] - begin
                if not np.array_equal(read["epoch"].to_numpy()[mine], epochs[done:upto]):
                    break
                rows[done:upto] = rows_of(read["embedding"].combine_chunks())[mine]
                done = upto
            begin = end
    if done < len(at):
        raise FileNotFoundError(path)


def _base_of(log: LogFolders, upto: int) -> Path | None:
    """The newest base up to an epoch: it has all that came before it."""
    bases = [path for path in log.embeddings.glob(f"{BASE_PREFIX}*.parquet") if epoch_of_base(path) <= upto]
    return max(bases, default=None)


def in_series(paths: Iterable[Path]) -> list[list[Path]]:
    """Numbered files of one part each, in the order of their epochs; others alone."""
    series: dict[str, list[Path]] = {}
    for path in sorted(paths):
        name = _NUMBERED.fullmatch(path.name)
        series.setdefault(path.name if name is None else name[1], []).append(path)
    return list(series.values())


def _past(paths: Iterable[Path], after: int, upto: int) -> list[Path]:
    """Files that may hold epochs past `after` up to `upto`; of a series' older ones only the newest is looked at."""
    found: list[Path] = []
    for files in in_series(paths):
        for path in reversed(files):
            first, last = epochs_of(path)
            if last <= after:
                break
            if first <= upto:
                found.append(path)
    return sorted(found)
