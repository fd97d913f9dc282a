"""The options of `freshet rollback`."""

from __future__ import annotations

from typing import Annotated

import typer

from freshet.job.commands.promote import CONFIG, FORCE, SERVICE, WAIT, end, seconds


def rollback(
    service: SERVICE,
    to: Annotated[
        int | None, typer.Option(help="Generation whose job serves again (default: the last other one).", min=0)
    ] = None,
    wait: WAIT = "60s",
    force: FORCE = False,
    config: CONFIG = None,
) -> None:
    """Serve the embeddings of an earlier job of the service folder V again, as a new generation.

    The job has to run still, or have read as far as the current one. Prints and exits as `freshet promote`.

    [bold]Examples[/bold]

    [cyan]freshet rollback V[/cyan]
    [cyan]freshet rollback --to 3 V[/cyan]
    """
    from freshet.job.options.config_file import load_properties
    from freshet.job.service.generations import Service
    from freshet.job.serving import promotion

    properties = load_properties(config)
    end(promotion.rollback(Service(service), to, wait_s=seconds(wait), force=force, properties=properties))
