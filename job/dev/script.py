"""Runs the commands of a script in the checkout, with the exit codes and readable errors of `freshet`."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import typer

from freshet.errors import FreshetError
from freshet.files.owner_only import write_for_owner_only
from freshet.job.errors import exit_code
from freshet.job.machine.processes import STOPS


def unwind_at_signals() -> None:
    """Have SIGINT, SIGTERM and SIGHUP end the script as an exception does, so that its servers end with it.

    Further signals do not interrupt that. One that the script's parent has it ignore stays ignored.
    """
    numbers = [one for one in (*STOPS, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]

    def leave(number: int, _frame: FrameType | None) -> None:
        for one in numbers:
            signal.signal(one, lambda *_: None)
        sys.exit(128 + number)

    for one in numbers:
        signal.signal(one, leave)


def run_script(app: typer.Typer, name: str) -> None:
    """Run the command line of a script, and end the process."""
    write_for_owner_only()
    unwind_at_signals()
    try:
        app(prog_name=name)
    except (FreshetError, OSError) as error:
        code, message = exit_code(error), str(error)
    print(f"{name}: {message}", file=sys.stderr)
    sys.exit(code)
