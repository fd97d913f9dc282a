"""States of a job that can still be restored: the cut log keeps the cuts that they need.

A `note` stands for a moment. It `has_passed` when every state that a restart, or `--resume latest`, could take was
begun after that moment. Older savepoints and checkpoints do not count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from freshet.files.json_file import DamagedFileError, read_json
from freshet.files.listing import paths_in

TOLD_FILE = "retained.json"
CLOCKS_MS = 600_000


class Retention(Protocol):
    """Interface of the cut log's question at each marker."""

    def note(self) -> object:
        """The present moment."""

    def has_passed(self, note: object) -> bool:
        """Return whether no state from before that moment is needed any more."""


class CheckpointFolder:
    """Flink's checkpoints in a folder, as `FLINK_JOB/chk-N`.

    Flink makes the folder of a checkpoint before its barrier leaves the sources. So a checkpoint whose folder was not
    there at some moment holds at least what was sealed by then. The newest complete one and those beside it decide.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self) -> frozenset[str]:
        """The checkpoints that were begun by now."""
        return frozenset(map(str, paths_in(self._folder, "*/chk-*")))

    def has_passed(self, note: object) -> bool:
        """Return whether all complete checkpoints of Flink's present job are newer."""
        assert isinstance(note, frozenset)
        complete: dict[Path, int] = {}
        for checkpoint in paths_in(self._folder, "*/chk-*"):
            try:
                written = (checkpoint / "_metadata").stat()
            except OSError:  # under way, or removed while we look
                continue
            if written.st_size:
                complete[checkpoint] = written.st_mtime_ns
        if not complete:
            return False
        newest = max(complete, key=lambda one: (complete[one], one.name))
        return not any(str(one) in note for one in complete if one.parent == newest.parent)


class ReportedCheckpoints:
    """Flink's checkpoints in a store that this machine can't see, as reported by the process that started the job.

    It asks Flink for the start of the oldest retained one. That is by the JobManager's clock, and the time of a note by
    this machine's: they must not differ by more than CLOCKS_MS. Without reports, nothing is deleted.
    """

    def __init__(self, folder: Path, clock_ms: Callable[[], float] = lambda: time.time() * 1e3) -> None:
        self._file, self._clock_ms = folder / TOLD_FILE, clock_ms

    def note(self) -> float:
        """The time."""
        return self._clock_ms()

    def has_passed(self, note: object) -> bool:
        """Return whether all retained checkpoints were certainly begun later."""
        assert isinstance(note, float)
        try:
            found = read_json(self._file, dict[str, float], "the process that started the job writes it again")
        except DamagedFileError:
            return False
        return found is not None and found.get("since_ms", 0.0) > note + CLOCKS_MS


class Commits:
    """The commits of the local runtime, whose one state is that of the last commit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = self._durable = 0

    def begin(self) -> None:
        """An outcome of the Partitioner is on its way."""
        with self._lock:
            self._begun += 1

    def commit(self, outcomes: int) -> None:
        """Note that this many outcomes are durable, in order."""
        with self._lock:
            self._durable += outcomes

    def note(self) -> int:
        """The number of the outcome that is made now."""
        return self._begun

    def has_passed(self, note: object) -> bool:
        """Return whether that outcome is durable."""
        assert isinstance(note, int)
        return self._durable > note
