"""The options of `freshet watch`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from freshet.job.commands.query import KIND_HELP, TLS_ROOTS_HELP, check_kind
from freshet.job.errors import UsageError
from freshet.job.folder.layout import TABLES


def watch(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Vertices to watch (default: all).")
    ] = None,
    at: Annotated[
        str, typer.Option(help="Folder O/tables of a job on this machine, or HOST:PORT of its server there.")
    ] = "127.0.0.1:47470",
    kind: Annotated[str | None, typer.Option(help=KIND_HELP)] = None,
    tls_roots: Annotated[Path | None, typer.Option(help=TLS_ROOTS_HELP)] = None,
    class_changes: Annotated[
        bool, typer.Option("--class-changes", help="Only vertices whose predicted class changed.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs after which to end.")] = None,
) -> None:
    """Print changes of embeddings as they arrive, one JSON object per line, until the job ends or Ctrl-C.

    With --class-changes each line has the class and the previous one, by the model's head, or by the embedding's
    largest entry if the model has no head.

    [bold]Examples[/bold]

    [cyan]freshet watch --at O/tables --class-changes[/cyan]
    [cyan]freshet watch 7 9[/cyan]
    """
    import orjson

    from freshet.job.machine.processes import stop_signals
    from freshet.job.serving.feeds.fed_job import FedJob
    from freshet.job.serving.tables.served_job import await_job
    from freshet.job.serving.tables.watching import Classes, Watch, changes

    tables = _tables(at, tls_roots, kind)
    if FedJob.recorded(tables) is not None:
        msg = f"--at {at}: that server feeds from elsewhere; watch goes by the tails of the job, on the job's machine"
        raise UsageError(msg)
    job, wanted = await_job(tables, 10.0, kind, "--at"), set(ids or ())

    def lost(first: int, last: int) -> None:
        print(f"epochs {first} to {last} came and went unseen; they are in {job.log.embeddings}", file=sys.stderr)

    following = Watch(job, lost)
    classes = Classes(job, following.epoch) if class_changes else None
    print(f"watching from epoch {following.epoch + 1} on", file=sys.stderr, flush=True)
    with stop_signals() as caught:
        for number, (epoch, parts) in enumerate(following.epochs(lambda: bool(caught)), 1):
            for change, row in changes(epoch, parts, job.strings):
                if wanted and str(change["id"]) not in wanted:
                    continue
                line = classes.changed(change, row) if classes is not None else change
                if line is not None:
                    if row is not None and classes is None:
                        line["embedding"] = row.tolist()
                    print(orjson.dumps(line).decode(), flush=True)
            if epochs is not None and number >= epochs:
                break
    following.close()


def _tables(at: str, tls_roots: Path | None, kind: str | None) -> Path:
    """The folder of the tails; a server of this machine says where they are."""
    path = Path(at)
    if path.is_dir() or TABLES in (path.name, path.parent.name):  # one that a job is about to make
        return path.absolute()
    from freshet.job.serving.clients.asked import TOKEN_VARIABLE
    from freshet.job.serving.clients.client import EmbeddingClient
    from freshet.job.serving.protocol.errors import NotReadyError

    try:
        with EmbeddingClient(at, token=os.environ.get(TOKEN_VARIABLE), tls_roots=tls_roots) as client:
            health = client.health()
            if kind is not None:
                check_kind(health, kind, at)
            of_server = health.get("tables")
    except NotReadyError as error:
        msg = f"--at {at}: {error}; give the folder O/tables of a job on this machine, or HOST:PORT of its server"
        raise UsageError(msg) from error
    if not of_server or not Path(of_server).is_dir():
        msg = f"--at {at}: the job runs on another machine; run `freshet watch --at O/tables` there"
        raise UsageError(msg)
    return Path(of_server)
