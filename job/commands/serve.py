"""The options of `freshet serve`."""

from __future__ import annotations

import gc
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from job.errors import UsageError
from job.units import parse_duration, parse_size


def serve(
    tables: Annotated[
        Path | None,
        typer.Option(metavar="O/tables", help="The folder `tables` in the job's --out.", show_default=False),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="HOST:PORT,...", help="Feed from these servers instead, over Flight."),
    ] = None,
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
    [cyan]freshet serve --from one:47470,other:47470[/cyan]
    [cyan]freshet query 7 9[/cyan]
    [cyan]curl http://127.0.0.1:47480/embeddings/7[/cyan]
    """
    try:
        history_bytes, stale_after_s = parse_size(history), parse_duration(stale_after)
        wait_s, every_s = parse_duration(wait), 0.0 if compact is None else parse_duration(compact)
        keep_s = None if keep_changes == "all" else parse_duration(keep_changes)
    except ValueError as error:
        raise UsageError(str(error)) from error
    sources = _sources(tables, from_)
    gc.disable()  # what is imported now is never garbage: a tenth of the start goes into looking for it
    from job.serving.clients.asked import SOURCE_TOKEN_VARIABLE, TOKEN_VARIABLE
    from job.serving.server import ServeOptions
    from job.serving.server import serve as serving

    token = token or os.environ.get(TOKEN_VARIABLE) or None
    options = ServeOptions(
        tables,
        host,
        port,
        http_port,
        token,
        history_bytes,
        stale_after_s,
        wait_s,
        None if compact is None or tables is None or sources else partial(_compact, tables.absolute().parent, keep_s),
        every_s,
        sources,
        os.environ.get(SOURCE_TOKEN_VARIABLE) or token,
    )
    raise typer.Exit(serving(options))


def _compact(out: Path, keep_s: float | None) -> object:
    from job.serving.compaction import compact_log

    return compact_log(out, keep_s)


def _sources(tables: Path | None, given: str | None) -> tuple[str, ...]:
    sources = tuple(filter(None, (one.strip() for one in (given or "").split(","))))
    if tables is None and not sources:
        msg = "serve: expected --tables O/tables, of a job on this machine or a shared folder, or --from HOST:PORT,..."
        raise UsageError(msg)
    if sources and tables is not None and tables.name != "tables":
        msg = f"--tables {tables}: expected a folder of the name tables, such as C/tables"
        raise UsageError(msg)
    for one in sources:
        if not one.rpartition(":")[2].isdecimal() or not one.rpartition(":")[0]:
            msg = f"--from {one}: expected HOST:PORT of a server's Flight"
            raise UsageError(msg)
    return sources
