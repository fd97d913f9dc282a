"""The job of a server whose folder is on this machine: its status, and where it is."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from freshet.errors import FreshetError
from freshet.job.errors import UsageError
from freshet.job.serving.tables.lookup import Lookup

KEPT_S = 1.0


class NoJobError(FreshetError):
    """There is no folder of a job on the server's machine, or what is asked for is not in it."""

    served_as = "no-job"


def out_of(lookup: Lookup) -> Path:
    """Return the folder in which the job of the rows is, if it is on this machine; of a service, the current job's."""
    return lookup.job.log_beside(lookup.folder).out


class JobStatus:
    """Status of the job as `freshet status --json` has it; read again when it is a second old. Safe for threads."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup, self._lock = lookup, threading.Lock()
        self._kept: tuple[float, Path, dict[str, Any]] | None = None

    def now(self) -> dict[str, Any]:
        """Return it.

        Raises: NoJobError where no folder of a job is here; DamagedFileError where its `run.json` is damaged.
        """
        from freshet.job.status.report import report  # with libraries that take a while

        with self._lock:
            out = out_of(self._lookup)
            if self._kept is not None:
                read_s, of, kept = self._kept
                if of == out and time.monotonic() - read_s < KEPT_S:
                    return kept
            try:
                found = report(out)
            except UsageError as error:
                msg = f"no status: {error}"
                raise NoJobError(msg) from None
            self._kept = time.monotonic(), out, found
            return found
