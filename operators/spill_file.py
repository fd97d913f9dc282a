"""A temporary file for what waits beyond its bound in memory.

The file has no name and is empty whenever nothing waits in it, so nothing is left behind however the process ends. It
lies in the folder for temporary files (`TMPDIR`), which must not be one in memory.
"""

from __future__ import annotations

import os
import tempfile
from typing import BinaryIO, NamedTuple

from freshet.operators.telemetry.level import Level


class Spilled(NamedTuple):
    """Position of some bytes in a spill file."""

    offset: int
    size: int


class SpillFile:
    """Takes bytes and gives them back once each, in any order; `level` counts those in the file."""

    def __init__(self, name: str) -> None:
        """`name` says in the system's list of open files what the file is for."""
        self.level = Level()
        self._name = name
        self._file: BinaryIO | None = None  # from the first use on, until `close`

    def spill(self, data: bytes) -> Spilled:
        """Write the bytes to the file.

        Raises:
            OSError: the file can't be written.
        """
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix=f"freshet-{self._name}-")
        spilled = Spilled(self._file.seek(0, os.SEEK_END), len(data))
        self._file.write(data)
        self.level.add(spilled.size)
        return spilled

    def fetch(self, spilled: Spilled) -> bytes:
        """Read the bytes back; they no longer wait in the file."""
        assert self._file is not None
        self._file.seek(spilled.offset)
        data = self._file.read(spilled.size)
        self.level.take(spilled.size)
        if not self.level.now:
            self._file.truncate(0)
        return data

    def close(self) -> None:
        """Drop the contents of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
