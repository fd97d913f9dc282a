"""The change log as an output of the Sink: epochs fill files, which a thread writes.

A file closes after an epoch that is a marker or publishes (both stand in the cut log), or that fills it by rows or by
number of epochs. The number of the next file is durable, so a replay writes the same files again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshet.operators.control import FLAGS, LAST, PUBLISH, is_marker
from freshet.operators.outcome import Message
from freshet.operators.sink.background_writer import BackgroundWriter
from freshet.operators.sink.change_log import ChangeLog
from freshet.operators.sink.epoch_files import LOG_FILES_PER_FILE, ROWS_PER_FILE, rows_of_epochs
from freshet.operators.sink.epoch_rows import ID_BYTES, EpochRows, LogFile
from freshet.operators.sink.output import EPOCH, GROUP, GROUP_ROWS, NUMBER, SinkPart
from freshet.operators.telemetry.latency import Latencies
from freshet.operators.telemetry.level import Level
from freshet.operators.telemetry.traffic import Traffic

EPOCHS_PER_FILE = 2_000
BYTES_PER_FILE = 64 << 20
FILES_WAITING = 2  # beside the one that is written and the one that fills


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits of a file, and the longest time until epochs are visible.

    `group_rows`: see EpochFiles. `publish_ms`: where the Partitioner does not see to it (epochs are cut by count
    alone), 0: no limit.
    """

    rows: int = 250_000
    epochs: int = EPOCHS_PER_FILE
    group_rows: int = ROWS_PER_FILE
    publish_ms: int = 0


def _counted(
    write: Callable[[LogFile], None], waiting: Level, latencies: Latencies, clock_ms: Callable[[], float]
) -> Callable[[LogFile], None]:
    """Write a file: its epochs are readable then, and its rows wait no more unless it stays open."""

    def call(file: LogFile) -> None:
        write(file)
        latencies.readable([rows.arrived_ms for rows in file.epochs if rows.arrived_ms], clock_ms())
        for rows in file.epochs:
            rows.arrived_ms = 0  # counted, also when they are written once more
        if not file.open:
            waiting.take(sum(rows.nbytes for rows in file.epochs))

    return call


