"""A command in a process of its own, what it prints, and its end as a result or an error."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import orjson

from freshet.errors import FreshetError
from freshet.job.errors import EXIT_CHECK_FAILED, EXIT_SIGINT, EXIT_SIGTERM, EXIT_USAGE, UsageError
from freshet.job.machine.python_path import python_environ
from freshet.job.python.errors import CheckFailedError, JobFailedError
from freshet.job.python.result import CommandResult

_STOPPED = EXIT_SIGINT, EXIT_SIGTERM
_OURS = "freshet: "
_TAIL_BYTES = 1 << 20  # of a log, of which the last lines say why


class CommandProcess:
    """A command that runs; its output is in files, so that it can go on without this process.

    It has a session of its own: an interrupt of the terminal or the notebook is not for it. It ends with this process
    unless `detach`.
    """

    def __init__(self, arguments: Sequence[str], folder: Path | None = None, *, detach: bool = False) -> None:
        """`folder`: for its output, removed in the end."""
        self.folder = folder or Path(tempfile.mkdtemp(prefix="freshet-"))
        self.title = f"freshet {arguments[0]}"
        parent = 0 if detach else os.getpid()
        command = [sys.executable, "-P", "-m", "freshet.job.python.child", str(parent), *arguments]
        with (self.folder / "stdout").open("wb") as out, (self.folder / "stderr").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, env=python_environ(), start_new_session=True
            )
        if not detach:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end; returns the exit code.

        Raises: subprocess.TimeoutExpired.
        """
        return self._process.wait(timeout_s)

    def end(self) -> None:
        """Have it end as by SIGTERM."""
        if self.code is None:
            self._process.send_signal(signal.SIGTERM)

    def log(self, begin: int = 0) -> bytes:
        """Return what it has said on stderr, from a byte on."""
        with (self.folder / "stderr").open("rb") as file:
            file.seek(begin)
            return file.read()

    def printed(self) -> dict[str, Any] | None:
        """Return the JSON object in the last line of stdout; None where there is none."""
        lines = (self.folder / "stdout").read_bytes().splitlines()
        try:
            found = orjson.loads(lines[-1])
        except (IndexError, orjson.JSONDecodeError):
            return None
        return found if isinstance(found, dict) else None

    def why(self) -> str:
        """Return what the last lines of stderr say of its end, without its name."""
        size = (self.folder / "stderr").stat().st_size
        return complaint_of(self.log(max(0, size - _TAIL_BYTES)).decode(errors="replace"))

    def result(self) -> CommandResult:
        """Return what a command that has ended has printed; of one that was stopped, too.

        Raises: UsageError, CheckFailedError or JobFailedError, by its exit code.
        """
        code, printed = self.code, self.printed()
        if code == 0 or (code in _STOPPED and printed is not None):
            return CommandResult.of(self.title, printed or {})
        self.fail(code)

    def fail(self, code: int | None) -> NoReturn:
        """Raise the error that an exit code means."""
        raise error_of(code, self.why(), self.printed())


def error_of(code: int | None, why: str, printed: dict[str, Any] | None = None) -> FreshetError:
    """Return the error that an exit code of a command means, with what the command said."""
    if code == EXIT_USAGE:
        return UsageError(why)
    if code == EXIT_CHECK_FAILED:
        return CheckFailedError(why, CommandResult.of("", printed or {}))
    if code is not None and code < 0:
        by = signal.Signals(-code).name
        return JobFailedError(f"killed by {by}; go on with resume='latest'", 128 - code)
    return JobFailedError(why or f"ended with {code}", code)


def complaint_of(log: str) -> str:
    """Return the complaint in the last lines of a log of text, or of JSON objects; else the last line."""
    found: list[str] = []
    lines = log.splitlines()
    for line in reversed(lines):
        text = _complaint_in(line)
        if text is None:
            break
        found.append(text)
    return "\n".join(reversed(found)) or (lines[-1] if lines else "")


def _complaint_in(line: str) -> str | None:
    if line.startswith(_OURS):
        return line.removeprefix(_OURS)
    try:
        event = orjson.loads(line) if line.startswith("{") else {}
    except orjson.JSONDecodeError:
        return None
    return str(event["event"]) if event.get("level") == "error" else None
