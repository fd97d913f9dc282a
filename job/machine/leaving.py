"""The end of a process whose work is done."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import NoReturn

_FAILED = 1  # what Python itself ends with after an exception
_NOT_FLUSHED = 120  # the same, where standard output could not be written


def run_as_process(main: Callable[[], int | None]) -> NoReturn:
    """Run the program of this process, and end it with the program's exit code.

    Exit functions that are registered from here on run as ever. After them the process ends at once. Destructors of
    libraries do not run: those of Arrow abort a process now and then while one of its threads still reads ahead
    (apache/arrow#34314), after all results are written.

    Raises:
        SystemExit: always, with the exit code.
    """
    code = [_FAILED]
    atexit.register(lambda: _leave(code[0]))
    try:
        code[0] = main() or 0
    except SystemExit as ending:
        code[0] = _code_of(ending)
    sys.exit(code[0])


def _code_of(ending: SystemExit) -> int:
    if ending.code is None or isinstance(ending.code, int):
        return ending.code or 0
    print(ending.code, file=sys.stderr)
    return _FAILED


def _leave(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads any more, or it is closed
            code = code or _NOT_FLUSHED
    os._exit(code & 0xFF)
