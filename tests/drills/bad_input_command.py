"""`scripts/drills/bad_input.py`: the bad-input test from the command line."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated

import orjson
import typer

from freshet.job.errors import EXIT_CHECK_FAILED, UsageError
from tests.drills.bad_input import BadInput, Case, Outcome, line
from tests.drills.bad_stream import TooFewError
from tests.support.runs.judge import say

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def bad_input(
    events: Annotated[int, typer.Option(min=1, help="How many records to stream, good and bad.")] = 1_000_000,
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="How many of them are malformed.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Draws the model, the events, what is wrong where.")] = 1,
    partitions: Annotated[int, typer.Option(min=1, help="Of the topic.")] = 4,
    restart: Annotated[
        bool, typer.Option("--break", help="Let one act of the job fail, to see the restart noticed (and exit 1).")
    ] = False,
    kinds: Annotated[
        bool, typer.Option("--kinds", help="Vertices of several kinds, and what may be wrong about these.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Work in this new folder (default: one for temporary files).")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the folder: model, log, run.json, embeddings, dead letters.")
    ] = False,
) -> None:
    """Stream good events mixed with malformed records through Kafka and a job on Flink, and see what becomes of them.

    A record is wrong in one of some hundred ways: bytes that are no text, JSON that is cut, nested without an end or
    ten megabytes long, wrong fields, wrong widths, numbers that are not finite, tombstones, broken Arrow streams,
    floods of rows and of edge types; alone in its message, as a line among good ones, or as a row of a table. The job
    must end without a restart, with each bad record once in the dead letters, at its place, with its bytes and a true
    reason, and with embeddings that equal a full pass over all the good events.

    The last line on stdout is JSON: counts, seconds (of streaming), events_per_s, peak_rss_mb of the job, and for each
    way how many were sent, how many letters there are, and a reason. Exit 1 when anything is wrong; stderr says what.

    1,000,000 records take about seven minutes on two cores, and 3 GB of memory; a quick look:
    scripts/drills/bad_input.py --events 20000
    """
    folder = _folder(out)
    began = time.monotonic()
    case = Case(events, share, seed, partitions, restart, kinds)
    try:
        outcome = BadInput(case, folder, say).run()
    except TooFewError as error:
        msg = f"--events {events} --share {share}: {error}"
        raise UsageError(msg) from None
    except Exception as error:  # a job that does not end is a finding, too
        outcome = Outcome(notes=[f"{type(error).__name__}: {error}"])
    finally:
        if keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for note in outcome.notes:
        say(note)
    typer.echo(orjson.dumps(line(case, outcome, time.monotonic() - began)).decode())
    raise typer.Exit(0 if outcome.good else EXIT_CHECK_FAILED)


def _folder(out: Path | None) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="freshet-bad-input-"))
    if out.exists() and any(out.iterdir()):
        msg = f"--out {out}: expected a new or empty folder"
        raise UsageError(msg)
    out.mkdir(parents=True, exist_ok=True)
    return out.absolute()
