"""`scripts/drills/no_shared_folder.py`: the drill of a cluster without a shared folder, from the command line."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated, Literal

import orjson
import typer

from freshet.job.errors import EXIT_CHECK_FAILED, EXIT_USAGE
from tests.drills.machines import can_hide
from tests.drills.no_folder import Found, NoFolder
from tests.support.runs.judge import say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def no_folder(
    seed: Annotated[int, typer.Option(help="Draws the stream, who is killed and when.")] = 1,
    kills: Annotated[int, typer.Option(min=0, help="How many processes to kill.")] = 20,
    events: Annotated[int, typer.Option(min=1, help="How many events to stream.")] = 60_000,
    delivery: Annotated[Literal["upsert", "exactly-once"], typer.Option(help="Of the output topic.")] = "upsert",
    fence: Annotated[
        bool, typer.Option(help="Without it every attempt may write the cut log, and only zombies are let go.")
    ] = True,
    keep: Annotated[Path | None, typer.Option(help="Work in this folder, and leave it there.")] = None,
) -> None:
    """Run a job on a cluster whose processes share no folder, kill them one by one, and see what is in the topic.

    The last line on stdout says in JSON how many rows are wrong, missing or repeated; exit 1 when any is.
    """
    if not can_hide():
        say("this machine has no mount namespaces for us (unshare -r -m)")
        raise typer.Exit(EXIT_USAGE)
    folder = keep or Path(tempfile.mkdtemp(prefix="freshet-no-folder-"))
    folder.mkdir(parents=True, exist_ok=True)
    drill, began = NoFolder(folder.absolute(), seed, kills, events, delivery, fence, say), time.monotonic()
    try:
        found = drill.run()
    except Exception as error:  # a job that does not get on is a finding, too
        found = drill.found
        found.note(f"{type(error).__name__}: {error}")
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    for note in found.notes[:10]:
        say(note)
    typer.echo(orjson.dumps(_line(found, seed, kills, events, delivery, fence, time.monotonic() - began)).decode())
    raise typer.Exit(0 if found.good else EXIT_CHECK_FAILED)


def _line(
    found: Found, seed: int, kills: int, events: int, delivery: str, fence: bool, seconds: float
) -> dict[str, object]:
    """The JSON line of a run."""
    given = {"seed": seed, "kills": kills, "events": events, "delivery": delivery, "fence": fence}
    came = {"wrong": found.wrong, "missing": found.missing, "duplicates": found.duplicates}
    seen = {"killed": dict(found.killed), "fenced": found.fenced, "rows": found.rows, "cuts": found.cuts}
    return {**given, **came, **seen, "seconds": round(seconds, 1)}
