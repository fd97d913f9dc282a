"""`scripts/drills/fuzz_flight.py`: the Flight fuzzer from the command line."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated

import orjson
import typer

from freshet.job.errors import EXIT_CHECK_FAILED
from tests.drills.flight_fuzz import fuzz
from tests.support.runs.judge import say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def fuzz_flight(
    messages: Annotated[int, typer.Option(min=1, help="Messages to send, half to each kind of ids.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Draws the changed bytes.")] = 1,
) -> None:
    """Send lookups with changed bytes to a Flight server, and see that it lives and answers right.

    Prints a JSON line; exit code 1 when a server died or answered wrongly.
    """
    began, found = time.monotonic(), []
    for kind in ("int", "string"):
        found.append(fuzz(kind, messages // 2, seed))
        say(f"{kind}: {found[-1]}")
    total = {key: sum(asdict(one)[key] for one in found) for key in ("messages", "rows", "refused", "ended", "wrong")}
    died = sum(not one.alive for one in found)
    typer.echo(orjson.dumps(total | {"died": died, "seed": seed, "seconds": round(time.monotonic() - began, 1)}))
    if died or total["wrong"]:
        raise typer.Exit(EXIT_CHECK_FAILED)
