"""Runs the commands of a script in the checkout, with the exit codes and readable errors of `freshet`."""

from __future__ import annotations

import sys

import typer

from freshet.errors import FreshetError
from freshet.files.owner_only import write_for_owner_only
from freshet.job.errors import EXIT_SIGINT, exit_code


def run_script(app: typer.Typer, name: str) -> None:
    """Run the command line of a script, and end the process."""
    write_for_owner_only()
    try:
        app(prog_name=name)
    except KeyboardInterrupt:
        sys.exit(EXIT_SIGINT)
    except (FreshetError, OSError) as error:
        code, message = exit_code(error), str(error)
    print(f"{name}: {message}", file=sys.stderr)
    sys.exit(code)
