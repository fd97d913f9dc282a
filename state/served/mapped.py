"""A table file as it is mapped: what it is, and the words of its header."""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from freshet.errors import FreshetError
from freshet.state.served import layout as lay
from freshet.state.served.times import Moment, times_of, times_so_far

NEWEST = 2**62  # in the place of an epoch: whichever is complete


class NoTableError(ValueError):
    """A file that is no table that could be read."""


class HistoryTooShortError(FreshetError):
    """Again and again the ring had moved on before a read came to its end."""

    served_as = "too-slow"  # how a server names it to clients


class WriterGoneError(FreshetError):
    """A row is half written, and nobody finishes it."""

    served_as = "not-ready"


class Found(NamedTuple):
    """Rows as of one epoch.

    Shapes: own (n,) int64, the epoch of each id's row, negative where it has none; rows (n, width) float32, whose
        content is arbitrary there
    """

    epoch: int
    own: np.ndarray
    rows: np.ndarray


def is_held(path: Path) -> bool:
    """Return whether a living process has the table as its writer, even a stopped one, or one in another container.

    Raises: OSError where the file can't be opened.
    """
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class MappedTable:
    """A mapped table, its words read plainly: right where nobody writes, and for what never changes."""

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            NoTableError: it is no table, or of another version.
            FileNotFoundError: it is gone.
        """
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 8 * lay.PAGE or size % 8:
                msg = f"{path}: not a table, it has {size} bytes"
                raise NoTableError(msg)
            data = np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
        self.path, self.mem, self.floats = path, data.view(np.int64), data.view(np.float32)
        head = [int(self.mem[lay.T_MAGIC]), int(self.mem[lay.T_VERSION])]
        if head != [lay.MAGIC, lay.VERSION]:
            msg = f"{path}: expected a table of version {lay.VERSION}, got {head}"
            raise NoTableError(msg)
        end = 8 * int(self.mem[lay.T_HEAP_AT]) + int(self.mem[lay.T_HEAP])
        if size < end:
            msg = f"{path}: not a table, it has {size} bytes of {end}"
            raise NoTableError(msg)
        self.width, self.job = int(self.mem[lay.T_WIDTH]), int(self.mem[lay.T_JOB])
        self.strings = bool(self.mem[lay.T_STRINGS])
        self.misses = 0

    @property
    def folder(self) -> str:
        """The folder whose table it is; empty where that is not known."""
        raw = self.mem[lay.T_FOLDER : lay.T_FOLDER + lay.FOLDER_BYTES // 8].tobytes()
        return os.fsdecode(raw.partition(b"\0")[0])

    @property
    def epoch(self) -> int:
        """The newest complete epoch."""
        return self.word(lay.T_EPOCH)

    @property
    def superseded(self) -> bool:
        """True if another file has replaced this one."""
        return bool(self.mem[lay.T_SUPERSEDED])

    @property
    def live(self) -> int:
        """Approximate number of ids that have a row."""
        return int(self.mem[lay.T_LIVE])

    def so_far(self, epoch: int) -> Moment:
        """Return the time up to which an epoch has the input, and the largest `ts` of events up to it."""
        return times_so_far(self.mem, epoch)

    def times(self, epochs: np.ndarray) -> np.ndarray:
        """Return (arrived_ms, event_ts) of epochs, (n, 2) int64; NO_TIME where the table does not know them."""
        return times_of(self.mem, epochs)

    def word(self, at: int) -> int:
        """A word of the header."""
        return int(self.mem[at])
