"""`stop.json`: by it `freshet stop` announces to a job's process that it stops the job, and later the savepoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from freshet.files.json_file import DamagedFileError, read_json, write_json
from freshet.job.console import say
from freshet.job.folder.layout import STOP


@with_config(ConfigDict(extra="allow"))
class _Request(TypedDict, total=False):
    job_id: str
    savepoint_dir: str
    before: list[str]
    savepoint: str


def read_stop(out: Path) -> dict[str, Any]:
    """Return the request by which another process stops the job that writes to `out`, empty when there is none.

    One that is damaged is none: it is said, and removed.
    """
    try:
        return dict(read_json(out / STOP, _Request, "it is taken for none; `freshet stop` writes another one") or {})
    except DamagedFileError as error:
        say(str(error))
        forget_stop(out)
        return {}


def write_stop(out: Path, request: dict[str, Any]) -> None:
    """Write a request to stop, or the same one answered with its savepoint."""
    write_json(out / STOP, request)


def forget_stop(out: Path) -> None:
    """Remove a request: it is taken back, or the job has ended."""
    (out / STOP).unlink(missing_ok=True)
