"""The options of `freshet serve`."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Annotated

import typer

from job.errors import UsageError
from job.units import parse_duration, parse_size


def serve(
    tables: Annotated[
        Path, typer.Option(metavar="O/tables", help="The folder `tables` in the job's --out.", show_default=False)
    ],
    host: Annotated[str, typer.Option(help="Address to listen at; others than loopback want a --token.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="Port of Arrow Flight; 0: any (default: 47470, or the next free one).")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(help="Port of HTTP; 0: any (default: 47480, or the next free one).")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="What clients must send; better given as FRESHET_TOKEN in the environment.")
    ] = None,
    history: Annotated[
        str, typer.Option(help="Memory at most for rows that were replaced, which slow reads go by.")
    ] = "256MiB",
    stale_after: Annotated[str, typer.Option(help="Not ready when nothing was heard of the job for so long.")] = "10s",
    wait: Annotated[str, typer.Option(help="How long to wait for a job that prepares itself.")] = "60s",
    compact: Annotated[
        str | None, typer.Option(help="Write a base file so often, such as 1h; see `freshet compact`.")
    ] = None,
    keep_changes: Annotated[
        str, typer.Option(help="With --compact: age up to which covered change-log files stay, such as 24h, or all.")
    ] = "all",
) -> None:
    """Serve the embeddings of a running or finished job: Arrow Flight, HTTP with JSON, and a table in shared memory.

    A process of its own, beside the job; its end does the job no harm, and after kill -9 the next one goes on with the
    table that is left. Every answer holds rows of one epoch, and says which.

    [bold]Examples[/bold]

    [cyan]freshet serve --tables O/tables[/cyan]
    [cyan]freshet query 7 9[/cyan]
    [cyan]curl http://127.0.0.1:47480/embeddings/7[/cyan]
    """
    try:
        history_bytes, stale_after_s = parse_size(history), parse_duration(stale_after)
        wait_s, every_s = parse_duration(wait), 0.0 if compact is None else parse_duration(compact)
        keep_s = None if keep_changes == "all" else parse_duration(keep_changes)
    except ValueError as error:
        raise UsageError(str(error)) from error
    gc.disable()  # what is imported now is never garbage: a tenth of the start goes into looking for it
    from job.serving.clients.asked import TOKEN_VARIABLE
    from job.serving.server import ServeOptions
    from job.serving.server import serve as serving

    def compacting() -> object:
        from job.serving.compaction import compact_log

        return compact_log(tables.absolute().parent, keep_s)

    options = ServeOptions(
        tables,
        host,
        port,
        http_port,
        token or os.environ.get(TOKEN_VARIABLE) or None,
        history_bytes,
        stale_after_s,
        wait_s,
        compacting if compact is not None else None,
        every_s,
    )
    raise typer.Exit(serving(options))
