"""The options of `freshet query`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freshet.job.errors import EXIT_CHECK_FAILED, UsageError
from freshet.kind_names import written_kind

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 6  # numbers of an embedding in the table for people


class Format(StrEnum):
    """Output format of answers."""

    TABLE = "table"
    JSON = "json"
    ARROW = "arrow"


AT_HELP = "HOST:PORT of a server (with TLS: grpc+tls://HOST:PORT), or the folder O/tables of a job on this machine."
KIND_HELP = "Kind of vertices, where the model returns several."
TLS_ROOTS_HELP = "With grpc+tls://: PEM file of certificates to trust (default: the system's)."


def query(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Vertices.", show_default=False)],
    at: Annotated[str, typer.Option(help=AT_HELP)] = "127.0.0.1:47470",
    format_: Annotated[Format, typer.Option("--format", help="Output as a table, JSON Lines, or an Arrow stream.")] = (
        Format.TABLE
    ),
    kind: Annotated[str | None, typer.Option(help=KIND_HELP)] = None,
    min_epoch: Annotated[int, typer.Option(help="Wait until this epoch is readable.")] = 0,
    timeout: Annotated[float, typer.Option(help="Maximum wait in seconds.")] = 5.0,
    token: Annotated[str | None, typer.Option(help="The server's token; better as FRESHET_TOKEN.")] = None,
    tls_roots: Annotated[Path | None, typer.Option(help=TLS_ROOTS_HELP)] = None,
) -> None:
    """Print the embeddings of vertices from the running job, with logits and predicted class if the model has a head.

    All rows belong to one epoch, which is printed on stderr. Exits with 1 when one of the ids has no row.

    [bold]Examples[/bold]

    [cyan]freshet query 7 9[/cyan]
    [cyan]freshet query --at O/tables --format json 7[/cyan]
    [cyan]freshet query --at O/tables --kind item 7[/cyan]
    """
    from freshet.job.serving.clients.asked import TOKEN_VARIABLE
    from freshet.job.serving.clients.client import EmbeddingClient
    from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError, NotYetError

    try:
        token = token or os.environ.get(TOKEN_VARIABLE)
        with EmbeddingClient(at_kind(at, kind), token=token, timeout=timeout, tls_roots=tls_roots) as client:
            if kind is not None:
                check_kind(client.health(), kind, at)
            table = rows_of(client, ids, min_epoch)
    except (BadRequestError, NotReadyError, NotYetError) as error:
        msg = f"query: {error}"
        raise UsageError(msg) from error
    print_table(table, format_)
    known = {str(one) for one in table["id"].to_pylist()}
    missing = [one for one in ids if one not in known]
    epoch = (table.schema.metadata or {}).get(b"epoch", b"?").decode()
    unknown = f"; no row: {', '.join(missing[:20])}" if missing else ""
    print(f"epoch {epoch}: {table.num_rows} of {len(ids)} vertices{unknown}", file=sys.stderr)
    raise typer.Exit(EXIT_CHECK_FAILED if missing else 0)


def at_kind(at: str, kind: str | None) -> str:
    """Return the address of a kind's embeddings: of a folder of tables that of the kind.

    Raises: UsageError where a kind is to be named, or is not returned.
    """
    tables = Path(at).absolute()
    if not tables.is_dir():
        return at
    from freshet.job.serving.tables.served_job import ServedJob

    job = ServedJob.of_tables(tables, kind)
    if job is None:  # perhaps the tables of a server that feeds from others
        folder = tables / written_kind(kind or "")
        return str(folder) if kind and folder.is_dir() else at
    return str(job.log.tables)


def check_kind(health: Mapping[str, Any], kind: str, at: str) -> None:
    """Refuse a server of the embeddings of another kind.

    Raises: UsageError.
    """
    if (served := health.get("kind")) is not None and served != kind:
        msg = f"--kind {kind}: the server at {at} has the embeddings of {served}; give the address of another one"
        raise UsageError(msg)


def rows_of(client: Any, ids: list[str], min_epoch: int) -> pa.Table:
    """Return the rows of ids as a user types them: as numbers where the job has such ids, else as they are."""
    from freshet.job.serving.bounds.asked_ids import as_stored
    from freshet.job.serving.protocol.errors import BadRequestError

    numbers = as_stored(ids, strings=False)
    if all(isinstance(one, int) for one in numbers):
        try:
            return client.get(numbers, min_epoch=min_epoch, logits=True)
        except BadRequestError:
            pass
    return client.get(ids, min_epoch=min_epoch, logits=True)


def print_table(table: pa.Table, format_: Format) -> None:
    """Rows of an answer in a format."""
    if format_ is Format.ARROW:
        import pyarrow as pa

        with pa.ipc.new_stream(sys.stdout.buffer, table.schema) as writer:
            writer.write_table(table)
        return
    if format_ is Format.JSON:
        print_json(table)
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table(*table.column_names)
    for row in table.to_pylist():
        shown.add_row(*(_short(value) for value in row.values()))
    Console().print(shown)


def print_json(table: pa.Table) -> None:
    """A JSON object a row; numbers that are not finite become null."""
    import orjson

    for row in table.to_pylist():
        print(orjson.dumps(row).decode(), flush=True)


def _short(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    more = f" … ({len(value)})" if len(value) > _SHOWN else ""
    return " ".join(f"{one:.4g}" for one in value[:_SHOWN]) + more
