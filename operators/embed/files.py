"""Arrays in files that may be larger than memory: read and written at offsets, in whole or not; and finished steps.

Nothing is mapped here: what a mapping touches counts as the process's memory, and a file that was cut off ends it by
a signal instead of an error.
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from freshet.errors import FreshetError
from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.files.owner_only import FILE
from freshet.operators.sink.direct_file import BLOCK_BYTES

FORMAT = 3
NAME = "journal.json"


class EmbedError(FreshetError):
    """An embedding can't go on: a full disk, a damaged file; the message says which and what to do."""


def full_disk(path: Path, error: OSError) -> EmbedError:
    """Return the error for a failed write to a file."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        msg = f"{path}: no room left on the disk ({error.strerror}); free some and run the same command again"
    else:
        msg = f"{path}: can't be written: {error.strerror}; remove the cause and run the same command again"
    return EmbedError(msg)


def _opened_direct(path: Path) -> int:
    """A descriptor for reading past the page cache, -1 where there is no such thing."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    except (OSError, AttributeError):
        return -1


class DiskFile:
    """A file of raw bytes; arrays are read from it and written to it at byte offsets.

    Raises: EmbedError from every method, when the disk is full or the file ends too soon.
    """

    def __init__(self, path: Path, size: int | None = None, *, shared: bool = False) -> None:
        """Open a file that is there, or with `size` make a new one whose room on the disk is taken at once.

        `shared`: one of that size that is there already, of whatever process, is taken as it is.
        """
        self.path = path
        try:
            if size is None:
                self._file = os.open(path, os.O_RDWR)
            else:
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | (0 if shared else os.O_TRUNC), FILE)
                self.reserve(size)
        except FileNotFoundError:
            msg = f"{path}: is missing; remove the folder and embed again"
            raise EmbedError(msg) from None
        except OSError as error:
            raise full_disk(path, error) from None
        self._closed = False
        self._direct: int | None = None  # once asked for: another descriptor, -1 where there can be none

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file).st_size

    @property
    def number(self) -> int:
        """The file's descriptor."""
        return self._file

    @property
    def reads_direct(self) -> bool:
        """Return whether `read_once` bypassed the page cache."""
        return self._direct is not None and self._direct >= 0

    def reserve(self, size: int) -> None:
        """Extend the file to at least this many bytes, with room on the disk for all of them."""
        if not size:
            return
        try:
            os.posix_fallocate(self._file, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise full_disk(self.path, error) from None
            os.ftruncate(self._file, max(size, self.size))

    def read(self, offset: int, out: np.ndarray) -> np.ndarray:
        """Fill a contiguous array from a byte offset on; returns it."""
        view, done = out.reshape(-1).view(np.uint8).data, 0
        while done < len(view):
            got = os.preadv(self._file, [view[done:]], offset + done)
            if got == 0:
                msg = (
                    f"{self.path}: ends at byte {self.size:,}, expected {offset + len(view):,} and more: it was cut "
                    "off; remove the folder and embed again"
                )
                raise EmbedError(msg)
            done += got
        return out

    def read_once(self, offset: int, nbytes: int) -> np.ndarray:
        """Bytes of a large file in new memory, past the page cache where the file system can: (nbytes,) uint8."""
        if self._direct is None:
            self._direct = _opened_direct(self.path)
        begin, end = offset // BLOCK_BYTES * BLOCK_BYTES, -(-(offset + nbytes) // BLOCK_BYTES) * BLOCK_BYTES
        memory = np.empty(end - begin + BLOCK_BYTES, np.uint8)
        memory = memory[-memory.ctypes.data % BLOCK_BYTES :][: end - begin]
        wanted = memory[offset - begin :][:nbytes]
        view, done, needed = memory.data, 0, offset - begin + nbytes
        try:
            while self._direct >= 0 and done < needed:
                got = os.preadv(self._direct, [view[done:]], begin + done)
                done += got
                if got % BLOCK_BYTES or not got:  # the end of the file
                    break
        except OSError:  # such a file can be opened there, but not read
            done = 0
        return wanted if done >= needed else self.read(offset, wanted)

    def write(self, offset: int, data: np.ndarray) -> None:
        """Write a contiguous array at a byte offset."""
        view, done = data.reshape(-1).view(np.uint8).data, 0
        try:
            while done < len(view):
                done += os.pwrite(self._file, view[done:], offset + done)
        except OSError as error:
            raise full_disk(self.path, error) from None

    def sync(self) -> None:
        """Have what was written on the disk."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise full_disk(self.path, error) from None

    def close(self) -> None:
        """Close the file."""
        if not self._closed:
            self._closed = True
            os.close(self._file)
            if self._direct is not None and self._direct >= 0:
                os.close(self._direct)

    def crc32(self, step: int = 1 << 22) -> int:
        """A checksum of the whole file, read in steps."""
        total, size, buffer = 0, self.size, np.empty(step, np.uint8)
        for at in range(0, size, step):
            total = zlib.crc32(self.read(at, buffer[: min(step, size - at)]).data, total)
        return total


class FinishedSteps:
    """The finished steps by name. What a step says is on the disk before the step is in the journal."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.steps: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            steps = read_json(self.path, dict[str, Any], "remove the folder and embed again")
        except DamagedFileError as error:
            raise EmbedError(str(error)) from None
        if steps is None:
            return {"format": FORMAT}
        if steps.get("format") != FORMAT:
            msg = f"{self.path}: of another version of Freshet; remove the folder and embed again"
            raise EmbedError(msg)
        return steps

    def get(self, name: str) -> Any:
        """Return the result of the step, None if it is not finished."""
        return self.steps.get(name)

    def put(self, name: str, value: Any) -> None:
        """Note a step; other processes may have noted theirs meanwhile."""
        try:
            with self.path.with_suffix(".lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
                self.steps = self._read() | {name: value}
                write_json(self.path, self.steps)
        except OSError as error:
            raise full_disk(self.path, error) from None
