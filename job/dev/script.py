"""How a script of the checkout runs its commands: exit codes as those of `freshet`, errors worded for people."""

from __future__ import annotations

import sys

import typer

from job.errors import EXIT_FAILED, EXIT_SIGINT, EXIT_USAGE, JobFailed, UsageError


def run_script(app: typer.Typer, name: str) -> None:
    """Run the command line of a script, and end the process."""
    try:
        app(prog_name=name)
    except KeyboardInterrupt:
        sys.exit(EXIT_SIGINT)
    except UsageError as error:
        code, message = EXIT_USAGE, str(error)
    except (JobFailed, OSError) as error:
        code, message = EXIT_FAILED, str(error)
    print(f"{name}: {message}", file=sys.stderr)
    sys.exit(code)
