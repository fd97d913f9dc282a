"""The tails of one sink part, of all attempts, as one stream of epochs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from freshet.operators.sink.tail.layout import TailName
from freshet.operators.sink.tail.reader import NotATailError, TailEpoch, TailReader

_LOOK_S = 0.05  # between two looks at the folder
_SOON_S, _SOON_LOOK_S = 0.1, 0.001  # a file that has come to its end is followed by another one at once


class _File:
    """A tail file and the record that was read ahead from it."""

    def __init__(self, reader: TailReader) -> None:
        self.reader = reader
        self.ahead: TailEpoch | None = None

    def peek(self, wanted: int) -> TailEpoch | None:
        """The first record of an epoch from `wanted` on that it has now."""
        if self.ahead is None or self.ahead.epoch < wanted:
            self.ahead = self.reader.next(wanted)
        return self.ahead


class PartTails:
    """Finds any epoch of a part that some attempt's tail still has."""

    def __init__(self, folder: Path, part: int, job: int) -> None:
        self._folder, self._part, self._job = folder, part, job
        self._files: dict[TailName, _File] = {}
        self._known: set[TailName] = set()
        self._looked = self._soon_until = float("-inf")

    def get(self, wanted: int) -> TailEpoch | None:
        """The part's rows of an epoch; None while no tail has it."""
        found = self._find(wanted)
        if found is None and self._is_due(time.monotonic()):
            self.look(wanted)
            found = self._find(wanted)
        return found

    def after(self, wanted: int) -> TailEpoch | None:
        """The part's earliest epoch from `wanted` on that some tail has now."""
        if self._is_due(time.monotonic()):
            self.look(wanted)
        found = [one for file in self._files.values() if (one := file.peek(wanted)) is not None]
        return min(found, key=lambda one: one.epoch, default=None)

    def look(self, wanted: int) -> None:
        """Open files that are new, and let go those that are gone or have nothing more."""
        self._looked = time.monotonic()
        try:
            names = {name for entry in os.scandir(self._folder) if (name := TailName.parse(entry.name)) is not None}
        except FileNotFoundError:
            names = set()
        for name in sorted(name for name in names - self._known if name.part == self._part):
            try:
                self._files[name] = _File(TailReader(self._folder / str(name), self._job))
            except (FileNotFoundError, NotATailError):
                continue
            self._known.add(name)
            self._let_go(name, wanted, names)  # before the next one is opened: a part may have thousands
        for name in list(self._files):
            self._let_go(name, wanted, names)
        self._known &= names

    def _let_go(self, name: TailName, wanted: int, names: set[TailName]) -> None:
        """Close a file that has nothing more from `wanted` on."""
        file = self._files[name]
        if file.peek(wanted) is None and (name not in names or file.reader.ended):
            file.reader.close()
            del self._files[name]

    def close(self) -> None:
        """Let all files go."""
        for file in self._files.values():
            file.reader.close()
        self._files = {}

    def rewind(self) -> None:
        """Look at all files from their beginning again."""
        self.close()
        self._known.clear()
        self._looked = float("-inf")

    def _is_due(self, now: float) -> bool:
        """Return whether to list the folder again."""
        if any(file.ahead is None and file.reader.ended for file in self._files.values()):
            self._soon_until = now + _SOON_S
        return now - self._looked >= (_SOON_LOOK_S if now < self._soon_until else _LOOK_S)

    def _find(self, wanted: int) -> TailEpoch | None:
        for file in self._files.values():
            found = file.peek(wanted)
            if found is not None and found.epoch == wanted:
                return found
        return None
