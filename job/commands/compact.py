"""The options of `freshet compact`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freshet.job.commands.query import KIND_HELP
from freshet.job.errors import UsageError
from freshet.job.units import parse_duration


def compact(
    out: Annotated[
        Path, typer.Argument(metavar="O", help="Output folder of the job, or service folder.", show_default=False)
    ],
    keep_changes: Annotated[
        str,
        typer.Option(help="Age up to which files covered by the base stay, such as 24h; all: keep them all."),
    ] = "all",
    kind: Annotated[str | None, typer.Option(help=KIND_HELP)] = None,
) -> None:
    """Write a base file of the newest rows to O/embeddings, and remove older files of the change log.

    Where the model returns several kinds of vertices, each has a log in O/embeddings/KIND: name it by --kind.

    The folder keeps its meaning: for each id, the row with the greatest epoch is current. Files of the last ten minutes
    always stay, since a restore may write them again. The job may run meanwhile. Prints a JSON line.

    Of a service folder V the log is that of the current job; the line has `generation` and `job`, and its epoch as it
    is served.

    [bold]Examples[/bold]

    [cyan]freshet compact O[/cyan]
    [cyan]freshet compact --keep-changes 24h O[/cyan]
    """
    try:
        keep_s = None if keep_changes == "all" else parse_duration(keep_changes)
    except ValueError as error:
        msg = f"--keep-changes: {error}, or all"
        raise UsageError(msg) from error
    from dataclasses import asdict

    import orjson

    from freshet.job.serving.feeds.service_feed import job_in
    from freshet.job.serving.tables.compaction import compact_log

    job = job_in(out.absolute(), kind)
    if job is None or job.generation is None:
        fields = asdict(compact_log(out.absolute(), keep_s, kind=kind))
    else:
        fields = asdict(compact_log(job.out, keep_s, kind=job.kind or None))
        fields |= {"epoch": job.base + fields["epoch"], "generation": job.generation, "job": str(job.out)}
    print(orjson.dumps(fields).decode(), flush=True)
