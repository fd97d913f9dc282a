"""The files of `epochs/`: where in the input each epoch ends. One of them covers many files of the change log.

The file that grows is replaced, in one step, by one with the same rows and those that came since, until it has enough
of them; then the next one begins. So a reader that lists the folder at any moment finds each epoch once. Each log file
is a row group, and the longer file has the rows of the shorter one at the same places: who has read the footer of one
and opens the file once more for the rows (as most readers do) finds them where they were. Where a file ends is decided
by the rows and log files in it, and they are durable: a replay comes to the same files. A replay has fewer rows at
first than readers have seen; the longer file stays until it has more.

Times come from clocks, and a replay reads other ones. So a file that grows takes the times of all rows that a visible
one shows from there, whatever attempt wrote them. `arrived_ms` stands in the cut log besides.

Layout of a file, all but `epoch` and `events` null where there is none; an epoch has a row for each partition that it
reads, or one without a place, and its times in each:
    epoch         int64
    source        string, the name of the source
    partition     int32
    next_offset   int64, the first one that is not covered
    events        int64, of the partition; 0 in epoch 0, whose rows are what the snapshot of an export covers
    arrived_ms    int64, when the last of its events came to the Parser
    published_ms  int64, when others could read the rows of part 0, in the tail or else in the change log
    event_ts      int64, the largest `ts` of its events
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.files.json_file import DamagedFileError
from freshet.operators.sink.direct_file import DirectFile, replace_whole
from freshet.operators.sink.epoch_rows import EpochRows, LogFile
from freshet.operators.sink.log_proof import columns_of, reading
from freshet.state.served.times import NO_TIME, Moment

PREFIX = "epochs-"
# The file is written anew when one of the change log closes, on the thread that writes that: 25 ms of computing at 64
# row groups. Where files fill one after the other, it is written when one of them closes for another reason.
ROWS_PER_FILE = 50_000
LOG_FILES_PER_FILE = 128

EPOCHS_SCHEMA = pa.schema(
    [
        ("epoch", pa.int64()),
        ("source", pa.string()),
        ("partition", pa.int32()),
        ("next_offset", pa.int64()),
        ("events", pa.int64()),
        ("arrived_ms", pa.int64()),
        ("published_ms", pa.int64()),
        ("event_ts", pa.int64()),
    ]
)
TIMES = ["arrived_ms", "published_ms", "event_ts"]  # without them in earlier versions
_NOWHERE = np.array([[-1, 0, 0, 0]], np.int64)  # in the file without source, partition and offset
_NUMBERS = dict.fromkeys(("epoch", "partition", "next_offset", "events", *TIMES), "DELTA_BINARY_PACKED")


class LostEpochsError(ValueError):
    """The file that would grow does not hold what was written to it."""


def rows_of_epochs(epochs: list[EpochRows]) -> int:
    """Return the number of rows that `epochs/` has of these epochs."""
    return sum(1 if rows.positions is None else len(rows.positions) for rows in epochs)


class EpochFiles:
    """Writes the epochs of log files, which come in the order of their numbers.

    Invariant: a file of epochs is named by the number of the first log file in it; its visible rows are never replaced
    by fewer.
    """

    def __init__(self, folder: Path, sources: list[str]) -> None:
        """`sources` are the names that positions refer to by index."""
        self.folder, self.sources = folder, sources
        self._group = -1
        self._waits = False  # whether something is kept that is not visible
        self._kept: list[pa.Table] = []  # what the file under way holds, without that of partial log files
        self._settled = 0  # rows whose times are those of the visible file

    def write(self, file: LogFile) -> None:
        """Add the epochs of a log file; visible on return, unless the file defers that.

        Raises:
            LostEpochsError: the file that they go on with is not what it was.
        """
        group = file.number if file.group < 0 else file.group
        if self._waits and (not file.epochs or group != self._group):
            self._keep(self._put(self._kept))
        if not file.epochs:
            return
        if group != self._group:
            self._group = group
            self._kept = _before(self._path, file.epochs[0].epoch) if group < file.number else []
            self._settled = 0  # where there are some, their times are read once more
        tables = [*self._kept, self._positions(file.epochs)]
        if not file.defers:
            tables = self._put(tables)
        self._waits = file.defers
        if file.defers:
            self._kept = tables
        elif not file.partial:  # the rows of one come again, with the times that they had here
            self._keep(tables)

    @property
    def _path(self) -> Path:
        return self.folder / f"{PREFIX}{self._group:08d}.parquet"

    def _put(self, tables: list[pa.Table]) -> list[pa.Table]:
        """Make rows visible; return them with the times that are seen."""
        path, rows, there = self._path, sum(table.num_rows for table in tables), rows_in(self._path)
        if there > self._settled:  # an attempt before this one, or beside it, has shown some
            tables = _with_times_of(path, tables)
        if there < rows:
            replace_whole(path, partial(_write, tables), unless=lambda: rows_in(path) >= rows)
        self._waits = False
        return tables

    def _keep(self, tables: list[pa.Table]) -> None:
        """Go on with rows that are visible, with the times that are seen."""
        self._kept, self._settled = tables, sum(table.num_rows for table in tables)

    def _positions(self, epochs: list[EpochRows]) -> pa.Table:
        # An epoch without input has its row too, without a place: an offset of 0 would be one to read on from.
        pieces = [_NOWHERE if rows.positions is None else rows.positions for rows in epochs]
        numbers = np.repeat([rows.epoch for rows in epochs], [len(piece) for piece in pieces])
        values = np.concatenate(pieces)
        nowhere = values[:, 0] < 0
        known = [[rows.last_arrival_ms, rows.published_ms, rows.event_ts] for rows in epochs]
        of_row = np.repeat(np.arange(len(epochs)), [len(piece) for piece in pieces])
        names = [self.sources[k] if k >= 0 else None for k in values[:, 0].tolist()]
        columns = [
            pa.array(numbers, pa.int64()),
            pa.array(names, pa.string()),
            pa.array(values[:, 1], pa.int32(), mask=nowhere),
            pa.array(np.ascontiguousarray(values[:, 2]), mask=nowhere),
            pa.array(np.ascontiguousarray(values[:, 3])),
            *(pa.array(times, pa.int64()).take(pa.array(of_row)) for times in zip(*known, strict=True)),
        ]
        return pa.Table.from_arrays(columns, schema=EPOCHS_SCHEMA)


def write_epoch_0(
    folder: Path, sources: Sequence[str], covered: Mapping[int, Mapping[int, int]], times: Moment
) -> None:
    """Say in the file of epoch 0 which input a snapshot covers, before the job begins; without events of its own.

    `covered`: the first offset that it does not cover, by source and partition; `times`: those of the input up to it.
    """
    places = [(source, *one, 0) for source, offsets in sorted(covered.items()) for one in sorted(offsets.items())]
    positions = np.array(places, np.int64) if places else None
    rows = EpochRows(0, [], [], 0, 0, positions, last_arrival_ms=times.arrived_ms, event_ts=times.event_ts)
    file = EpochFiles(folder, list(sources))
    (folder / f"{PREFIX}{0:08d}.parquet").unlink(missing_ok=True)  # it has epoch 0 without input
    file.write(LogFile(0, [rows], group=0))


def with_times(table: pa.Table) -> pa.Table:
    """Rows of a file of `epochs/` with all columns: those that an earlier version has not written are null."""
    for name in TIMES:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, pa.int64()))
    return table


class EpochTimes(NamedTuple):
    """Times of the epochs of a file, in their order.

    Shapes: epochs (n,) int64; times (n, 2) int64, arrived_ms and event_ts, NO_TIME where there is none; events (n,)
        int64, how many they have
    """

    epochs: np.ndarray
    times: np.ndarray
    events: np.ndarray


def times_in(path: Path) -> EpochTimes:
    """Read the times of a file of `epochs/`, of any version.

    Raises: DamagedFileError for one that is no whole one.
    """
    with reading(path) as file:
        columns = columns_of(pq.read_metadata(file))
        there = [name for name in ("arrived_ms", "event_ts") if name in columns]
        table = with_times(pq.read_table(file, columns=["epoch", "events", *there]))
    epochs, first = np.unique(table["epoch"].to_numpy(), return_index=True)
    found = [table[name].fill_null(NO_TIME).to_numpy()[first] for name in ("arrived_ms", "event_ts")]
    events = np.add.reduceat(table["events"].to_numpy(), first) if len(first) else first
    return EpochTimes(epochs, np.stack(found, axis=1), events)


def _with_times_of(path: Path, tables: list[pa.Table]) -> list[pa.Table]:
    """Rows with the times of the visible file, which has the same ones at the same places, as far as it goes."""
    try:
        with reading(path) as file:
            seen = with_times(pq.read_table(file))
    except (OSError, DamagedFileError):  # it is replaced
        return tables
    found, begin = [], 0
    for table in tables:
        shown = seen.slice(begin, table.num_rows)
        if shown["epoch"] != table["epoch"].slice(0, shown.num_rows):  # a file that was put there: no times of ours
            return tables
        times = pa.concat_tables([shown.select(TIMES), table.select(TIMES).slice(shown.num_rows)])
        found.append(pa.table([*table.columns[: -len(TIMES)], *times.columns], schema=EPOCHS_SCHEMA))
        begin += table.num_rows
    return found


def rows_in(path: Path) -> int:
    """Rows of a Parquet file; -1 where there is none that can be read."""
    try:
        with reading(path) as file:
            return int(pq.read_metadata(file).num_rows)
    except (OSError, DamagedFileError):
        return -1


def _before(path: Path, epoch: int) -> list[pa.Table]:
    """Return the contents of the file before that epoch, by row group.

    Empty if it was moved away, now or before an earlier attempt that then began a new one with this epoch.
    """
    if not path.exists():
        return []
    tables: list[pa.Table] = []
    held = -1
    try:
        with reading(path) as opened, pq.ParquetFile(opened) as file:
            for number in range(file.num_row_groups):
                table = with_times(file.read_row_group(number))
                if number == 0 and table["epoch"][0].as_py() == epoch:
                    return []
                if table["epoch"][0].as_py() < epoch:
                    tables.append(table)
                    held = int(table["epoch"][-1].as_py())
    except (OSError, DamagedFileError):
        held = -1
    if held != epoch - 1:
        msg = (
            f"{path}: expected the epochs up to {epoch - 1}, which the state has passed, got "
            f"{f'those up to {held}' if held >= 0 else 'none that can be read'}; put back the file that was there, "
            f"or move this one away: {path.parent.name}/ then lacks the epochs before {epoch} that no other file has"
        )
        raise LostEpochsError(msg)
    return tables


def _write(tables: list[pa.Table], sink: DirectFile) -> None:
    options = {"use_dictionary": ["source"], "column_encoding": _NUMBERS, "compression": "none"}
    with pq.ParquetWriter(sink, EPOCHS_SCHEMA, **options) as writer:
        for table in tables:
            writer.write_table(table, table.num_rows)
    sink.seal()
