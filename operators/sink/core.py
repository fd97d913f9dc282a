"""The Sink of one part: it alone writes what changed, by epoch, and counts what it wrote.

An embedding's sink part is its key modulo the number of parts, so a vertex that dies in one part and comes back in
another keeps its order. Everything it writes is a function of the epochs alone: files close after an epoch that is a
marker or that publishes, as the cut log says, or that fills the file by rows or by number of epochs, and the number of
the next file is durable. A restore loads the tables as of a marker, when nothing is buffered, and the replay writes the
same files again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from operators.control import (
    ACCEPTED,
    ARRIVAL_MS,
    EVENTS_IN_EPOCH,
    FLAGS,
    FLUSH,
    LAST,
    MARKER,
    PUBLISH,
    REJECTED,
    REPLAY,
    STREAMED_MS,
    VERTICES,
    control_values,
)
from operators.core import Core
from operators.outcome import Message
from operators.sink.change_log import ID_BYTES, BackgroundWriter, ChangeLog, EpochRows, LogFile
from operators.sink.epoch_files import LOG_FILES_PER_FILE, ROWS_PER_FILE, rows_of_epochs
from operators.sink.string_ids import Names
from operators.telemetry.latency import Latencies
from operators.telemetry.level import Level
from operators.telemetry.status_file import StatusFile
from operators.threads import weakly
from state.block_columns import POSITIONS
from state.codec import Block
from state.kernel import allocating
from state.salt import Salt, mix, scratch_salt
from state.table import TableSet

if TYPE_CHECKING:
    from operators.sink.outlet import Outlet

EPOCHS_PER_FILE = 2_000
BYTES_PER_FILE = 64 << 20
FILES_WAITING = 2  # beside the one that is written and the one that fills

# Rows of the table of scalars.
_NUMBER, _ROWS, _EVENTS, _REJECTED, _EPOCH, _VERTICES, _STREAMED_MS, _ARRIVED_MS, _GROUP, _GROUP_ROWS = range(10)


class BadEpochError(RuntimeError):
    """The blocks of an epoch contradict each other: an operator before the sink is wrong."""


def _now_ms() -> float:
    return time.time() * 1e3


@allocating
def _check_once(salt: Salt, keys: np.ndarray, dead: np.ndarray, kept: np.ndarray, place: np.ndarray) -> int:
    """Index in keys then dead of the first key that comes twice, or -1; clears `kept` of dead keys that have a row."""
    mask = np.uint64(len(place) - 1)
    n = len(keys)
    for i in range(n + len(dead)):
        key = keys[i] if i < n else dead[i - n]
        at = mix(salt, key) & mask
        while place[at] != 0:
            other = place[at] - 1
            if (keys[other] if other < n else dead[other - n]) == key:
                break
            at = (at + np.uint64(1)) & mask
        if place[at] == 0:
            place[at] = i + 1
        elif i < n or place[at] > n:
            return i
        else:
            kept[i - n] = False
    return -1


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


class Sink(Core):
    """Buffers the rows of epochs and writes them to the change log.

    Invariant: an epoch has at most one row per id; after a marker nothing is buffered; what waits is at most
    FILES_WAITING + 2 files, each at most an epoch longer than its limit.
    """

    def __init__(
        self,
        part: int,
        parts: int,
        out_folder: str | Path,
        width: int,
        id_kind: str,
        sources: list[str],
        rows_per_file: int = 250_000,
        epochs_per_file: int = EPOCHS_PER_FILE,
        clock_ms: Callable[[], float] = _now_ms,
        outlet: Outlet | None = None,
        publish_ms: int = 0,
        group_rows: int = ROWS_PER_FILE,
    ) -> None:
        """`id_kind` is "int" or "string"; `sources` are the names of the inputs, in the order of their indices.

        `outlet`: what else gets the rows, as messages. `publish_ms`: how long epochs wait at most to be visible where
        the Partitioner does not see to it (epochs are cut by count alone), 0: no limit. `group_rows`: see EpochFiles.
        """
        out = Path(out_folder)
        self.part, self.parts, self.width, self.sources = part, parts, width, sources
        self.tables = TableSet()
        self._scalars = self.tables.add("scalars", "i8")
        self._scalars.reserve(16)
        self._latencies = Latencies(self.tables)
        self._names = Names(self.tables) if id_kind == "string" else None
        self._rows_per_file = max(1, min(rows_per_file, BYTES_PER_FILE // (4 * width)))
        self._epochs_per_file = epochs_per_file
        self._group_rows, self._publish_ms = group_rows, publish_ms
        self._clock_ms = clock_ms
        self.outlet = outlet
        self._status = StatusFile(out, f"sink-{part}")
        self._status_lock, self._status_behind, self._told_visible = threading.Lock(), False, 0
        log = ChangeLog(out, part, width, id_kind, sources)
        self._rows_bytes = Level()
        self._largest_bytes = 0  # of an epoch
        self.levels = {"rows_bytes": self._rows_bytes} | ({"outlet_bytes": outlet.level} if outlet else {})
        write = _counted(log.write, self._rows_bytes, self._latencies, clock_ms)
        self._writer = BackgroundWriter(write, weakly(self._catch_up), FILES_WAITING)
        self._file = LogFile(0, group=0)  # the one that fills; another thread may look at it
        self._buffered_rows = 0
        self._deferred = False  # whether `epochs/` waits for further files
        self._at_marker: int | None = None
        self._streaming = self._ended = False

    def after_restore(self) -> None:
        """Forget what an epoch before the restore left behind."""
        self._drop()
        self._writer.visible_epoch = int(self._scalars.data[_EPOCH])  # tables are restored as of a marker
        self._streaming = False
        if self.outlet is not None:
            self.outlet.clear()

    def apply(self, epoch: int, blocks: list[Block], now_ms: float | None = None) -> list[Message]:
        """Take over the rows of an epoch; `now_ms` is read from the clock where it is not given.

        Raises:
            BadEpochError: blocks contradict each other, or an id has two rows.
            ChangeLogError: an earlier file could not be written.
        """
        self._writer.check()
        control = self._control(epoch, blocks)
        at_ms = self._clock_ms() if now_ms is None else now_ms
        keys, rows = self._collect(epoch, blocks)
        rows.applied_ms = at_ms
        self._time(rows, control, at_ms)
        self._file.epochs.append(rows)
        self._buffered_rows += rows.size
        self._measure(rows.nbytes)
        self._count(epoch, rows, control)
        flags = int(control[FLAGS])
        marked, last, publishes = int(control[MARKER]) >= 0, bool(flags & LAST), bool(flags & PUBLISH)
        full = self._buffered_rows >= self._rows_per_file or len(self._file.epochs) >= self._epochs_per_file
        closes = marked or publishes or last or epoch == 0
        if closes or full:
            self._close_file(defers=not closes)
        if marked:
            self._pass_marker()
        if last:
            self._writer.wait()
            at_ms = self._clock_ms() if now_ms is None else now_ms
        self._status_behind = True
        if last or self._status.is_due(at_ms):
            self._write_status(at_ms)
        self._ended = last
        if self.outlet is None or epoch == 0:
            return []
        return self.outlet.take(keys, rows, ends=marked or bool(flags & (FLUSH | LAST)))

    def close(self, write: bool = True) -> None:
        """Write what is buffered, and wait for all files; with `write=False` (after a failure) drop the buffer.

        The file may be partial: after a restore the same epochs come back and it grows to its full length.
        """
        if write:
            self._file.partial = True
            self._writer.submit(self._file)
            self._begin_file()
        self._drop()
        self._writer.close()
        if write and not self._ended:
            self._write_status(self._clock_ms())

    def _drop(self) -> None:
        """Forget what is buffered."""
        self._rows_bytes.take(sum(rows.nbytes for rows in self._file.epochs))
        self._begin_file()

    def _measure(self, epoch_bytes: int) -> None:
        self._rows_bytes.add(epoch_bytes)
        if epoch_bytes > self._largest_bytes or self._rows_bytes.bound is None:
            self._largest_bytes = max(self._largest_bytes, epoch_bytes)
            file_bytes = self._rows_per_file * (4 * self.width + ID_BYTES)
            self._rows_bytes.bound = (FILES_WAITING + 2) * (file_bytes + self._largest_bytes)

    def _catch_up(self) -> None:
        """When the stream pauses, its last epochs become visible and the status tells of them; on the writer's thread.

        What is visible then is the beginning of a file: the whole one takes its place.
        """
        file = self._file
        epochs = file.epochs[:]
        late_ms = self._clock_ms() - self._publish_ms
        if self._deferred:
            self._deferred = False
            self._writer.write_now(LogFile(file.number))
        if self._publish_ms and len(epochs) > file.shown and epochs[file.shown].applied_ms <= late_ms:
            self._writer.write_now(LogFile(file.number, epochs, partial=True, group=file.group, open=True))
            file.shown = len(epochs)
        behind = self._status_behind or self._told_visible != self._writer.visible_epoch
        if behind and self._status.is_due(now_ms := self._clock_ms()):
            self._write_status(now_ms)

    def _write_status(self, now_ms: float) -> None:
        with self._status_lock:
            self._status_behind, self._told_visible = False, self._writer.visible_epoch
            self._status.write(self.status(now_ms), now_ms)

    def status(self, now_ms: float) -> dict[str, Any]:
        """The figures of this part, counted since the job began: without epoch 0, and latencies without replays."""
        scalars = self._scalars.data
        open_ms = now_ms - float(scalars[_ARRIVED_MS]) if self._streaming else 0.0
        return {
            "part": self.part,
            "epoch": int(scalars[_EPOCH]),
            "visible": self._writer.visible_epoch,
            "rows": int(scalars[_ROWS]),
            "events": int(scalars[_EVENTS]),
            "rejected": int(scalars[_REJECTED]),
            "vertices": int(scalars[_VERTICES]),
            "files": int(scalars[_NUMBER]),
            "seconds": round((float(scalars[_STREAMED_MS]) + max(0.0, open_ms)) / 1e3, 3),
            **self._latencies.figures(),
            "time": now_ms / 1e3,
        }

    def _control(self, epoch: int, blocks: list[Block]) -> np.ndarray:
        controls = [block.columns["ctl"] for block in blocks if "ctl" in block.columns]
        if not controls:
            if epoch == 0:
                return control_values()
            message = f"sink {self.part}: no block of epoch {epoch} carries its control values"
            raise BadEpochError(message)
        for other in controls[1:]:
            if other[MARKER] != controls[0][MARKER] or other[FLAGS] != controls[0][FLAGS]:
                message = f"sink {self.part}: epoch {epoch} has control values {controls[0]} and {other}"
                raise BadEpochError(message)
        return controls[0]

    def _collect(self, epoch: int, blocks: list[Block]) -> tuple[np.ndarray, EpochRows]:
        """The keys of the changed vertices, then of the deleted ones, and their rows."""
        keys = _joined([block.get("key") for block in blocks])
        dead = _joined([block.get("del_key") for block in blocks])
        rows = [block.columns["row"] for block in blocks if "row" in block.columns]
        changed = sum(len(array) for array in rows)
        if changed != len(keys) or any(array.ndim != 2 or array.shape[1] != self.width for array in rows):
            shapes = [array.shape for array in rows]
            message = f"sink {self.part}: epoch {epoch} has {len(keys)} keys for rows {shapes}, width {self.width}"
            raise BadEpochError(message)
        dead = self._without_revived(epoch, keys, dead)
        both = np.concatenate([keys, dead]) if dead.size else keys
        ids: Any = [both]
        if self._names is not None:
            gone = self._names.of(dead)
            self._names.remove(dead)
            for block in blocks:
                offsets = block.get("m_off")
                self._names.put(block.get("m_key"), offsets, block.get("m_name"))
            ids = self._names.of(keys) + gone
        positions = [_positions(block) for block in blocks if "pos_next" in block.columns]
        where = np.concatenate(positions) if positions else None
        return both, EpochRows(epoch, ids, rows, changed, len(dead), where)

    def _without_revived(self, epoch: int, keys: np.ndarray, dead: np.ndarray) -> np.ndarray:
        """The deleted keys that have no row in this epoch."""
        kept = np.ones(len(dead), bool)
        place = np.zeros(1 << max(4, (2 * (len(keys) + len(dead))).bit_length()), np.int32)
        twice = _check_once(scratch_salt(), keys, dead, kept, place)
        if twice >= 0:
            key = keys[twice] if twice < len(keys) else dead[twice - len(keys)]
            message = f"sink {self.part}: key {key} comes twice in epoch {epoch}"
            raise BadEpochError(message)
        return dead if kept.all() else dead[kept]

    def _count(self, epoch: int, rows: EpochRows, control: np.ndarray) -> None:
        self._scalars.touch_rows(np.array([0]))
        scalars = self._scalars.data
        scalars[_EPOCH] = epoch
        scalars[_VERTICES] = control[VERTICES]
        scalars[_REJECTED] = control[REJECTED]
        scalars[_EVENTS] = control[REJECTED] + control[ACCEPTED]
        if epoch == 0:
            return
        scalars[_ROWS] += rows.size
        scalars[_STREAMED_MS] = control[STREAMED_MS]
        if control[ARRIVAL_MS] > 0:
            scalars[_ARRIVED_MS] = control[ARRIVAL_MS]
            self._streaming = not control[FLAGS] & REPLAY

    def _time(self, rows: EpochRows, control: np.ndarray, now_ms: float) -> None:
        """Count the epoch's latency, from the arrival of its first event at the Parser; that of a replay does not."""
        self._latencies.settle()
        if not int(control[FLAGS]) & REPLAY and int(control[EVENTS_IN_EPOCH]) > 0 and int(control[ARRIVAL_MS]) > 0:
            rows.arrived_ms = int(control[ARRIVAL_MS])
            self._latencies.applied(rows.arrived_ms, now_ms)

    def _close_file(self, defers: bool) -> None:
        self._scalars.touch_rows(np.array([0]))
        scalars, file = self._scalars.data, self._file
        scalars[_NUMBER] += 1
        first = scalars[_GROUP] != file.group + 1
        scalars[_GROUP] = file.group + 1
        scalars[_GROUP_ROWS] = rows_of_epochs(file.epochs) + (0 if first else scalars[_GROUP_ROWS])
        file.defers = defers
        self._last_ticket = self._writer.submit(file)
        self._deferred = defers
        self._begin_file()

    def _begin_file(self) -> None:
        """The next file; a group is never left within a file, which may be written in part first."""
        scalars = self._scalars.data
        number, group = int(scalars[_NUMBER]), int(scalars[_GROUP]) - 1  # kept as one more than it is: 0 is none
        goes_on = group >= 0 and scalars[_GROUP_ROWS] < self._group_rows and number - group < LOG_FILES_PER_FILE
        self._file = LogFile(number, group=group if goes_on else number)
        self._buffered_rows = 0

    def _pass_marker(self) -> None:
        # Once this marker's epoch has been passed, a restore may begin at the marker before: its files must be there.
        if self._at_marker is not None:
            self._writer.wait(self._at_marker)
        self._at_marker = self._last_ticket


def _joined(columns: list[np.ndarray]) -> np.ndarray:
    filled = [column for column in columns if column.size]
    return filled[0] if len(filled) == 1 else np.concatenate(filled) if filled else np.empty(0, np.int64)


def _positions(block: Block) -> np.ndarray:
    return np.stack([block.columns[name].astype(np.int64) for name in POSITIONS], axis=1)
