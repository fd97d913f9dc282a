"""`scripts/drills/kill_embed.py`: the kills of `freshet embed` from the command line."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Annotated

import orjson
import typer

from freshet.job.errors import EXIT_CHECK_FAILED
from scripts.bench.embed import save_convs, save_graph
from tests.drills.embed_kills import KilledEmbed, Kills, KillsError
from tests.support.runs.judge import say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_WIDTHS = [64, 64, 16]


@app.command()
def kill_embed(
    seed: Annotated[int, typer.Option(help="Draws when the kills are.")] = 1,
    kills: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    vertices: Annotated[int, typer.Option(min=1, help="Of the graph, which is synthetic.")] = 100_000,
    edges: Annotated[int, typer.Option(min=1, help="Of the graph.")] = 1_000_000,
    options: Annotated[str, typer.Option(help="Of `freshet embed`.")] = "--parts 2 --partitioner hdrf --memory 256MiB",
    work: Annotated[Path | None, typer.Option(help="Where a temporary folder is made.")] = None,
) -> None:
    """Kill `freshet embed` at random moments, go on each time, and compare all files with an undisturbed embedding's.

    The last line on stdout says in JSON how often it was killed, after how many seconds, and how many embeddings came
    to their end after kills; exit 1 when a file differs or an attempt fails.
    """
    with tempfile.TemporaryDirectory(dir=work) as name:
        base = Path(name)
        save_graph(base / "S", vertices, edges, _WIDTHS[0], 2.0, None)
        save_convs(base / "M", _WIDTHS)
        drill = KilledEmbed(base / "M", base / "S", base, *options.split())
        try:
            found = drill.run(kills, Random(seed), _tell)
        except KillsError as error:
            print(orjson.dumps({"seed": seed, "wrong": str(error)[-2000:]}).decode())
            raise typer.Exit(EXIT_CHECK_FAILED) from None
    print(orjson.dumps({"seed": seed, "kills": found.kills, "finished": found.finished, "at_s": found.at_s}).decode())


def _tell(found: Kills) -> None:
    say(f"{found.kills} kills, {found.finished} embeddings finished after kills")
