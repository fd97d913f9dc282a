"""`freshet size`: memory and disk that a job will need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from freshet.job.options.input_options import IdType
from freshet.job.options.layers import LayersFlag, take_layers


def size(
    model: Annotated[Path, typer.Argument(metavar="M", help="Model folder.", show_default=False)],
    vertices: Annotated[
        list[str], typer.Option(metavar="N|KIND=N", help="Live vertices, of each kind.", show_default=False)
    ],
    edges: Annotated[
        list[str], typer.Option(metavar="N|RELATION=N", help="Live edges, of each relation.", show_default=False)
    ],
    layers: LayersFlag = None,
    parts: Annotated[int, typer.Option(min=1, max=1024, help="--parts of the job.")] = 1,
    id_type: Annotated[IdType, typer.Option(help="Kind of vertex ids; strings are taken as 16 bytes long.")] = "int",
    undirected: Annotated[bool, typer.Option("--undirected", help="Every edge is mirrored.")] = False,
    edge_key: Annotated[
        IdType | None,
        typer.Option(
            help="Kind of the keys of edges, where the job has --edge-key or its snapshot a column key; strings are "
            "taken as 16 bytes long.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line.")] = False,
) -> None:
    """Estimate the memory and disk of a job by the size of its graph.

    A smaller graph of the same shape goes through the job's own operators, and their tables are counted; it takes some
    seconds, and nothing is written. In measured jobs memory and disk were within 20% (scripts/bench/size.py).

    For models with kinds give the vertices of each kind and the edges of each relation, by its type or as
    SOURCE,TYPE,TARGET where several have the type. Leave out relations that follow others, as rev_TYPE does. Edges that
    are given as a number alone are dealt evenly to all relations. Change log and server are those of all returned
    kinds.

    [bold]Examples[/bold]

    [cyan]freshet size M --vertices 1000000 --edges 12000000[/cyan]

    [cyan]freshet size M --vertices 1000000 --edges 12000000 --parts 4 --json[/cyan]

    [cyan]freshet size M --vertices user=1000000 --vertices item=50000 --edges buys=8000000 --edges user,rates,item=9000
    [/cyan]
    """
    from freshet.job.run.preflight import check_model
    from freshet.job.size.counts import graph_size
    from freshet.job.size.estimate import estimate, page
    from freshet.operators.factory import load_plan

    check_model(model)
    take_layers(layers)
    plan = load_plan(str(model.absolute()))
    shape = graph_size(plan, vertices, edges, parts, id_type, undirected=undirected, edge_keys=edge_key or "")
    found = estimate(model.absolute(), shape)
    if as_json:
        print(orjson.dumps(found.as_json()).decode(), flush=True)
    else:
        print(page(found), flush=True)
