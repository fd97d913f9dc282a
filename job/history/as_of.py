"""`freshet.as_of`: embeddings as they were at given times, for training sets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.job.errors import UsageError
from freshet.job.folder.run_file import glimpse_run
from freshet.job.history.epoch_at import UNKNOWN, By, EpochsAt, epochs_at
from freshet.job.history.newest_rows import Newest
from freshet.job.history.past_log import PastLog, codes_of
from freshet.job.service.generations import GENERATION
from freshet.job.serving.tables.change_log_rows import again, times_upto
from freshet.operators.output_folders import LogFolders
from freshet.partitioner.times.units import (
    MS,
    UNIT_NAMES,
    TsUnit,
    all_to_ms,
    day_of,
    first_unusual,
    of_ms,
    to_ms,
    unit_that_fits,
)
from freshet.state.served.times import NO_TIME

_ADDED = ("epoch", "embedding")
_NUMBERS_MAX = 1 << 30  # of a piece of a column of lists, whose offsets have 32 bits
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Joined:
    """Result of an as-of join: the table, and how many of its rows have an embedding, or why not.

    `absent`: the vertex had no row then; `unknown`: the log does not say, since the time is before its first epoch or
    compaction has removed what would say it. `epoch`: the last one that counted; `known_from`: the first of which every
    row is there. `doubts`: what may be wrong with the times.
    """

    table: pa.Table
    by: str
    found: int
    absent: int
    unknown: int
    epoch: int
    known_from: int
    doubts: tuple[str, ...] = ()
    generation: int | None = None  # of a service; epochs are as they are served


def as_of(
    out: str | Path,
    table: Any,
    *,
    id: str = "id",
    time: str = "ts",
    by: Literal["event", "arrival"] | None = None,
    kind: str | None = None,
    ts_unit: TsUnit = MS,
    generation: int | None = None,
) -> pa.Table:
    """Return the table with the embedding of each row's vertex as it was at the row's time.

    It comes from the change log in `out`, the --out folder of a job that runs or has ended. The row that counts is that
    of the last epoch whose time is not later than the asked one, so nothing comes from the future. By `event` the time
    of an epoch is the largest `ts` of all events up to it, by `arrival` when the last of them came; None: by event
    where any event has a `ts`. A time past the last visible epoch gets the row of that one, with a warning. Epoch 0,
    the snapshot, comes before all events, with a warning, too; it arrives when the job begins. `kind`: of the vertices,
    where the model returns several. `ts_unit`: s, ms, us or ns, of integers in the column `time`; times that look as if
    they were of another unit are a warning. `out` may be a service folder: then all rows are of its current job, or of
    that of a `generation`, since rows of two models can't be compared; epochs are as they are served.

    Shapes: `table` is a pyarrow Table, a pandas DataFrame, or the path of a Parquet file; column `id` int64 or strings
        as in the job, column `time` int64 since 1970 or timestamps. The result has its rows and columns, in order,
        and `epoch` int64 and `embedding` list of float32: the row's epoch and vector, both null where the
        vertex did not exist then, or the log does not say (a warning counts these; see `freshet compact`).
    Raises: UsageError (of `InputError`) for a folder without a job, other columns, or a log without such times;
        DamagedFileError.
    """
    joined = join_as_of(Path(out), table, id=id, time=time, by=by, kind=kind, ts_unit=ts_unit, generation=generation)
    for line in doubts_of(joined):
        warnings.warn(line, stacklevel=2)
    return joined.table


def doubts_of(joined: Joined) -> list[str]:
    """Describe the rows of which the log does not say what they were, and what may be wrong with the times."""
    return [*([_why_unknown(joined)] if joined.unknown else []), *joined.doubts]


def _why_unknown(joined: Joined) -> str:
    has_all = joined.known_from <= (joined.generation or 0) * GENERATION
    removed = "" if has_all else f", and compaction has removed rows before epoch {joined.known_from}"
    return (
        f"{joined.unknown:,} of {joined.table.num_rows:,} rows have no embedding because the change log does not say "
        f"it: their times are before its first epoch{removed}"
    )


def join_as_of(
    out: Path,
    table: Any,
    *,
    id: str = "id",
    time: str = "ts",
    by: str | None = None,
    kind: str | None = None,
    ts_unit: TsUnit = MS,
    generation: int | None = None,
) -> Joined:
    """Return the table with embeddings, and what is to be said of it; see `as_of`."""
    given = _as_table(table)
    return again(lambda: _joined(PastLog(out.absolute(), kind, generation), given, (id, time), by, ts_unit))


def _joined(log: PastLog, given: pa.Table, columns: tuple[str, str], by: str | None, ts_unit: TsUnit) -> Joined:
    ids, asked = _ids(given, columns[0], log), _times(given, columns[1], ts_unit)
    basis = basis_of(log, by)
    walk = epochs_at(log.folders, asked.times, basis, log.upto)
    upto, doubts = walk.epochs, tuple(remarks(asked, walk, basis, log.folders))
    known = pc.unique(ids)
    known = known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known
    newest = Newest(codes_of(ids, known), upto, len(known))
    for batch in log.batches():
        codes, is_base = codes_of(batch.ids, known), log.is_base(batch.file)
        newest.take(codes, batch.epochs, batch.deleted, batch.file, batch.first, is_base=is_base)
    unknown = upto == UNKNOWN
    if log.known_from:  # an older row is the right one if the base has it, which has the last one of each vertex
        unknown |= (upto < log.base_epoch) & ~newest.in_base & (newest.epochs < log.known_from)
    found = newest.lives & ~unknown
    files = np.where(found, newest.files, -1)
    vectors = log.vectors(files, newest.rows, newest.epochs)
    counts = int(found.sum()), int((~found & ~unknown).sum()), int(unknown.sum())
    joined = given.append_column("epoch", pa.array(log.base + newest.epochs, mask=~found))
    joined = joined.append_column("embedding", with_nulls(vectors, found))
    of_log = log.base + log.upto, log.base + log.known_from
    return Joined(joined, basis.value, *counts, *of_log, doubts, log.generation)


def with_nulls(rows: np.ndarray, there: np.ndarray) -> pa.ChunkedArray:
    """Rows as a column of lists, null where there is none (pyarrow writes no nulls among lists of one length)."""
    step = max(1, _NUMBERS_MAX // max(1, rows.shape[1]))
    pieces = [_lists(rows[at : at + step], there[at : at + step]) for at in range(0, len(rows), step)]
    return pa.chunked_array(pieces, pa.list_(pa.float32()))


def _lists(rows: np.ndarray, there: np.ndarray) -> pa.Array:
    ends = np.concatenate([[0], np.cumsum(there)]) * rows.shape[1]
    offsets = pa.array(ends, pa.int32(), mask=np.append(~there, False))
    return pa.ListArray.from_arrays(offsets, pa.array(rows[there].reshape(-1)))


def basis_of(log: PastLog, by: str | None) -> By:
    """Return the times of epochs that are meant; None: of events where any has a `ts`.

    Raises: UsageError where the log has no such times.
    """
    latest = times_upto(log.folders, log.upto)
    if by is None:
        by = By.ARRIVAL if latest.event_ts is None else By.EVENT
    elif by not in list(By):
        msg = f"by: expected event or arrival, got {by!r}"
        raise UsageError(msg)
    if by == By.EVENT and latest.event_ts is None:
        msg = f"{log.out}: no event has a `ts`, so nothing is known by event; give --by arrival"
        raise UsageError(msg)
    if by == By.ARRIVAL and latest.arrived_ms is None and log.upto > 0:
        msg = f"{log.out}: its epochs have no times: an earlier version wrote them; let the job go on with this one"
        raise UsageError(msg)
    return By(by)


def _as_table(table: Any) -> pa.Table:
    if isinstance(table, str | Path):
        try:
            return pq.read_table(table)
        except (OSError, pa.ArrowException) as error:
            msg = f"{table}: expected a Parquet file of questions: {str(error).partition(chr(10))[0]}"
            raise UsageError(msg) from error
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        return table
    if hasattr(table, "iloc"):
        return pa.Table.from_pandas(table, preserve_index=False)
    msg = (
        f"table: expected a pyarrow Table, a pandas DataFrame or the path of a Parquet file, got {type(table).__name__}"
    )
    raise UsageError(msg)


def _column(given: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in given.column_names:
        msg = f"the questions: expected a column {name}, got {', '.join(given.column_names)}"
        raise UsageError(msg)
    if twice := [one for one in _ADDED if one in given.column_names]:
        msg = f"the questions: the column {twice[0]} would be there twice; rename it"
        raise UsageError(msg)
    if given[name].null_count:
        msg = f"the questions: column {name}: expected no nulls, got {given[name].null_count:,}"
        raise UsageError(msg)
    return given[name]


def _ids(given: pa.Table, name: str, log: PastLog) -> pa.ChunkedArray:
    column = _column(given, name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    try:
        if is_text if log.strings else pa.types.is_integer(kind):
            return column.cast(kind).cast(log.kind)
    except pa.ArrowInvalid:  # past 64 bits
        pass
    expected = "strings" if log.strings else "int64"
    msg = f"the questions: column {name}: expected {expected}, as the job's, got {column.type}"
    raise UsageError(msg)


def _times(given: pa.Table, name: str, unit: TsUnit) -> AskedTimes:
    """The times in ms since 1970; what is finer is rounded down."""
    column = _column(given, name)
    kind = column.type
    is_typed = pa.types.is_timestamp(kind)
    if not is_typed and not pa.types.is_integer(kind):
        msg = f"the questions: column {name}: expected int64 ({UNIT_NAMES[unit]} since 1970) or timestamps, got {kind}"
        raise UsageError(msg)
    times, fit = all_to_ms(column.cast(pa.int64()).to_numpy(), kind.unit if is_typed else unit)
    if not fit.all():
        number = column[int(np.argmin(fit))]
        msg = f"the questions: column {name}: expected times within 64 bits in milliseconds, got {number}"
        raise UsageError(msg)
    return AskedTimes(times, None if is_typed else unit)


class AskedTimes(NamedTuple):
    """Times of questions in ms since 1970, (n,) int64, and the unit that they came in (None: a type said it)."""

    times: np.ndarray
    unit: str | None


def remarks(asked: AskedTimes, walk: EpochsAt, by: By, log: LogFolders) -> Iterator[str]:
    """Say what may be wrong with times, which the answers do not show."""
    yield from _of_units(asked, walk, by, log)
    times, many = asked.times, f"{len(asked.times):,}"
    late = times > walk.largest
    if walk.largest != NO_TIME and late.any():
        most = int(times.max()) - walk.largest
        words = f"{most / _DAY_MS:,.1f} days" if most >= _DAY_MS else f"{most / 1000:,.3f} s"
        yield (
            f"{int(late.sum()):,} of {many} times are past the end of the log, {_moment(walk.largest)}, by up to "
            f"{words}: they have the rows of its last epoch, which may not be those of that time"
        )
    early = int(((walk.epochs == 0) & (times < walk.first)).sum())
    if by is By.EVENT and early and glimpse_run(log.out).get("snapshot"):
        yield (
            f"{early:,} of {many} times are before the log's first event, {_moment(walk.first)}: they have the rows of "
            "the snapshot, which may have seen more than had happened by then"
        )


def _of_units(asked: AskedTimes, walk: EpochsAt, by: By, log: LogFolders) -> Iterator[str]:
    if asked.unit is not None and (ms := first_unusual(asked.times, NO_TIME)) is not None:
        number = of_ms(ms, asked.unit)
        if (fits := unit_that_fits(number)) is not None:
            yield (
                f"the time {number} is {day_of(ms)} in {UNIT_NAMES[asked.unit]}; in {UNIT_NAMES[fits]} it is "
                f"{day_of(to_ms(number, fits))}: ts_unit={fits!r} of freshet.as_of, --ts-unit {fits} of freshet history"
            )
    if by is By.EVENT and walk.largest != NO_TIME and first_unusual(np.array([walk.largest]), NO_TIME) is not None:
        unit = glimpse_run(log.out).get("ts_unit", MS)
        number = of_ms(walk.largest, unit)
        if (fits := unit_that_fits(number)) is not None:
            yield (
                f"the log ends at {day_of(walk.largest)} by the ts of its events ({number} in {UNIT_NAMES[unit]}); in "
                f"{UNIT_NAMES[fits]} that is {day_of(to_ms(number, fits))}: run the job again with --ts-unit {fits}"
            )


def _moment(ms: int) -> str:
    return f"{ms} ({day_of(ms)})"
