"""The options of `freshet embed`; what it does is in `job.embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from job.errors import UsageError
from job.units import size_in_bytes

ORDERS = ("given", "completion")
EVICTIONS = ("min-pending", "lru", "random", "next-use")
_SERVING = "serving"


def embed(
    model: Annotated[Path, typer.Option(metavar="M", help="Model folder.", show_default=False)],
    snapshot: Annotated[Path, typer.Option(metavar="S", help="Snapshot folder to embed.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="S2", help="Folder to write; new or empty.", show_default=False)],
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Budget, such as 2GiB (default: half of the free memory).")
    ] = None,
    for_: Annotated[
        str, typer.Option("--for", metavar="serving", help="What the embeddings are for; serving alone so far.")
    ] = _SERVING,
    passes: Annotated[
        str, typer.Option(metavar="auto|K", help="Times that a layer's rows are read; auto: what is cheapest here.")
    ] = "auto",
    order: Annotated[
        str, typer.Option(metavar="given|completion", help="Order of the vertices: the snapshot's, or ATLAS's score.")
    ] = "given",
    eviction: Annotated[
        str, typer.Option(metavar="POLICY", help=f"Who leaves a full hot store: {', '.join(EVICTIONS)}.")
    ] = "min-pending",
    undirected: Annotated[
        bool | None, typer.Option("--undirected/--directed", help="Mirror every edge.", show_default=False)
    ] = None,
) -> None:
    """Embed a whole graph on one machine, also one whose features are many times its memory.

    S2 gets the snapshot's files, S2/embeddings (the change log's rows of epoch 0), and snapshot.json with the model's
    SHA-256: `freshet run` refuses S2 with another model. Sources are read once a layer, in order, and broadcast to
    their destinations, of which the budget holds some; the rest waits on the disk. The bits of the embeddings do not
    depend on --memory, --passes or --eviction. What memory and disk it will need is said before it starts. The same
    command again goes on after a kill or a full disk, at the last finished layer or pass. Prints a JSON line.

    [bold]Examples[/bold]

    [cyan]freshet embed --model M --snapshot S --out S2 --memory 2GiB[/cyan]

    [cyan]freshet embed --model M --snapshot S --out S2 --memory 1GiB --passes 1 --order completion[/cyan]
    one pass a layer, with a cold store, over vertices in the order in which they finish soonest.
    """
    if for_ != _SERVING:
        msg = f"--for: got {for_!r}, expected serving; what a streaming job starts from is not in this version"
        raise UsageError(msg)
    _one_of("--order", order, ORDERS)
    _one_of("--eviction", eviction, EVICTIONS)
    given = _passes(passes)
    budget = _memory(memory)
    from job.run.preflight import check_model, check_snapshot

    check_model(model)
    check_snapshot(snapshot)
    from job.embed.runner import EmbedOptions
    from job.embed.runner import embed as run

    raise typer.Exit(run(EmbedOptions(model, snapshot, out, budget, given, eviction, order, undirected)))


def _one_of(option: str, given: str, expected: tuple[str, ...]) -> None:
    if given not in expected:
        msg = f"{option}: got {given!r}, expected {', '.join(expected)}"
        raise UsageError(msg)


def _passes(given: str) -> int | None:
    if given == "auto":
        return None
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        msg = f"--passes: got {given!r}, expected auto or a number from 1 on"
        raise UsageError(msg)
    return int(given)


def _memory(given: str | None) -> int | None:
    if given is None:
        return None
    try:
        return size_in_bytes(given)
    except ValueError as error:
        msg = f"--memory: {error}"
        raise UsageError(msg) from None
