"""Lines of standard error: text, or with `--log-format json` one JSON object each.

The fields `time` (UTC), `level` (info, warning, error) and `event` are in every object; further fields depend on the
event. A process inherits the format from the one that started it.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, get_args

import orjson

LogFormat = Literal["text", "json"]
FORMATS: tuple[str, ...] = get_args(LogFormat)
_VARIABLE = "FRESHET_LOG_FORMAT"
_WITH_NUMPY = orjson.OPT_SERIALIZE_NUMPY


class JsonLines(io.TextIOBase):
    """Stands in for `sys.stderr`: each line that any code prints becomes an object."""

    encoding = "utf-8"

    def __init__(self, stream: TextIO) -> None:
        """`stream` takes the objects."""
        self.stream = stream
        self._begun = threading.local()  # the beginning of a line, of each thread

    def write(self, text: str) -> int:
        """Take text; lines that are complete are written."""
        *lines, self._begun.text = (getattr(self._begun, "text", "") + text).split("\n")
        for line in lines:
            if line.strip():
                self.stream.write(log_line(line.strip()))
        self.stream.flush()
        return len(text)

    def fileno(self) -> int:
        """Return the descriptor below."""
        return self.stream.fileno()

    def flush(self) -> None:
        """Pass on what is complete."""
        self.stream.flush()


def is_json() -> bool:
    """Return whether this process writes objects."""
    return os.environ.get(_VARIABLE) == "json"


def log_as(chosen: LogFormat) -> None:
    """Write standard error in this format from now on, in processes that this one starts, too."""
    os.environ[_VARIABLE] = chosen
    begin_inherited()


def begin_inherited() -> None:
    """Write standard error in the format of the process that started this one."""
    if is_json() and not isinstance(sys.stderr, JsonLines):
        sys.stderr = JsonLines(sys.stderr)
    elif not is_json() and isinstance(sys.stderr, JsonLines):
        sys.stderr = sys.stderr.stream


def log_line(event: str, level: str = "info", **fields: Any) -> str:
    """Return an event as a line of the format, with its end."""
    if not is_json():
        return f"{event}\n"
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return orjson.dumps({"time": now, "level": level, "event": event, **fields}, option=_WITH_NUMPY).decode() + "\n"


def log(event: str, level: str = "info", **fields: Any) -> None:
    """Write an event to standard error; text has the event alone."""
    stream = sys.stderr.stream if isinstance(sys.stderr, JsonLines) else sys.stderr
    stream.write(log_line(event, level, **fields))
    stream.flush()


def log_exception(error: BaseException) -> None:
    """Write the traceback of an error: as text, or as a field of one object."""
    text = "".join(traceback.format_exception(error)).rstrip("\n")
    if is_json():
        log(f"{type(error).__name__}: {' '.join(str(error).split())}", "error", traceback=text)
    else:
        log(text)


def log_at_once(event: str, level: str = "info") -> None:
    """Write an event past `sys.stderr`: from a signal's handler, while the stream may be locked, or from any thread.

    `sys.stderr` leads through Java where Flink runs Python, and a worker's thread must not go there.
    """
    os.write(2, log_line(event, level).encode())


def warn(text: str) -> None:
    """Write a warning, from any thread."""
    log_at_once(text if is_json() else f"freshet: {text}", "warning")
