"""A table as its one writer holds it: made from rows, taken over after a kill, changed epoch by epoch, and grown."""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from freshet.files.owner_only import FILE
from freshet.kernels.atomics import publish_word
from freshet.state.salt import make_salt
from freshet.state.seed import new_seed
from freshet.state.served import layout as lay
from freshet.state.served.ids import Ids, Texts, frozen, slice_of, text_bytes
from freshet.state.served.layout import TableShape
from freshet.state.served.mapped import Found
from freshet.state.served.reader import TableReader
from freshet.state.served.times import NO_TIME, NOTHING_KNOWN, Moment, entries_of, note_times, times_of, times_so_far
from freshet.state.served.write_kernels import (
    count_named,
    put_back,
    put_numbers,
    put_texts,
    remove_numbers,
    remove_texts,
    set_positions,
)

# Kernels keep the interpreter's lock for so many rows, a fraction of a millisecond: threads that answer would take it
# for longer than that at each call which lets it go.
_ROWS_AT_ONCE = 2048


class TableFullError(RuntimeError):
    """There is no room for the rows: the table must grow first (`has_room`)."""


class TableWriter:
    """The only writer of a table file.

    Invariant: what an epoch up to the published one has shown is never changed; rows past it are seen by nobody.
    """

    def __init__(self, path: Path, shape: TableShape, job: int, boot: int, folder: str = "") -> None:
        """Make an empty table, at epoch -1; its blocks are reserved, and it is for this user alone.

        `folder`: whose table it is, for whoever finds it later.

        Raises:
            OSError: there is no space for it.
        """
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)
        try:
            os.posix_fallocate(file, 0, shape.nbytes)
            self._map(path, file, shape.nbytes)
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        mem, salt = self.mem, make_salt(new_seed())
        mem[[lay.T_WIDTH, lay.T_STRINGS, lay.T_CAPACITY]] = shape.width, int(shape.strings), shape.capacity
        mem[lay.T_INDEX], mem[lay.T_TIMES] = shape.places_of_ids, lay.TIMES
        mem[[lay.T_RING, lay.T_HEAP, lay.T_JOB, lay.T_BOOT, lay.T_EPOCH]] = shape.ring, shape.heap, job, boot, -1
        mem[lay.T_SALT : lay.T_SALT + 3] = np.array(salt, np.uint64).view(np.int64)
        for at, value in shape.places.items():
            mem[at] = value
        name = os.fsencode(folder)
        if len(name) <= lay.FOLDER_BYTES:
            self._data[8 * lay.T_FOLDER : 8 * lay.T_FOLDER + len(name)] = np.frombuffer(name, np.uint8)
        mem[lay.T_VERSION] = lay.VERSION
        publish_word(mem, lay.T_MAGIC, lay.MAGIC)

    @classmethod
    def take_over(cls, path: Path) -> TableWriter:
        """Go on with the table of a writer that was killed; every row is whole on return.

        Positions that were being written are none.

        Raises:
            NoTableError, FileNotFoundError: there is none.
        """
        TableReader(path)  # looks at what it is
        self = cls.__new__(cls)
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._map(path, file, os.fstat(file).st_size)
        if self.mem[lay.T_USED] < self.mem[lay.T_CAPACITY]:
            count_named(self.mem, bool(self.mem[lay.T_STRINGS]))
        put_back(self.mem)
        if self.mem[lay.T_POSITION_SEQ] & 1:
            self.set_positions(np.empty((0, lay.POSITION_WORDS), np.int64))
        return self

    def _map(self, path: Path, file: int, size: int) -> None:
        """Map the file, and hold it: `is_held` sees that a process writes to it, until that one dies or lets go."""
        with suppress(OSError):  # of a file system without locks: there nobody can say that it is not held
            fcntl.flock(file, fcntl.LOCK_SH)
        # A page that is touched first while an epoch is applied costs more than the rows in it.
        populate = mmap.MAP_POPULATE if path.is_relative_to(lay.SHM) else 0
        data = np.frombuffer(mmap.mmap(file, size, flags=mmap.MAP_SHARED | populate), np.uint8)
        self.path, self.mem, self.floats, self._data = path, data.view(np.int64), data.view(np.float32), data
        self._file = os.fdopen(file, "rb", buffering=0)  # closed with the writer

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return int(self.mem[lay.T_WIDTH])

    @property
    def epoch(self) -> int:
        """The newest complete epoch."""
        return int(self.mem[lay.T_EPOCH])

    @property
    def reach(self) -> int:
        """The greatest epoch that a row may have."""
        return int(self.mem[lay.T_REACH]) - 1

    @property
    def can_go_on(self) -> bool:
        """True if a table that was taken over is exact once the next epoch is applied again."""
        return self.epoch <= self.reach <= self.epoch + 1

    def _reach(self, epoch: int) -> None:
        """Say that rows may be of epochs up to this one, before one is."""
        if epoch > self.reach:
            publish_word(self.mem, lay.T_REACH, epoch + 1)

    def word(self, at: int) -> int:
        """A word of the header."""
        return int(self.mem[at])

    def has_room(self, ids: int, text: int) -> bool:
        """Return whether `ids` new ids with `text` bytes of text fit."""
        fits = self.mem[lay.T_USED] + ids <= self.mem[lay.T_CAPACITY]
        return bool(fits and (not self.mem[lay.T_STRINGS] or self.mem[lay.T_HEAP_USED] + text <= self.mem[lay.T_HEAP]))

    def put(self, epochs: np.ndarray | int, ids: Ids, rows: np.ndarray) -> None:
        """Set rows, each of its epoch; a row that is newer already stays.

        Raises:
            TableFullError: there is no room for as many new ids.
        """
        if not self.has_room(len(ids), text_bytes(ids)):
            msg = f"{self.path}: no room for {len(ids)} ids beside {self.mem[lay.T_USED]} of {self.mem[lay.T_CAPACITY]}"
            raise TableFullError(msg)
        epochs = np.full(len(ids), epochs, np.int64) if isinstance(epochs, int) else epochs
        epochs, rows = frozen(epochs), frozen(rows)
        self._reach(int(epochs.max(initial=-1)))
        for begin in range(0, len(ids), _ROWS_AT_ONCE):
            some = slice_of(ids, begin, begin + _ROWS_AT_ONCE)
            own, new = epochs[begin : begin + _ROWS_AT_ONCE], rows[begin : begin + _ROWS_AT_ONCE]
            if isinstance(some, Texts):
                put_texts(self.mem, self.floats, own, some.offsets, some.data, new)
            else:
                put_numbers(self.mem, self.floats, own, frozen(some), new, np.empty(len(some), np.int64))

    def remove(self, epoch: int, ids: Ids) -> None:
        """These ids have no row from that epoch on."""
        self._reach(epoch)
        rows = frozen(np.empty((0, self.width), np.float32))
        for begin in range(0, len(ids), _ROWS_AT_ONCE):
            some = slice_of(ids, begin, begin + _ROWS_AT_ONCE)
            if isinstance(some, Texts):
                remove_texts(self.mem, self.floats, epoch, some.offsets, some.data, rows)
            else:
                remove_numbers(self.mem, self.floats, epoch, frozen(some), rows)

    def set_positions(self, positions: np.ndarray) -> None:
        """Say what the input is read up to: (source, partition, next offset, epoch) rows."""
        set_positions(self.mem, frozen(positions[: lay.POSITIONS_MAX]))

    def publish(
        self, epoch: int, published_us: int = 0, own: Moment = NOTHING_KNOWN, so_far: Moment = NOTHING_KNOWN
    ) -> None:
        """Show the epoch: from now on readers take it.

        `own` are its times; `so_far` those up to it, as far as the table does not know them.

        Raises:
            ValueError: there are rows of later epochs.
        """
        mem = self.mem
        if epoch < self.reach:
            msg = f"{self.path}: epoch {epoch} is not to be shown, there are rows up to epoch {self.reach}"
            raise ValueError(msg)
        so_far = times_so_far(mem, self.epoch).latest(own).latest(so_far)
        note_times(mem, epoch, own, so_far)
        if so_far.arrived_ms is not None:
            publish_word(mem, lay.T_ARRIVED_US, 1000 * so_far.arrived_ms)
        publish_word(mem, lay.T_PUBLISHED_US, published_us)
        self._reach(epoch)
        if not mem[lay.T_BEGAN]:
            publish_word(mem, lay.T_BEGAN, epoch + 1)
        publish_word(mem, lay.T_EPOCH, epoch)
        publish_word(mem, lay.T_READABLE_US, time.time_ns() // 1000)

    def note_epochs(self, own: Mapping[int, Moment]) -> None:
        """Note the times of epochs that came as part of a later one, which is not published yet."""
        for epoch, times in own.items():
            note_times(self.mem, epoch, times, NOTHING_KNOWN)

    def take_times(self, former: TableWriter) -> None:
        """Take over the times of all epochs from a table of the same epoch."""
        there = entries_of(former.mem)
        entries_of(self.mem)[: len(there)] = there
        self.mem[lay.T_ARRIVED_US] = former.mem[lay.T_ARRIVED_US]

    def raise_times(self, so_far: Moment) -> None:
        """Have the published epoch, and those that follow, say no earlier times up to them than these."""
        own = Moment(
            *(None if one == NO_TIME else one for one in times_of(self.mem, np.array([self.epoch]))[0].tolist())
        )
        note_times(self.mem, self.epoch, own, times_so_far(self.mem, self.epoch).latest(so_far))

    def beat(self, source_us: int, failures: int, ended: int) -> None:
        """Say that the writer lives, and what it knows of the job."""
        publish_word(self.mem, lay.T_SOURCE_BEAT_US, source_us)
        publish_word(self.mem, lay.T_TAIL_FAILURES, failures)
        publish_word(self.mem, lay.T_ENDED, ended)
        publish_word(self.mem, lay.T_BEAT_US, time.time_ns() // 1000)

    def supersede(self) -> None:
        """Have readers look for another file."""
        publish_word(self.mem, lay.T_SUPERSEDED, 1)

    def gone(self) -> tuple[Ids, np.ndarray]:
        """The ids that were deleted, and the epochs in which they were, (n,) int64: who may hear of them again."""
        rows = self._rows()
        slots = np.flatnonzero(rows[:, lay.R_LIVES] == 0)
        return TableReader(self.path).ids_in(slots), rows[slots, lay.R_EPOCH].copy()

    def living(self) -> Ids:
        """The ids whose newest rows live, also of an epoch that is not complete: the ring need not reach so far."""
        return TableReader(self.path).ids_in(np.flatnonzero(self._rows()[:, lay.R_LIVES]))

    def _rows(self) -> np.ndarray:
        words, at, used = self.word(lay.T_ROW_WORDS), self.word(lay.T_ROWS_AT), self.word(lay.T_USED)
        return self.mem[at : at + used * words].reshape(used, words)

    def content(self) -> tuple[Ids, Found, np.ndarray]:
        """All rows as of the published epoch, and the positions: what a larger table begins with."""
        reader = TableReader(self.path)
        ids, found = reader.all()
        return ids, found, reader.positions()


assert lay.PAGE > lay.T_ENDED  # all words of the header fit into it
