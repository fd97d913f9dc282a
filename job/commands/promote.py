"""The options of `freshet promote`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from freshet.job.errors import EXIT_CHECK_FAILED, UsageError
from freshet.job.units import parse_duration

if TYPE_CHECKING:
    from freshet.job.serving.promotion import Promotion

SERVICE = Annotated[Path, typer.Argument(metavar="V", help="Service folder.", show_default=False)]
WAIT = Annotated[str, typer.Option(help="Maximum wait for the job to catch up, and for servers to change over.")]
FORCE = Annotated[
    bool,
    typer.Option(
        "--force", help="Also with a job that is behind the current one, or that readers of its topic can't follow."
    ),
]
CONFIG = Annotated[
    Path | None,
    typer.Option(help="YAML file with client properties under `kafka:`, for jobs with --embeddings-to."),
]


def promote(
    service: SERVICE,
    out: Annotated[Path, typer.Argument(metavar="O", help="Output folder of the job.", show_default=False)],
    wait: WAIT = "60s",
    force: FORCE = False,
    config: CONFIG = None,
) -> None:
    """Serve the embeddings of the job of O from now on, in the place of the current job of the service folder V.

    Makes V where it is no service yet. Servers of `freshet serve --service V` change over for all ids at once, as soon
    as the job has read as far as the current one in every partition. What they answer never goes back. Prints the new
    generation as a JSON line, with `readable`: whether all servers that run have changed over. Exits with 1 where they
    have not in time; the promotion stands.

    Where the job has --embeddings-to, the topic NAME-generations gets the name of its topic, for servers of
    `freshet serve --kafka kafka://HOST:PORT/NAME-generations`. Without brokers `published` is false, and the exit code
    is 1: repeat the command, which then writes it.

    [bold]Examples[/bold]

    [cyan]freshet promote V O[/cyan]
    [cyan]freshet serve --service V[/cyan]
    [cyan]freshet promote V O2[/cyan]
    """
    from freshet.job.options.config_file import load_properties
    from freshet.job.service.generations import Service
    from freshet.job.serving import promotion

    properties = load_properties(config)
    end(promotion.promote(Service(service), out, wait_s=seconds(wait), force=force, properties=properties))


def seconds(text: str, option: str = "--wait") -> float:
    """Return a duration in seconds.

    Raises: UsageError
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        msg = f"{option}: {error}"
        raise UsageError(msg) from error


def end(change: Promotion) -> None:
    """Print a change, and exit."""
    import orjson

    print(orjson.dumps(change.as_json()).decode(), flush=True)
    raise typer.Exit(0 if change.has_reached_all else EXIT_CHECK_FAILED)
