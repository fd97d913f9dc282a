"""`freshet size`: memory and disk that a job will need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from freshet.job.options.input_options import IdType


def size(
    model: Annotated[Path, typer.Argument(metavar="M", help="Model folder.", show_default=False)],
    vertices: Annotated[int, typer.Option(min=1, help="Live vertices.", show_default=False)],
    edges: Annotated[int, typer.Option(min=0, help="Live edges.", show_default=False)],
    parts: Annotated[int, typer.Option(min=1, max=1024, help="--parts of the job.")] = 1,
    id_type: Annotated[IdType, typer.Option(help="Kind of vertex ids; strings are taken as 16 bytes long.")] = "int",
    undirected: Annotated[bool, typer.Option("--undirected", help="Every edge is mirrored.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line.")] = False,
) -> None:
    """Estimate the memory and disk of a job by the size of its graph.

    A smaller graph of the same shape goes through the job's own operators, and their tables are counted; it takes some
    seconds, and nothing is written. In measured jobs memory and disk were within 20% (scripts/bench/size.py).

    [bold]Examples[/bold]

    [cyan]freshet size M --vertices 1000000 --edges 12000000[/cyan]

    [cyan]freshet size M --vertices 1000000 --edges 12000000 --parts 4 --json[/cyan]
    """
    from freshet.job.run.preflight import check_model
    from freshet.job.size.estimate import estimate
    from freshet.job.size.miniature import GraphSize
    from freshet.job.size.page import page

    check_model(model)
    found = estimate(model.absolute(), GraphSize(vertices, edges * (1 + undirected), parts, id_type))
    if as_json:
        print(orjson.dumps(found.as_json()).decode(), flush=True)
    else:
        print(page(found), flush=True)
