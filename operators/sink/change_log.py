"""The change log: Parquet files of embeddings by epoch, and of the input that each epoch ends with, written aside.

A file holds whole epochs. What it holds is a function of the epochs alone, so a file that is written again after a
restore replaces itself. It is written under a name that starts with a dot, synced to the disk and renamed, and then
the folder is synced: what is visible is whole, and survives a kill and a power loss (docs/durability.md).

Layout:
    embeddings/part-PART-NUMBER.parquet   id int64 or string, epoch int64, embedding fixed_size_list<float32>[width],
                                          deleted bool
    epochs/epochs-GROUP.parquet           epoch int64, source string, partition int32, next_offset int64, events int64
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from operators.output_folders import EMBEDDINGS, EPOCHS
from operators.sink.direct_file import LEFT_BEHIND, replace_whole
from operators.sink.epoch_files import PREFIX, EpochFiles, rows_in
from operators.threads import next_of

_IDLE_S = 0.5
ID_BYTES = 16  # counted for a row's id and what else is kept of it


def embeddings_schema(width: int, id_kind: str) -> pa.Schema:
    """The columns of the change log."""
    return pa.schema(
        [
            ("id", pa.int64() if id_kind == "int" else pa.string()),
            ("epoch", pa.int64()),
            ("embedding", pa.list_(pa.float32(), width)),
            ("deleted", pa.bool_()),
        ]
    )


class ChangeLogError(RuntimeError):
    """The change log could not be written."""


@dataclass(slots=True)
class EpochRows:
    """The rows of one epoch: first what changed, then what was deleted.

    Shapes:
        ids: for int64 ids [(n + d,) int64], for strings pairs of (k + 1,) int32 offsets and (bytes,) uint8
        rows: arrays of (k, width) float32, n rows in all; the d deleted ids have none
        positions: (source, partition, next_offset, events) rows, (p, 4) int64
    """

    epoch: int
    ids: list[np.ndarray] | list[tuple[np.ndarray, np.ndarray]]
    rows: list[np.ndarray]
    changed: int
    deleted: int
    positions: np.ndarray | None = None
    arrived_ms: int = 0  # when its first event came, while its latency is to be counted
    applied_ms: float = 0.0

    @property
    def size(self) -> int:
        """Rows in the file."""
        return self.changed + self.deleted

    @property
    def nbytes(self) -> int:
        """About what the rows hold in memory, without the text of string ids."""
        return sum(array.nbytes for array in self.rows) + ID_BYTES * self.size


@dataclass(slots=True)
class LogFile:
    """The epochs that go into file `number`; what it adds to `epochs/` goes to the file that began with file `group`.

    `partial`: a longer one may follow, in this attempt (then it is `open`: its rows stay in memory) or in a later one.
    `defers`: others follow at once, so `epochs/` may wait for them. A file without epochs ends that wait.
    """

    number: int
    epochs: list[EpochRows] = field(default_factory=list)
    partial: bool = False
    group: int = -1  # a file of its own
    open: bool = False
    defers: bool = False
    shown: int = 0  # epochs of it that a partial one has made visible


class ChangeLog:
    """Encodes and writes the files of one sink part.

    Invariant: the embeddings of a file are visible before the epochs that it covers.
    """

    def __init__(self, out: Path, part: int, width: int, id_kind: str, sources: list[str]) -> None:
        """`sources` are the names that positions refer to by index; they are written by part 0 alone."""
        self.out, self.part, self.width = out, part, width
        self.schema = embeddings_schema(width, id_kind)
        self._rows_prefix = f"part-{part}-"
        for name in (EMBEDDINGS, EPOCHS):
            (out / name).mkdir(parents=True, exist_ok=True)
        self._epochs = EpochFiles(out / EPOCHS, sources) if part == 0 else None
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Of an attempt that was killed."""
        stale = list((self.out / EMBEDDINGS).glob(f".{self._rows_prefix}*{LEFT_BEHIND}"))
        if self.part == 0:
            stale += (self.out / EPOCHS).glob(f".{PREFIX}*{LEFT_BEHIND}")
        for path in stale:
            path.unlink(missing_ok=True)

    def write(self, file: LogFile) -> None:
        """Write the file; complete and visible on return."""
        if any(rows.size for rows in file.epochs):
            from operators.sink.parquet_writer import write_parquet  # polars: half a second to load, for rows alone

            path = self.out / EMBEDDINGS / f"{self._rows_prefix}{file.number:08d}.parquet"
            table = self._embeddings(file.epochs)

            def is_longer() -> bool:
                return file.partial and rows_in(path) >= table.num_rows

            # A partial file ends where its attempt was stopped. An earlier attempt may have come further, and readers
            # have seen that: both hold the same epochs from the same start, so the longer one stays.
            replace_whole(path, lambda sink: write_parquet(table, sink), unless=is_longer)
        if self._epochs is not None:
            self._epochs.write(file)

    def _embeddings(self, epochs: list[EpochRows]) -> pa.Table:
        kind = self.schema.field("embedding").type
        ids, vectors, deleted = [], [], []
        for rows in epochs:
            ids += [self._id_array(chunk) for chunk in rows.ids]
            arrays = list(rows.rows)
            if rows.deleted:
                arrays.append(np.zeros((rows.deleted, self.width), np.float32))
            # Chunks as they came: a concatenation costs as much again as encoding them.
            vectors += [pa.FixedSizeListArray.from_arrays(pa.array(a.reshape(-1)), type=kind) for a in arrays if a.size]
            deleted += [np.zeros(rows.changed, bool), np.ones(rows.deleted, bool)]
        numbers = np.repeat([rows.epoch for rows in epochs], [rows.size for rows in epochs])
        columns = [
            pa.chunked_array(ids, self.schema.field("id").type),
            pa.array(numbers, pa.int64()),
            pa.chunked_array(vectors, kind),
            pa.array(np.concatenate(deleted)),
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _id_array(self, chunk: np.ndarray | tuple[np.ndarray, np.ndarray]) -> pa.Array:
        if isinstance(chunk, np.ndarray):
            return pa.array(chunk)
        offsets, data = chunk
        return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


class BackgroundWriter:
    """Calls `write` for one file after the other on a thread of its own.

    Invariant: at most `waiting` files wait; an error surfaces at the next call, and no later file is written.
    """

    def __init__(
        self, write: Callable[[LogFile], None], on_idle: Callable[[], None] = lambda: None, waiting: int = 2
    ) -> None:
        """`on_idle` is called on the thread about twice a second while there is nothing to write."""
        self._write, self._on_idle = write, on_idle
        self._queue: queue.Queue[LogFile | None] = queue.Queue(waiting)
        self._done = threading.Condition()
        self._submitted = self._finished = 0
        self._error: BaseException | None = None
        self.visible_epoch = 0  # the last epoch in a file that is visible
        self._thread = threading.Thread(target=self._run, name="freshet-change-log", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (file := next_of(self._queue, _IDLE_S, self._on_idle)) is not None:
            self.write_now(file)
            del file  # its arrays are free while the thread waits for the next one
            with self._done:
                self._finished += 1
                self._done.notify_all()

    def write_now(self, file: LogFile) -> None:
        """Write a file, if none has failed; for the writer's own thread, on which `on_idle` is called, too."""
        if self._error is not None:
            return
        try:
            self._write(file)
            self.visible_epoch = file.epochs[-1].epoch if file.epochs else self.visible_epoch
        except BaseException as error:
            self._error = error

    def check(self) -> None:
        """See whether a file failed.

        Raises:
            ChangeLogError: it did; the job must be restored, since what was not written is gone from memory.
        """
        if self._error is not None:
            message = f"the change log could not be written: {type(self._error).__name__}: {self._error}"
            raise ChangeLogError(message) from self._error

    def submit(self, file: LogFile) -> int:
        """Hand a file over, waiting while too many are under way; returns what `wait` takes."""
        self.check()
        self._queue.put(file)
        self._submitted += 1
        return self._submitted

    def wait(self, ticket: int | None = None) -> None:
        """Until that file, or every one, is visible."""
        last = self._submitted if ticket is None else ticket
        with self._done:
            self._done.wait_for(lambda: self._finished >= last)
        self.check()

    def close(self) -> None:
        """Finish what was handed over and end the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self.check()
