"""`freshet.run`, `freshet.check` and `freshet.embed`: commands as functions, with their options as keywords."""

from __future__ import annotations

import inspect
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freshet.job.errors import EXIT_CHECK_FAILED
from freshet.job.options.runtime_options import AUTO
from freshet.job.python.errors import CheckFailedError
from freshet.job.python.handle import RunHandle, running_job
from freshet.job.python.options import keywords, options_of
from freshet.job.python.process import CommandProcess
from freshet.job.python.result import CommandResult
from freshet.job.python.words import CommandWords

_POLL_S = 0.02
_START_S = 600.0  # in which a job has checked what it reads; kernels may have to be compiled


def run(*, detach: bool | None = None, **options: Any) -> RunHandle:
    """Start `freshet run` in a process of its own, and return its handle once the options and the input are checked.

    Each option of the command is a keyword: `checkpoint_interval` for --checkpoint-interval, `flink={...}` for -D, and
    the keys of the --config file. `config` is such a file, or a mapping. A number is in seconds or bytes where the
    option has a unit.

    The job ends with this process, by a savepoint, even if this process is killed. With `detach=True` it goes on.
    `resume="auto"` attaches to a job that runs in the folder `out`, which then goes on.

    Raises: UnknownOptionError for a keyword that is no option; UsageError, with the sentence of the command; JobFailed
        where it fails before it has begun. `error.option` is the option at fault.
    """
    given = options_of(options)
    out = given.config.out.absolute()
    tables = None if given.config.tables_folder is None else Path(given.config.tables_folder)
    if given.config.resume == AUTO and running_job(out):
        return RunHandle(out, detach=detach is not False, tables=tables)
    folder = Path(tempfile.mkdtemp(prefix="freshet-"))
    try:
        process = CommandProcess(["run", *given.arguments(folder)], folder, detach=bool(detach))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    has_server = given.config.flight_port is not None
    handle = RunHandle(out, process, detach=bool(detach), tables=tables, has_server=has_server)
    deadline = time.monotonic() + _START_S
    try:
        while not handle.has_begun() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        process.end()
        raise
    given.forget(folder)
    if process.code not in (None, 0, EXIT_CHECK_FAILED):
        process.result()
    return handle


def check(**options: Any) -> CommandResult:
    """Compare the embeddings of a job with a full pass, as `freshet check`; each option is a keyword.

    The result has the figures of the command's JSON line, and `ok=True`.

    Raises: CheckFailedError where they differ, with the figures in `error.result`; UsageError; JobFailedError.
    """
    from freshet.job.commands.check import check as command

    process = _done("check", CommandWords("check", command), options)
    if process.code == EXIT_CHECK_FAILED:
        figures = CommandResult.of("freshet check: failed", {"ok": False, **(process.printed() or {})})
        faults = "".join(f"\n  {one}" for one in figures.get("faults") or ())
        text = ", ".join(f"{name} {figures[name]}" for name in ("max_rel_error", "missing", "extra") if name in figures)
        msg = f"the embeddings are not those of a full pass: {text}{faults}"
        raise CheckFailedError(msg, figures)
    return CommandResult.of("freshet check", {"ok": True, **process.result()})


def embed(**options: Any) -> CommandResult:
    """Embed a snapshot, as `freshet embed`; each option is a keyword (`for_` for --for, `define={...}` for -D).

    The result has the figures of the command's JSON line.

    Raises: UsageError with the sentence of the command; JobFailedError.
    """
    from freshet.job.commands.embed import embed as command

    return _done("embed", CommandWords("embed", command), options).result()


def _done(name: str, words: CommandWords, options: Mapping[str, Any]) -> CommandProcess:
    """Have a command done; what it says is shown.

    Raises: UnknownOptionError; UsageError.
    """
    words.refuse_unknown(options)
    arguments = words.words(options)
    words.parse(arguments)
    process = CommandProcess([name, *arguments])
    shown = 0
    try:
        while True:
            code = process.code  # before the look at what it has said
            more = process.log(shown)
            shown += len(more)
            if more and code in (None, 0, EXIT_CHECK_FAILED):
                print(more.decode(errors="replace"), end="", file=sys.stderr, flush=True)
            if code is not None:
                return process
            time.sleep(_POLL_S)
    except BaseException:
        process.end()
        process.wait()
        raise


def _with_keywords(function: Any, names: list[str]) -> None:
    """Have help and completion show the keywords of a function."""
    own = {one.name: one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD}
    more = {name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names}
    function.__signature__ = inspect.Signature([*(more | own).values()])


_with_keywords(run, keywords())
