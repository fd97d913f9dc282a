"""The options of `freshet query`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
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
KIND_OF_PAIRS_HELP = (
    "Kind of vertices, where the model returns several; with --pairs LEFT,RIGHT, where it has several heads."
)
PAIRS_HELP = "Print the scores of pairs: the arguments are LEFT:RIGHT each."
PAIRS_FILE_HELP = "Print the scores of the pairs of a Parquet file, with the columns left and right."
TLS_ROOTS_HELP = "With grpc+tls://: PEM file of certificates to trust (default: the system's)."


def query(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Vertices.", show_default=False)] = None,
    at: Annotated[str, typer.Option(help=AT_HELP)] = "127.0.0.1:47470",
    format_: Annotated[Format, typer.Option("--format", help="Output as a table, JSON Lines, or an Arrow stream.")] = (
        Format.TABLE
    ),
    kind: Annotated[str | None, typer.Option(help=KIND_OF_PAIRS_HELP)] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help=PAIRS_HELP)] = False,
    pairs_file: Annotated[Path | None, typer.Option(help=PAIRS_FILE_HELP)] = None,
    min_epoch: Annotated[int, typer.Option(help="Wait until this epoch is readable.")] = 0,
    timeout: Annotated[float, typer.Option(help="Maximum wait in seconds.")] = 5.0,
    token: Annotated[
        str | None, typer.Option(help="The server's token, or a file with it; better as FRESHET_TOKEN.")
    ] = None,
    tls_roots: Annotated[Path | None, typer.Option(help=TLS_ROOTS_HELP)] = None,
) -> None:
    """Print the embeddings of vertices from the running job, with logits and predicted class if the model has a head.

    All rows belong to one epoch, which is printed on stderr. Exits with 1 when one of the ids has no row. With --pairs
    or --pairs-file, scores are printed in their place: those of the model's link head, or dot products.

    [bold]Examples[/bold]

    [cyan]freshet query 7 9[/cyan]
    [cyan]freshet query --pairs 7:9 7:11[/cyan]
    [cyan]freshet query --pairs --kind user,item 7:9[/cyan]
    [cyan]freshet query --at O/tables --format json 7[/cyan]
    [cyan]freshet query --at O/tables --kind item 7[/cyan]
    """
    from freshet.job.serving.clients.asked import TOKEN_VARIABLE
    from freshet.job.serving.clients.client import EmbeddingClient
    from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError, NotYetError
    from freshet.job.serving.protocol.token_values import token_to_send

    asked = ids or []
    wanted = asked_pairs(asked, pairs_file) if pairs or pairs_file is not None else None
    if not asked and wanted is None:
        msg = "query: expected ids, --pairs LEFT:RIGHT or --pairs-file"
        raise UsageError(msg)
    try:
        token = token_to_send(token or os.environ.get(TOKEN_VARIABLE))
        of_server = kind if wanted is None and not Path(at).is_dir() else None
        address = at if wanted is not None else at_kind(at, kind)
        with EmbeddingClient(address, kind=of_server, token=token, timeout=timeout, tls_roots=tls_roots) as client:
            if wanted is not None:
                table = scores_of(client, wanted, min_epoch, kind)
            else:
                if kind is not None:
                    check_kind(client.health(), kind, at)
                table = rows_of(client, asked, min_epoch)
    except (BadRequestError, NotReadyError, NotYetError) as error:
        msg = f"query: {error}"
        raise UsageError(msg) from error
    print_table(table, format_)
    summary, complete = of_rows(table, asked) if wanted is None else of_scores(table)
    epoch = (table.schema.metadata or {}).get(b"epoch", b"?").decode()
    print(f"epoch {epoch}: {summary}", file=sys.stderr)
    raise typer.Exit(0 if complete else EXIT_CHECK_FAILED)


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
    served = [*health["kinds"]] if "kinds" in health else [health["kind"]] if "kind" in health else [kind]
    if kind not in served:
        has = ", ".join(served)
        msg = f"--kind {kind}: the server at {at} has the embeddings of {has}; give the address of another one"
        raise UsageError(msg)


def asked_pairs(given: list[str], file: Path | None) -> list[tuple[Any, Any]]:
    """Return the pairs of arguments LEFT:RIGHT, or of a file.

    Raises: UsageError for arguments that are no pairs, both, and a file without the two columns.
    """
    if file is None:
        ends = [tuple(one.split(":")) for one in given]
        if wrong := next((one for one, pair in zip(given, ends, strict=True) if len(pair) != 2 or "" in pair), None):
            msg = f"--pairs: expected LEFT:RIGHT, got {wrong!r}; ids with a colon can stand in a --pairs-file"
            raise UsageError(msg)
        return [(left, right) for left, right in ends]
    if given:
        msg = f"--pairs-file {file}: goes without arguments, got {given[0]!r}"
        raise UsageError(msg)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file, columns=["left", "right"])
    except (OSError, pa.ArrowException) as error:
        msg = f"--pairs-file {file}: {str(error).splitlines()[0]}"
        raise UsageError(msg) from error
    if table.column_names != ["left", "right"] or any(column.null_count for column in table.columns):
        msg = f"--pairs-file {file}: expected the columns left and right without nulls, got {table.column_names}"
        raise UsageError(msg)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def scores_of(client: Any, pairs: list[tuple[Any, Any]], min_epoch: int, kind: str | None) -> pa.Table:
    """Return the scores of pairs of ids as a user types them: numbers where the job has such ids.

    `kind`: LEFT,RIGHT, or that of both.

    Raises: BadRequestError
    """
    ends = [one for pair in pairs for one in pair]
    left, _, right = (kind or "").partition(",")
    kinds = None if kind is None else (left.strip(), right.strip() or left.strip())

    def ask(ids: list[Any]) -> pa.Table:
        found: pa.Table = client.score(list(zip(ids[::2], ids[1::2], strict=True)), min_epoch=min_epoch, kinds=kinds)
        return found

    return _as_typed(ends, ask)


def of_rows(table: pa.Table, ids: list[str]) -> tuple[str, bool]:
    """Return how many of the ids have rows, in words, and whether all have."""
    known = {str(one) for one in table["id"].to_pylist()}
    missing = [one for one in ids if one not in known]
    unknown = f"; no row: {', '.join(missing[:20])}" if missing else ""
    return f"{table.num_rows} of {len(ids)} vertices{unknown}", not missing


def of_scores(table: pa.Table) -> tuple[str, bool]:
    """Return how many of the pairs have scores, and of what, in words, and whether all have."""
    by_head = (table.schema.metadata or {}).get(b"scored_by") == b"link_head"
    by = "the model's link head" if by_head else "the dot product, as the model has no link head"
    known = table.num_rows - table["score"].null_count
    return f"{known} of {table.num_rows} pairs, by {by}", known == table.num_rows


def rows_of(client: Any, ids: list[str], min_epoch: int) -> pa.Table:
    """Return the rows of ids as a user types them: as numbers where the job has such ids, else as they are."""
    return _as_typed(ids, lambda of: client.get(of, min_epoch=min_epoch, logits=True))


def _as_typed(ids: list[Any], ask: Callable[[list[Any]], pa.Table]) -> pa.Table:
    """Ask with ids as numbers, if all look so; where the job has no such ids, with the ids as they are.

    Raises: BadRequestError as the second time, which says what is wrong.
    """
    from freshet.job.serving.bounds.asked_ids import as_stored
    from freshet.job.serving.protocol.errors import BadRequestError

    numbers = as_stored(ids, strings=False)
    if all(isinstance(one, int) for one in numbers):
        try:
            return ask(numbers)
        except BadRequestError:
            pass
    return ask(ids)


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
