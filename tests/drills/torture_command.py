"""`scripts/torture`: the kill test from the command line."""

from __future__ import annotations

import shutil
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer

from freshet.job.errors import EXIT_CHECK_FAILED
from tests.drills.torture import READERS_MAX, Case, Torture, line
from tests.support.runs.judge import Delivery, Outcome, say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Break(StrEnum):
    """A recovery that is broken on purpose."""

    offset = "offset"
    page = "page"
    cut = "cut"


class DeliveryChoice(StrEnum):
    """How records go out."""

    upsert = "upsert"
    exactly_once = "exactly-once"


@app.command()
def torture(
    seed: Annotated[int, typer.Option(help="Draws the stream, the job's shape, who is killed and when.")] = 1,
    kills: Annotated[int, typer.Option(min=0, help="How many processes to kill.")] = 20,
    events: Annotated[int, typer.Option(min=1, help="How many events to stream.")] = 200_000,
    delivery: Annotated[
        DeliveryChoice, typer.Option(help="Of the output topic; exactly-once also looks for repeated records.")
    ] = DeliveryChoice.upsert,
    readers: Annotated[
        int,
        typer.Option(
            min=1,
            max=READERS_MAX,
            help="Readers of the topic; with more than one each resume has another number of them, and half-way the "
            "topic gets a partition more.",
        ),
    ] = 1,
    broken: Annotated[
        Break | None,
        typer.Option(
            "--break",
            help="Break the recovery on purpose, to see it noticed: skip a message (offset), never write one page of "
            "a layer's state (page), ignore the cut log (cut).",
        ),
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Work in this folder, and leave it there.")] = None,
) -> None:
    """Stream events through Kafka and a job on a cluster of processes, kill them one by one, and see what is left.

    Killed are TaskManagers, the JobManager (the job is then resumed) and the broker, at the pace of one every few
    seconds. The last line on stdout says in JSON how many embeddings and records are wrong, missing or repeated; exit
    1 when any is.
    """
    case = Case(seed, kills, events, delivery_of(delivery), broken.value if broken else "", readers)
    folder = keep or Path(tempfile.mkdtemp(prefix="freshet-torture-"))
    folder.mkdir(parents=True, exist_ok=True)
    run, began = Torture(case, folder.absolute(), say), time.monotonic()
    try:
        outcome = run.run()
    except Exception as error:  # a job that does not get on is a finding, too
        outcome = Outcome(wrong=1, notes=[f"{type(error).__name__}: {error}"])
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    for note in outcome.notes:
        say(note)
    typer.echo(orjson.dumps(line(case, run, outcome, time.monotonic() - began)).decode())
    raise typer.Exit(0 if outcome.good else EXIT_CHECK_FAILED)


def delivery_of(choice: DeliveryChoice) -> Delivery:
    """As the judge calls it."""
    return "exactly-once" if choice is DeliveryChoice.exactly_once else "upsert"
