"""The options of `freshet status`; what it shows is in `job.status`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def status(
    out: Annotated[Path, typer.Argument(help="Output folder of a job.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again each second until the job is over.")] = False,
) -> None:
    """Show what the job in OUT is doing: its state, its progress, and where its time goes.

    The state is running, stopped (it can go on), ended (all input is taken in), failed, or lost (killed). The exit code
    is 0 whatever it is.

    [bold]Examples[/bold]

    [cyan]freshet status O[/cyan]
    [cyan]freshet status O --json --watch[/cyan]
    prints a line each second.
    """
    from freshet.job.status.page import show

    show(out.absolute(), as_json=as_json, watch=watch)
