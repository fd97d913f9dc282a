"""Bytes put aside in a temporary file, for what waits beyond its bound in memory.

The file has no name and is empty whenever nothing is in it, so that nothing is left behind however the process ends. It
lies in the folder for temporary files (`TMPDIR`), which must not be one in memory.
"""

from __future__ import annotations

import os
import tempfile
from typing import BinaryIO, NamedTuple

from operators.telemetry.level import Level


class Aside(NamedTuple):
    """Where something stands in the file."""

    offset: int
    size: int


class AsideFile:
    """Takes bytes and gives them back once each, in any order; `level` counts them."""

    def __init__(self, name: str) -> None:
        """`name` says in the system's list of open files what the file is for."""
        self.level = Level()
        self._name = name
        self._file: BinaryIO | None = None  # from the first use on, until `close`

    def put(self, data: bytes) -> Aside:
        """Put the data aside.

        Raises:
            OSError: the file can't be written.
        """
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix=f"freshet-{self._name}-")
        aside = Aside(self._file.seek(0, os.SEEK_END), len(data))
        self._file.write(data)
        self.level.add(aside.size)
        return aside

    def take(self, aside: Aside) -> bytes:
        """Get the data back."""
        assert self._file is not None
        self._file.seek(aside.offset)
        data = self._file.read(aside.size)
        self.level.take(aside.size)
        if not self.level.now:
            self._file.truncate(0)
        return data

    def close(self) -> None:
        """Drop what is in the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
