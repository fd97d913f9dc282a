"""The options of `freshet export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.layout import out_here
from freshet.job.options.layers import LayersFlag, take_layers


def export(
    job: Annotated[Path, typer.Argument(metavar="O", help="Output folder of the job.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(
            metavar="S", help="Snapshot folder to write; new or empty.", show_default=False, callback=out_here
        ),
    ],
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="PATH", help="Savepoint or checkpoint of the job (default: its last state)."),
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Model folder of the job, if it has moved.")] = None,
    layers: LayersFlag = None,
    config: Annotated[
        Path | None,
        typer.Option(help="YAML file with client properties under `kafka:`, Flink's options under `flink:`."),
    ] = None,
) -> None:
    """Write the graph of a stopped job as a snapshot, from which a new job continues.

    Use it to change the number of parts, or to retrain on the graph. S gets vertices.parquet, edges.parquet, and
    snapshot.json with the positions up to which the graph covers each source: `freshet run --snapshot S` with the same
    --events starts after them. Prints a JSON line (vertices, edges, epoch, positions). The job must be stopped or
    killed. A job that runs on Flink is exported with --from, from that savepoint; for `latest` and checkpoints, from a
    new savepoint that the export requests and removes afterwards.

    [bold]Examples[/bold]

    [cyan]freshet stop O[/cyan]
    [cyan]freshet export --out S O[/cyan]
    [cyan]freshet run --model M --snapshot S --events changes.jsonl --out O2 --parts 8 --parallelism 4[/cyan]
    continues with eight parts where O stopped.

    [cyan]freshet export --out S --from O/checkpoints/savepoints/savepoint-1a2b3c-0123456789ab O[/cyan]
    """
    if not any((job / name).is_file() for name in (layout.RUN, layout.SAVED_JOB)):
        msg = f"{job}: no job in it; give the --out folder of a `freshet run`"
        raise UsageError(msg)
    from freshet.job.options.config_file import load_flink, load_properties
    from freshet.job.results import export as exporting

    take_layers(layers)
    properties, flink = load_properties(config), load_flink(config)
    code = exporting.export(snapshot=out, job=job, state=from_, model=model, properties=properties, flink=flink)
    raise typer.Exit(code)
