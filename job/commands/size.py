"""`freshet size`: memory and disk that a job will need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from freshet.job.options.input_options import IdType
from freshet.job.options.layers import LayersFlag, take_layers
from freshet.job.options.output_options import ASKED, EAGER, EmbeddingsMade

MachinesFlag = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Also say what each of N machines takes and sends, and which limits come first.",
        show_default=False,
    ),
]
PipelineFlag = Annotated[
    int | None,
    typer.Option(metavar="K", help="With --machines: --pipeline of the job, as in run.", show_default=False),
]
RateFlag = Annotated[
    float | None,
    typer.Option(metavar="N", help="With --machines: changes of edges (default: 1000).", show_default=False),
]
ReplicasFlag = Annotated[
    float | None,
    typer.Option(
        metavar="R",
        help="With --machines: rows of a vertex over all parts, as scripts/tools/partition.py finds them (default: "
        "those of edges between ends at random, which no graph exceeds by much).",
        show_default=False,
    ),
]
DiskFlag = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="With --machines: bytes/s of a disk (default: 500MB).", show_default=False),
]
NetworkFlag = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="With --machines: bytes/s of a machine's network (default: 1250MB).",
        show_default=False,
    ),
]
PartsFlag = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        help="--parts of the job (default: 1, with --machines one for each task of a layer).",
        show_default=False,
    ),
]
EdgeKeyFlag = Annotated[
    IdType | None,
    typer.Option(
        help="Kind of the keys of edges, where the job has --edge-key or its snapshot a column key; strings are "
        "taken as 16 bytes long.",
        show_default=False,
    ),
]
EmbeddingsFlag = Annotated[EmbeddingsMade, typer.Option(help="--embeddings of the job, as in run.")]


def size(
    model: Annotated[Path, typer.Argument(metavar="M", help="Model folder.", show_default=False)],
    vertices: Annotated[
        list[str], typer.Option(metavar="N|KIND=N", help="Live vertices, of each kind.", show_default=False)
    ],
    edges: Annotated[
        list[str], typer.Option(metavar="N|RELATION=N", help="Live edges, of each relation.", show_default=False)
    ],
    layers: LayersFlag = None,
    parts: PartsFlag = None,
    id_type: Annotated[IdType, typer.Option(help="Kind of vertex ids; strings are taken as 16 bytes long.")] = "int",
    undirected: Annotated[bool, typer.Option("--undirected", help="Every edge is mirrored.")] = False,
    edge_key: EdgeKeyFlag = None,
    embeddings: EmbeddingsFlag = EAGER,
    machines: MachinesFlag = None,
    pipeline: PipelineFlag = None,
    events_per_s: RateFlag = None,
    replicas: ReplicasFlag = None,
    disk: DiskFlag = None,
    network: NetworkFlag = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line.")] = False,
) -> None:
    """Estimate the memory and disk of a job by the size of its graph.

    A smaller graph of the same shape goes through the job's own operators, and their tables are counted; it takes some
    seconds, and nothing is written. In measured jobs memory and disk were within 20% (scripts/bench/size.py).

    For models with kinds give the vertices of each kind and the edges of each relation, by its type or as
    SOURCE,TYPE,TARGET where several have the type. Leave out relations that follow others, as rev_TYPE does. Edges that
    are given as a number alone are dealt evenly to all relations. Change log and server are those of all returned
    kinds.

    With --embeddings asked there is no last layer in the job; the server's own memory is that of the graph of which it
    computes rows, and of the rows of further layers that what-if requests have it keep.

    With --machines the operators run as on N machines with one process each, divided as --parallelism N divides them,
    and what they send each other is counted while edges are deleted and added: bytes by layer, memory and state of each
    machine, time of a checkpoint and of a recovery, and the limits, the nearest first (docs/design/scale.md).

    [bold]Examples[/bold]

    [cyan]freshet size M --vertices 1000000 --edges 12000000[/cyan]

    [cyan]freshet size M --vertices 1000000 --edges 12000000 --parts 4 --json[/cyan]

    [cyan]freshet size M --vertices 111000000 --edges 1600000000 --machines 16 --events-per-s 100000[/cyan]

    [cyan]freshet size M --vertices user=1000000 --vertices item=50000 --edges buys=8000000 --edges user,rates,item=9000
    [/cyan]
    """
    from freshet.job.run.model import inner_of
    from freshet.job.run.preflight import check_model
    from freshet.job.size.counts import graph_size
    from freshet.job.size.estimate import estimate, page
    from freshet.job.size.machines import division, rates_of
    from freshet.job.size.machines_page import page_of
    from freshet.job.size.on_machines import on_machines
    from freshet.operators.factory import load_plan

    check_model(model)
    take_layers(layers)
    folder, is_asked = model.absolute(), embeddings == ASKED
    plan = load_plan(str(folder))
    plan = inner_of(plan) if is_asked else plan
    rates = rates_of(
        machines, events_per_s=events_per_s, disk=disk, network=network, replicas=replicas, pipeline=pipeline
    )
    divided = None if machines is None else division(machines, len(plan.layers), parts or 0, pipeline)
    parts = parts or (1 if divided is None else divided[1])
    shape = graph_size(plan, vertices, edges, parts, id_type, undirected=undirected, edge_keys=edge_key or "")
    shape = shape._replace(is_asked=is_asked)
    found = estimate(folder, shape)
    cluster = None if divided is None else on_machines(folder, plan, shape, divided, rates, replicas)
    if as_json:
        of_machines = {} if cluster is None else {"machines": cluster.as_json()}
        print(orjson.dumps(found.as_json() | of_machines).decode(), flush=True)
    else:
        print(
            page(found, is_asked=is_asked),
            *(() if cluster is None else ("", page_of(cluster, rates))),
            sep="\n",
            flush=True,
        )
