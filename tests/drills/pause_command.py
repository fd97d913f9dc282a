"""`scripts/drills/pause_sink.py`: the pause test from the command line."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer

from freshet.extras import need
from freshet.job.errors import EXIT_CHECK_FAILED
from tests.drills.memory_samples import draw
from tests.drills.pause import Measured, PauseCase, PauseRun
from tests.drills.torture_command import DeliveryChoice, delivery_of
from tests.support.runs.judge import say

PICTURE, SAMPLES = "pause.png", "samples.jsonl"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def pause_sink(
    seconds: Annotated[float, typer.Option(min=2.0, help="How long the broker stands still.")] = 60.0,
    events: Annotated[
        int, typer.Option(min=1000, help="How many events to stream; a third of them come before.")
    ] = 300_000,
    seed: Annotated[int, typer.Option(help="Draws the stream and the model.")] = 1,
    delivery: Annotated[DeliveryChoice, typer.Option(help="Of the output topic.")] = DeliveryChoice.upsert,
    out: Annotated[
        Path | None,
        typer.Option(help=f"Put {PICTURE} (memory over time) and {SAMPLES} into this folder; default build/pause."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the job's folder in --out, as `work`.")] = False,
) -> None:
    """Stream events at full load into a topic whose broker then stands still, and see that memory does too.

    A job on two TaskManagers reads a file as fast as it can and writes embeddings to a broker of its own. A third of
    the way the broker is stopped by SIGSTOP, and goes on by SIGCONT after --seconds. Meanwhile the source must stand
    still, no process may grow by more than what is configured to wait (rss_bound_mb, and what it is made of), and
    nothing may restart; afterwards every event must arrive, `freshet check` must agree, and the topic's last record of
    each vertex must be its last row. Memory and levels are sampled twice a second.

    Example: scripts/drills/pause_sink.py --seconds 60 --events 300000 --out /tmp/pause

    The last line on stdout says it in JSON; exit 1 when something falls short (`failed` tells what).
    """
    need("plots", "pause_sink.py")
    case = PauseCase(seconds, events, seed, delivery_of(delivery))
    folder = (out or Path("build") / "pause").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "work", ignore_errors=True)
    work = folder / "work" if keep else Path(tempfile.mkdtemp(prefix="freshet-pause-"))
    work.mkdir(exist_ok=True)
    run, began = PauseRun(case, work, folder / SAMPLES, say), time.monotonic()
    try:
        measured = run.run()
    except Exception as error:  # a job that does not get on is a finding, too
        measured = Measured(failed=[f"{type(error).__name__}: {error}"])
    finally:
        if run.pause is not None:
            draw(run.sampler.samples, run.pause, folder / PICTURE, f"the output broker stands for {seconds:g} s")
        if not keep:
            shutil.rmtree(work, ignore_errors=True)
    line = {**asdict(case), **measured.figures, "failed": measured.failed, "took_s": round(time.monotonic() - began, 1)}
    typer.echo(orjson.dumps(line).decode())
    raise typer.Exit(EXIT_CHECK_FAILED if measured.failed else 0)
