"""`scripts/drills/swap_models.py`: the drill of models that are exchanged, from the command line."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer

from freshet.job.errors import EXIT_CHECK_FAILED
from tests.drills.swaps import SwapCase, Swaps
from tests.support.runs.judge import say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def swap_models(
    seconds: Annotated[float, typer.Option(min=1.0, help="Length of each phase in which nothing is exchanged.")] = 20.0,
    rate: Annotated[float, typer.Option(min=1.0, help="Events a second.")] = 5_000.0,
    local: Annotated[bool, typer.Option("--local", help="Jobs of the local runtime, which read a file.")] = False,
    by_swap: Annotated[bool, typer.Option("--by-swap", help="By `freshet swap`, in place of single commands.")] = False,
    swaps: Annotated[int, typer.Option(min=1, help="How often a new model comes.")] = 1,
    kinds: Annotated[int, typer.Option(min=1, max=2, help="Kinds of vertices that are served.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Processes of each server.")] = 1,
    fed: Annotated[bool, typer.Option("--fed", help="With a server that feeds from that of the service.")] = False,
    kills: Annotated[int, typer.Option(min=0, help="SIGKILLs of servers, jobs and commands.")] = 0,
    pace: Annotated[float, typer.Option(min=0.01, help="Pauses of readers between two reads, times this.")] = 1.0,
    vertices: Annotated[int, typer.Option(min=10, help="Vertices of the graph; of kinds there are few.")] = 2_000,
    seed: Annotated[int, typer.Option(help="Draws the stream, and what readers ask for.")] = 1,
    keep: Annotated[Path | None, typer.Option(help="Work in this folder, and leave it there.")] = None,
) -> None:
    """Exchange the model of a service while it is read by all ways, roll back, and exchange it again.

    Every answer is held against the change log of the job that it names, bit by bit, with that model's logits. Prints a
    JSON line for each phase, and a summary; exit 1 when an answer was wrong, mixed two jobs, went back or failed.
    """
    case = SwapCase(
        seconds, rate, local, by_swap, swaps, kinds, workers, fed, kills, pace, vertices=vertices, seed=seed
    )
    folder = keep or Path(tempfile.mkdtemp(prefix="freshet-swaps-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        found = Swaps(case, folder.absolute(), say).run()
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    for note in found.verdict.notes:
        say(note)
    given = {name: value for name, value in asdict(case).items() if name != "ways"}
    for line in (*found.phases, {**given, **found.summary, "took_s": round(time.monotonic() - began, 1)}):
        typer.echo(orjson.dumps(line).decode())
    raise typer.Exit(0 if found.verdict.good else EXIT_CHECK_FAILED)
