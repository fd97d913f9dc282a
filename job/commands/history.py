"""The options of `freshet history`; what it does is in `job.history`."""

from __future__ import annotations

import sys
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from freshet.job.commands.query import KIND_HELP, Format, print_table
from freshet.job.errors import EXIT_CHECK_FAILED, UsageError
from freshet.job.folder import layout
from freshet.job.service.generations import GENERATION, Service

if TYPE_CHECKING:
    from freshet.job.history.as_of import Joined


def history(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[O] ID...", help="Vertices.", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "--at",
            "--tables",
            metavar="O",
            help="Output folder of the job, or a service's (default: here).",
        ),
    ] = None,
    generation: Annotated[
        int | None,
        typer.Option(min=0, help="Of a service folder: the generation whose job is asked (default: the current one)."),
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="Output as a table, JSON Lines, or an Arrow stream.")] = (
        Format.TABLE
    ),
    kind: Annotated[str | None, typer.Option(help=KIND_HELP)] = None,
    as_of: Annotated[
        Path | None,
        typer.Option(metavar="Q.parquet", help="Questions, in columns id and ts: the embeddings as they were then."),
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="R.parquet", help="With --as-of: file to write.")] = None,
    ts_unit: Annotated[
        Literal["s", "ms", "us", "ns"], typer.Option(help="With --as-of: unit of integers in ts.")
    ] = "ms",
    by: Annotated[
        Literal["event", "arrival"] | None,
        typer.Option(
            help="With --as-of: time of an epoch, by the ts of its events or by their arrival (default: event where "
            "any has a ts)."
        ),
    ] = None,
) -> None:
    """Print the past rows of vertices from the change log, or join embeddings as they were at given times.

    Each row has its epoch, and when the events of that came (arrived_ms) and were (event_ts). The job may run; epochs
    are there once they are visible in O/embeddings. What `freshet compact` has removed is not known; stderr says from
    which epoch on all rows are there. Exits with 1 when one of the ids has no row.

    With --as-of, the rows of Q get the columns epoch and embedding: the row of the last epoch whose time (the largest
    so far) is not later than ts (since 1970 in --ts-unit, or a timestamp); null where there was no vertex or the log
    does not say. Prints a JSON line (rows, found, absent, unknown, by, epoch, known_from).

    Of a service folder V the log is that of one job, the current one or that of --generation, and its epochs are as
    they are served; stderr and the JSON line have the generation.

    [bold]Examples[/bold]

    [cyan]freshet history 7 --out O[/cyan]
    [cyan]freshet history O 7 9 --format json[/cyan]
    [cyan]freshet history --as-of labels.parquet --to training.parquet --out O[/cyan]
    """
    names = list(ids or [])
    folder = _folder(out, names, least=0 if as_of else 1)
    if as_of is not None:
        if names or to is None:
            msg = "history: --as-of goes with --to R.parquet, and without ids"
            raise UsageError(msg)
        _join(folder, as_of, to, dict(kind=kind, by=by, ts_unit=ts_unit, generation=generation))
        return
    if to is not None or by is not None:
        msg = f"history: {'--to' if to is not None else '--by'} goes with --as-of Q.parquet"
        raise UsageError(msg)
    if not names:
        msg = "history: give the ids of vertices, or --as-of Q.parquet"
        raise UsageError(msg)
    raise typer.Exit(_show(folder, names, format_, kind, generation))


def _folder(given: Path | None, names: list[str], least: int) -> Path:
    """The job's folder: the one of the option, or among the names, which it leaves; or the current one."""
    if given is None and len(names) > least:
        found = next((name for name in (names[0], names[-1]) if _holds_log(Path(name))), None)
        if found is not None:
            names.remove(found)
            given = Path(found)
    folder = given or Path()
    if folder.name == layout.TABLES and not _holds_log(folder):
        folder = folder.parent
    if given is None and not _holds_log(folder):
        msg = "history: there is no job here; give its output folder: freshet history ID... --out O"
        raise UsageError(msg)
    return folder


def _holds_log(folder: Path) -> bool:
    return any((folder / one).is_dir() for one in (layout.EMBEDDINGS, layout.INNER)) or Service.at(folder) is not None


def _show(folder: Path, names: list[str], format_: Format, kind: str | None, generation: int | None) -> int:
    from freshet.job.history.past_rows import history as past_rows

    table = past_rows(folder, names, kind=kind, generation=generation)
    print_table(table, format_)
    known = {str(one) for one in table["id"].to_pylist()}
    missing = [one for one in dict.fromkeys(names) if one not in known]
    facts = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
    lacking = f"; no row: {', '.join(missing[:20])}" if missing else ""
    since, number = int(facts["known_from"]), facts.get("generation")
    removed = f"; compaction has removed rows before epoch {since}" if since > int(number or 0) * GENERATION else ""
    of_service = "" if number is None else f"generation {number}, "
    print(
        f"{of_service}epoch {facts['epoch']}: {table.num_rows} rows of {len(known)} vertices{lacking}{removed}",
        file=sys.stderr,
    )
    return EXIT_CHECK_FAILED if missing else 0


def _join(folder: Path, questions: Path, to: Path, asked: dict[str, Any]) -> None:
    import orjson
    import pyarrow.parquet as pq

    from freshet.files.whole import remove_left_behind
    from freshet.job.history.as_of import doubts_of, join_as_of
    from freshet.operators.sink.direct_file import replace_whole

    if not to.absolute().parent.is_dir():
        msg = f"--to {to}: there is no folder {to.absolute().parent}"
        raise UsageError(msg)
    joined: Joined = join_as_of(folder, questions, **asked)
    remove_left_behind(to.absolute().parent, f"{escape(to.name)}.*")  # of a command that was killed
    replace_whole(to.absolute(), lambda sink: pq.write_table(joined.table, sink))
    for line in doubts_of(joined):
        print(f"freshet: {line}", file=sys.stderr)
    facts = {name: getattr(joined, name) for name in ("found", "absent", "unknown", "by", "epoch", "known_from")}
    of_service = {} if joined.generation is None else {"generation": joined.generation}
    print(orjson.dumps({"rows": joined.table.num_rows} | facts | of_service).decode(), flush=True)