class LogOutput:
    """Buffers the rows of epochs and writes them to the change log.

    Invariant: after a marker nothing is buffered; what waits is at most FILES_WAITING + 2 files, each at most an epoch
    longer than its limit.
    """

    leaves_by_epoch = False
    flushed = 0
    traffic = Traffic()

    def __init__(self, log: ChangeLog, limits: FileLimits = FileLimits()) -> None:
        self._log, self._limits, self._width = log, limits, log.width
        self._rows_per_file = max(1, min(limits.rows, BYTES_PER_FILE // (4 * log.width)))
        self._level = Level()
        self.levels = {"rows_bytes": self._level}
        self._largest_bytes = 0  # of an epoch
        self._file = LogFile(0, group=0)  # the one that fills; another thread may look at it
        self._buffered_rows = 0
        self._deferred = False  # whether `epochs/` waits for further files
        self._at_marker: int | None = None

    def begin(self, part: SinkPart) -> None:
        """Start the writer, whose thread is the one that calls `on_idle`."""
        self._scalars, self._clock_ms, self._latencies = part.scalars, part.clock_ms, part.latencies
        self._log.clock_ms = part.clock_ms
        write = _counted(self._log.write, self._level, part.latencies, part.clock_ms)
        self.writer = BackgroundWriter(write, part.on_idle, FILES_WAITING)
        self.writer.start()

    def check(self) -> None:
        """See whether an earlier file failed.

        Raises: ChangeLogError when one could not be written.
        """
        self.writer.check()

    def figures(self) -> dict[str, Any]:
        """Return the last epoch in a visible file."""
        return {"visible": self.visible_epoch}

    @property
    def number(self) -> int:
        """The file that the next epoch goes into."""
        return self._file.number

    @property
    def visible_epoch(self) -> int:
        """The last epoch in a visible file."""
        return self.writer.visible_epoch

    def take(self, epoch: int, keys: np.ndarray, rows: EpochRows, control: np.ndarray) -> list[Message]:
        """Buffer an epoch; its file closes when it is time to, and is visible on return after the last epoch."""
        self._file.epochs.append(rows)
        self._buffered_rows += rows.size
        self._measure(rows.nbytes)
        last = int(control[FLAGS]) & LAST
        full = self._buffered_rows >= self._rows_per_file or len(self._file.epochs) >= self._limits.epochs
        closes = is_marker(control) or int(control[FLAGS]) & PUBLISH or last or epoch == 0
        if closes or full:
            self._close_file(defers=not closes)
        if last:
            self.writer.wait()
        return []

    def pass_marker(self) -> None:
        """Wait until the files of the marker before are visible."""
        # Once this marker's epoch has been passed, a restore may begin at the marker before: its files must be there.
        if self._at_marker is not None:
            self.writer.wait(self._at_marker)
        self._at_marker = self._last_ticket

    def clear(self) -> None:
        """Drop the buffer; the tables are those of a marker."""
        self._drop()
        self.writer.visible_epoch = int(self._scalars.data[EPOCH])

    def close(self, write: bool) -> None:
        """Write the buffer, and wait for all files; with `write=False` drop it.

        The file may be partial: after a restore the same epochs come back and it grows to its full length.
        """
        if write:
            self._file.partial = True
            self.writer.submit(self._file)
            self._begin_file()
        self._drop()
        self.writer.close()

    def _drop(self) -> None:
        """Drop the buffer."""
        self._level.take(sum(rows.nbytes for rows in self._file.epochs))
        self._begin_file()

    def _measure(self, epoch_bytes: int) -> None:
        self._level.add(epoch_bytes)
        if epoch_bytes > self._largest_bytes or self._level.bound is None:
            self._largest_bytes = max(self._largest_bytes, epoch_bytes)
            file_bytes = self._rows_per_file * (4 * self._width + ID_BYTES)
            self._level.bound = (FILES_WAITING + 2) * (file_bytes + self._largest_bytes)

    def idle(self) -> None:
        """Have the last epochs visible, for the stream pauses; on the writer's thread.

        What is visible then is the beginning of a file: the whole one takes its place.
        """
        file = self._file
        epochs = file.epochs[:]
        if self._deferred:
            self._deferred = False
            self.writer.write_now(LogFile(file.number))
        if len(epochs) > file.shown and self._is_late(epochs[file.shown].applied_ms):
            self.writer.write_now(LogFile(file.number, epochs, partial=True, group=file.group, open=True))
            file.shown = len(epochs)

    def _is_late(self, applied_ms: float) -> bool:
        """Return whether rows that are here since then are to be visible."""
        if not self._limits.publish_ms:
            return False
        since_ms = self._latencies.since_ms(applied_ms, self._clock_ms())
        return since_ms is None or since_ms >= self._limits.publish_ms

    def _close_file(self, defers: bool) -> None:
        self._scalars.touch_rows(np.array([0]))
        scalars, file = self._scalars.data, self._file
        scalars[NUMBER] += 1
        first = scalars[GROUP] != file.group + 1
        scalars[GROUP] = file.group + 1
        scalars[GROUP_ROWS] = rows_of_epochs(file.epochs) + (0 if first else scalars[GROUP_ROWS])
        file.defers = defers
        self._last_ticket = self.writer.submit(file)
        self._deferred = defers
        self._begin_file()

    def _begin_file(self) -> None:
        """The next file; a group is never left within a file, which may be written in part first."""
        scalars = self._scalars.data
        number, group = int(scalars[NUMBER]), int(scalars[GROUP]) - 1  # kept as one more than it is: 0 is none
        goes_on = group >= 0 and scalars[GROUP_ROWS] < self._limits.group_rows and number - group < LOG_FILES_PER_FILE
        self._file = LogFile(number, group=group if goes_on else number)
        self._buffered_rows = 0
