"""Files that appear whole, and large ones written past the page cache.

A change log is written once and read later by others. Through the page cache every megabyte takes fresh pages from the
kernel, which in a virtual machine costs as much as encoding it; direct I/O from one aligned buffer costs next to none.
Where the file system has no direct I/O (tmpfs), the file is written as any other.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np

from freshet.files.owner_only import FILE
from freshet.files.whole import LEFT_BEHIND, sync_folder
from freshet.state.checksums.sealed import END_BYTES, STEP_BYTES, footer_bytes, seal_of, sums_of

BLOCK_BYTES = 4096
BUFFER_BYTES = 16 * STEP_BYTES


def replace_whole(path: Path, write: Callable[[DirectFile], None], unless: Callable[[], bool] = lambda: False) -> None:
    """Write a file aside and put it in the place of `path`: others see the former file or this one.

    It survives a power loss as soon as it is seen: the file is synced before the rename, the folder after it. Two
    attempts may write one path at a time: each has its own file aside, and `unless` is asked when nobody else renames.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{LEFT_BEHIND}")
    try:
        with DirectFile(aside) as file:
            write(file)
    except BaseException:  # of a full disk it would take what is left
        aside.unlink(missing_ok=True)
        raise
    with _alone(path.parent):
        if unless():
            aside.unlink(missing_ok=True)
            return
        os.replace(aside, path)
    sync_folder(path.parent)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep the other attempts and parts that write to the folder waiting; a process that dies lets go."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


class DirectFile:
    """A file object for writing, for `pyarrow.PythonFile`; whole, and synced to the disk, on `close`.

    Invariant: all but the last write to the file are multiples of BLOCK_BYTES from an aligned buffer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            self._file = os.open(path, flags | getattr(os, "O_DIRECT", 0), FILE)
        except OSError:
            self._file = os.open(path, flags, FILE)
        # aligned by hand: a mapping of its own would be pages fresh from the kernel in every file
        memory = np.empty(BUFFER_BYTES + BLOCK_BYTES, np.uint8)
        self._buffer = memory[-memory.ctypes.data % BLOCK_BYTES :][:BUFFER_BYTES]
        self._filled = self._written = 0
        self._sums: list[int] = []  # of what has been drained
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append the data."""
        source = np.frombuffer(data, np.uint8)
        at = 0
        while at < len(source):
            count = min(len(source) - at, STEP_BYTES - self._filled % STEP_BYTES)
            # by numpy, which gives the interpreter lock to other threads meanwhile
            np.copyto(self._buffer[self._filled : self._filled + count], source[at : at + count])
            self._filled += count
            at += count
            if self._filled % STEP_BYTES == 0:  # the processor still has it at hand
                self._sums += sums_of(self._buffer[self._filled - STEP_BYTES : self._filled])
            if self._filled == BUFFER_BYTES:
                self._drain(BUFFER_BYTES)
        return len(source)

    def seal(self) -> None:
        """Put the checksums of a Parquet file that has been written between its rows and its footer."""
        end = self._take_back(END_BYTES)
        footer = self._take_back(footer_bytes(end) - END_BYTES) + end
        sums = self._sums + sums_of(self._buffer[self._filled // STEP_BYTES * STEP_BYTES : self._filled])
        self.write(seal_of(sums, self.tell(), footer))
        self.write(footer)

    def _take_back(self, count: int) -> bytes:
        """The last bytes, as if they had not been written."""
        if count <= self._filled:
            self._filled -= count
            del self._sums[self.tell() // STEP_BYTES :]
            return self._buffer[self._filled : self._filled + count].tobytes()
        begin = (self.tell() - count) // BUFFER_BYTES * BUFFER_BYTES
        with self._path.open("rb") as file:
            file.seek(begin)
            data = file.read(self._written - begin) + self._buffer[: self._filled].tobytes()
        os.lseek(self._file, begin, os.SEEK_SET)
        self._written, self._filled = begin, 0
        del self._sums[begin // STEP_BYTES :]
        self.write(data[:-count])
        return data[-count:]

    def _drain(self, count: int) -> None:
        done = 0
        while done < count:
            done += os.write(self._file, self._buffer[done:count].data)
        self._written += self._filled
        self._filled = 0

    def tell(self) -> int:
        """Bytes so far."""
        return self._written + self._filled

    def flush(self) -> None:
        """Nothing is promised before `close`."""

    def readable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Write the rest, padded to a block, and cut the file to its length."""
        if self.closed:
            return
        self.closed = True
        try:
            if self._filled:
                self._drain(-(-self._filled // BLOCK_BYTES) * BLOCK_BYTES)
            os.ftruncate(self._file, self._written)
            os.fdatasync(self._file)
        finally:
            os.close(self._file)
            self._buffer = np.empty(0, np.uint8)

    def __enter__(self) -> DirectFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
