"""A command of the command line inside the test process, which spares the start of Python and its imports.

For commands that are not what a test is about: their processes have tests of their own.
"""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

from freshet.job.cli import main


def call_inside(*arguments: object) -> tuple[int, str, str]:
    """Run `freshet` with these arguments; its exit code, standard output and standard error."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    with _as_before(), redirect_stdout(output), redirect_stderr(errors):
        try:
            main([*map(str, arguments)])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, _written(output), _written(errors)


def _written(stream: io.TextIOWrapper) -> str:
    return bytes(stream.buffer.getvalue()).decode()  # type: ignore[attr-defined]


@contextmanager
def _as_before() -> Iterator[None]:
    """Take back what a command sets for its process."""
    environ, thresholds, mask = dict(os.environ), gc.get_threshold(), os.umask(0o077)
    try:
        yield
    finally:
        os.umask(mask)
        gc.set_threshold(*thresholds)
        os.environ.clear()
        os.environ.update(environ)
