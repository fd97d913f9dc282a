"""The options of `freshet stop`; what it does is in `job.run.stop`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freshet.job.errors import UsageError
from freshet.job.folder import layout


def stop(
    out: Annotated[Path, typer.Argument(help="Output folder of the running job.", show_default=False)],
    savepoint: Annotated[
        str | None, typer.Option(help="Folder or URI for the savepoint (default: OUT/checkpoints).")
    ] = None,
) -> None:
    """Stop the job that writes to OUT, with a savepoint.

    Prints the savepoint's path and an epoch; OUT is complete up to that epoch.

    [bold]Examples[/bold]

    [cyan]freshet stop O[/cyan]

    [cyan]freshet stop --savepoint /backups O[/cyan]
    and later: [cyan]freshet run ... --out O --resume PATH[/cyan]
    """
    if not any((out / name).is_file() for name in (layout.RUN, layout.PLACE)):
        msg = f"{out}: no run.json in it; give the --out folder of a running `freshet run`"
        raise UsageError(msg)
    from freshet.job.run import stop as stopping

    raise typer.Exit(stopping.stop(out=out, savepoint=savepoint))
