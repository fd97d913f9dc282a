"""The options of `freshet watch`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from freshet.job.commands.query import KIND_HELP, TLS_ROOTS_HELP, check_kind
from freshet.job.errors import UsageError
from freshet.job.folder.layout import TABLES

if TYPE_CHECKING:
    import numpy as np

    from freshet.job.service.generations import Generation
    from freshet.job.serving.feeds.service_watch import ServiceWatch
    from freshet.job.serving.tables.served_job import ServedJob

_SERVER = "127.0.0.1:47470"


def watch(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[V] [ID...]", help="Vertices to watch (default: all).")
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            help="Folder O/tables of a job on this machine, a service folder V, or HOST:PORT of their server there."
        ),
    ] = _SERVER,
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

    Of a service folder V the changes are those of its current job. Where another one takes over, a line has its
    generation and model, and the changes of that job follow.

    [bold]Examples[/bold]

    [cyan]freshet watch --at O/tables --class-changes[/cyan]
    [cyan]freshet watch 7 9[/cyan]
    [cyan]freshet watch V[/cyan]
    """
    from freshet.job.machine.processes import stop_signals
    from freshet.job.service.generations import Service
    from freshet.job.serving.feeds.fed_job import FedJob

    names = list(ids or ())
    if names and at == _SERVER and Service.at(Path(names[0])) is not None:
        at = names.pop(0)
    tables = _tables(at, tls_roots, kind)
    if FedJob.recorded(tables) is not None:
        msg = f"--at {at}: that server feeds from elsewhere; watch goes by the tails of the job, on the job's machine"
        raise UsageError(msg)
    with stop_signals() as caught:
        printing = _Printing(tables, kind, set(names), class_changes)
        printing.run(lambda: bool(caught), epochs)


class _Printing:
    """Lines of what is watched."""

    def __init__(self, tables: Path, kind: str | None, wanted: set[str], class_changes: bool) -> None:
        from freshet.job.folder.returned_kinds import refuse_inner
        from freshet.job.service.generations import Service
        from freshet.job.serving.tables.served_job import await_job
        from freshet.job.serving.tables.watching import Watch

        self._wanted, self._class_changes = wanted, class_changes
        self._following: Watch | ServiceWatch
        if (found := Service.at(tables)) is None:
            job = await_job(tables, 10.0, kind, "--at")
            refuse_inner(job.out, "watch")
            self._following = Watch(job, partial(_lost, job))
        else:
            from freshet.job.serving.feeds.service_feed import kind_of
            from freshet.job.serving.feeds.service_watch import ServiceWatch

            service, own = found
            self._following = ServiceWatch(service, kind_of(service, kind or own), _lost, self._took_over)
        self._begin()

    def run(self, until: Callable[[], bool], most: int | None) -> None:
        """Print changes until `until` returns True, the job ends, or `most` epochs were seen."""
        from freshet.job.serving.tables.watching import changes

        following = self._following
        for number, (epoch, parts) in enumerate(following.epochs(until), 1):
            for change, row in changes(following.job.base + epoch, parts, following.job.strings):
                if not self._wanted or str(change["id"]) in self._wanted:
                    self._print(change, row)
            if number == most:
                break
        following.close()

    def _print(self, change: dict[str, Any], row: np.ndarray | None) -> None:
        if self._classes is not None:
            line = self._classes.changed(change, row)
        else:
            line = change if row is None else change | {"embedding": row.tolist()}
        if line is not None:
            print_line(line)

    def _begin(self) -> None:
        from freshet.job.serving.tables.watching import Classes

        job, epoch = self._following.job, self._following.epoch
        self._classes = Classes(job, epoch) if self._class_changes else None
        print(f"watching from epoch {job.base + epoch + 1} on", file=sys.stderr, flush=True)

    def _took_over(self, generation: Generation) -> None:
        fields = generation.model_dump(by_alias=True)
        print_line({name: fields[name] for name in ("generation", "model")} | fields)
        self._begin()


def print_line(line: dict[str, Any]) -> None:
    """Print a change as a JSON line, at once."""
    import orjson

    print(orjson.dumps(line).decode(), flush=True)


def _lost(job: ServedJob, first: int, last: int) -> None:
    served = f" (served as {job.base + first} to {job.base + last})" if job.base else ""
    print(
        f"epochs {first} to {last}{served} came and went unseen; they are in {job.log.embeddings}",
        file=sys.stderr,
    )


def _tables(at: str, tls_roots: Path | None, kind: str | None) -> Path:
    """The folder of the tails; a server of this machine says where they are."""
    path = Path(at)
    if path.is_dir() or TABLES in (path.name, path.parent.name):  # one that a job is about to make
        return path.absolute()
    from freshet.job.serving.clients.asked import TOKEN_VARIABLE
    from freshet.job.serving.clients.client import EmbeddingClient
    from freshet.job.serving.protocol.errors import NotReadyError
    from freshet.job.serving.protocol.token_values import token_to_send

    try:
        token = token_to_send(os.environ.get(TOKEN_VARIABLE))
        with EmbeddingClient(at, token=token, tls_roots=tls_roots) as client:
            health = client.health()
            if kind is not None:
                check_kind(health, kind, at)
            of_server = health.get("kinds", {}).get(kind, health).get("tables")
    except NotReadyError as error:
        msg = f"--at {at}: {error}; give the folder O/tables of a job on this machine, or HOST:PORT of its server"
        raise UsageError(msg) from error
    if not of_server or not Path(of_server).is_dir():
        msg = f"--at {at}: the job runs on another machine; run `freshet watch --at O/tables` there"
        raise UsageError(msg)
    return Path(of_server)
