"""`stop.json`: how `freshet stop` tells a job's process that it is stopping the job, and then with which savepoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from job.folder.layout import STOP
from job.folder.run_file import write_json


def read_stop(out: Path) -> dict[str, Any]:
    """Return the request by which another process stops the job that writes to `out`, empty when there is none."""
    try:
        request: dict[str, Any] = json.loads((out / STOP).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return request


def write_stop(out: Path, request: dict[str, Any]) -> None:
    """Write a request to stop, or the same one answered with its savepoint."""
    write_json(out / STOP, request)


def forget_stop(out: Path) -> None:
    """Remove a request: it is taken back, or the job has ended."""
    (out / STOP).unlink(missing_ok=True)
