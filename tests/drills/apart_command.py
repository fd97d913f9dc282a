"""`scripts/drills/serve_apart`: the drill of servers that share no folder, from the command line."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated

import orjson
import typer

from freshet.job.errors import EXIT_CHECK_FAILED
from tests.drills.apart import Apart
from tests.support.runs.judge import say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def apart(
    events: Annotated[int, typer.Option(min=6_000, help="How many events to stream.")] = 20_000,
    lose: Annotated[bool, typer.Option(help="Lose a machine for good, instead.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Work in this folder, and leave it there.")] = None,
) -> None:
    """Serve a job from two machines and a third that only reads, none of which sees a folder of the other.

    The machines are folders: TaskManagers of a real cluster write their tails there. A server is killed, a
    TaskManager, and the job goes from 2 to 4 subtasks, while answers are taken from all servers. The last line on
    stdout says in JSON what was wrong; exit 1 when anything was.
    """
    folder = keep or Path(tempfile.mkdtemp(prefix="freshet-apart-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        found = Apart(folder.absolute(), events, say, lose).run()
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    for wrong in found.wrong:
        say(wrong)
    line = {"events": events, "epochs": found.epochs, "answers": found.answers, "seen": found.seen}
    line |= {"wrong": len(found.wrong), "seconds": round(time.monotonic() - began, 1)}
    typer.echo(orjson.dumps(line).decode())
    raise typer.Exit(0 if found.good else EXIT_CHECK_FAILED)
