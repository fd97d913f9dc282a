"""Begin of a job: the time of the rows that it began with, in the file that says that their image is whole."""

from __future__ import annotations

import time
from pathlib import Path

import orjson

from freshet.files.whole import write_whole
from freshet.job.folder import layout


def write_begun(out: Path) -> None:
    """Say that the base image is whole, and that the job begins now."""
    write_whole(out / layout.IMAGE_DONE, orjson.dumps({"began_ms": int(time.time() * 1e3)}))


def began_ms(out: Path) -> int | None:
    """Return when the job began, in ms since 1970; of an earlier version's by the age of the file, None without one."""
    path = out / layout.IMAGE_DONE
    try:
        told = path.read_bytes()
        found = orjson.loads(told)["began_ms"] if told else path.stat().st_mtime * 1e3
        return int(found)
    except (OSError, ValueError, LookupError, TypeError):
        return None
