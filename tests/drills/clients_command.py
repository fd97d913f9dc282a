"""`scripts/drills/kill_clients.py`: the drill of killed clients from the command line."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated

import orjson
import typer

from freshet.job.errors import EXIT_CHECK_FAILED
from tests.drills.clients import KILLS, ClientKills
from tests.support.runs.judge import say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def kill_clients(
    kills: Annotated[int, typer.Option(min=1, help="How often something is killed.")] = 8,
    events: Annotated[int, typer.Option(min=5_000, help="How many events to stream.")] = 40_000,
    seed: Annotated[int, typer.Option(help="Draws the order of the kills; each kind comes first once.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Work in this folder, and leave it there.")] = None,
) -> None:
    """Kill the client of a job on a cluster, and continue by one command line with `--resume auto`.

    With and without free slots, under the name of another host, and together with the JobManager. After each kill the
    state must be true, and there must be one job. At the end the job waits for a slot, goes on without a client, and
    ends unseen. Its result must equal that of an uninterrupted run, bit by bit. The last line on stdout says in JSON
    what was wrong; exit 1 when anything was.
    """
    folder = keep or Path(tempfile.mkdtemp(prefix="freshet-clients-"))
    folder.mkdir(parents=True, exist_ok=True)
    drawn = random.Random(seed).choices(KILLS, k=max(0, kills - len(KILLS)))
    began, failed = time.monotonic(), ""
    try:
        ClientKills(folder.absolute(), events, (*KILLS, *drawn)[:kills], say).run()
    except Exception as error:  # a job that does not get on is a finding, too
        failed = f"{type(error).__name__}: {error}"
        say(failed)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    line = {"kills": kills, "events": events, "seed": seed, "failed": failed}
    typer.echo(orjson.dumps({**line, "seconds": round(time.monotonic() - began, 1)}).decode())
    raise typer.Exit(EXIT_CHECK_FAILED if failed else 0)
