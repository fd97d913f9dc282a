"""The options of `freshet embed`; what it does is in `job.embed`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from freshet.job.errors import UsageError
from freshet.job.folder.layout import out_here
from freshet.job.local.malloc import reserve_little
from freshet.job.options.config_file import load_direction, load_flink, load_partitioning
from freshet.job.options.flink_keys import resolve
from freshet.job.options.layers import LayersFlag, take_layers
from freshet.job.options.runtime_options import is_address
from freshet.job.units import size_in_bytes
from freshet.partitioner.config import PLACEMENTS, STRATEGIES

ORDERS = ("given", "completion")
EVICTIONS = ("min-pending", "lru", "random", "next-use")
_STREAMING, _SERVING = "streaming", "serving"
_LOCAL, _FLINK = "local", "flink"
DEVICES = CPU, _, _ = "cpu", "cuda", "auto"

_Parts = Annotated[
    int | None,
    typer.Option(
        metavar="P", help="Streaming: --parts of the later job (default: 1); serving: with kinds or attributes."
    ),
]
_Partitioner = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"Streaming: --partitioner of the job: {', '.join(STRATEGIES)}.")
]
_SnapshotPlacement = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(PLACEMENTS), help="Streaming: the option of the later job; stream takes less memory."
    ),
]
_Define = Annotated[
    list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="Option of Flink, for --runtime flink; repeatable.")
]
_Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="--config of the later job: parts, partitioner and direction; a flag wins."),
]

_Order = Annotated[
    str, typer.Option(metavar="given|completion", help="Order of the vertices: the snapshot's, or ATLAS's score.")
]
_Eviction = Annotated[
    str, typer.Option(metavar="POLICY", help=f"Eviction policy of the hot store: {', '.join(EVICTIONS)}.")
]
_Device = Annotated[
    str,
    typer.Option(metavar="|".join(DEVICES), help="Serving: what computes the layers; cuda: torch, in chunks on a GPU."),
]
_DeviceMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Memory of the device that chunks may take (default: most of it); cpu: torch computes."
    ),
]

_Out = Annotated[
    Path,
    typer.Option(metavar="S2", help="Folder to write; new or empty.", show_default=False, callback=out_here),
]


def embed(
    model: Annotated[Path, typer.Option(metavar="M", help="Model folder.", show_default=False)],
    snapshot: Annotated[Path, typer.Option(metavar="S", help="Snapshot folder to embed.", show_default=False)],
    out: _Out,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Budget, such as 2GiB (default: half of the free memory).")
    ] = None,
    for_: Annotated[
        str,
        typer.Option(
            "--for", metavar="streaming|serving", help="Use of S2; serving: embeddings alone, of larger graphs."
        ),
    ] = _STREAMING,
    parts: _Parts = None,
    partitioner: _Partitioner = None,
    snapshot_placement: _SnapshotPlacement = None,
    config: _Config = None,
    passes: Annotated[
        str, typer.Option(metavar="auto|K", help="Passes over a layer's rows; auto: the cheapest number here.")
    ] = "auto",
    order: _Order = "given",
    eviction: _Eviction = "min-pending",
    undirected: Annotated[
        bool | None, typer.Option("--undirected/--directed", help="Mirror every edge.", show_default=False)
    ] = None,
    runtime: Annotated[
        str, typer.Option(metavar="local|flink", help="local, or flink: a batch job with parallel parts or passes.")
    ] = _LOCAL,
    parallelism: Annotated[
        int, typer.Option(metavar="N", min=1, help="Parts or passes in parallel on Flink; they share --memory.")
    ] = 1,
    cluster: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Flink cluster that sees the same folders.")
    ] = None,
    define: _Define = None,
    device: _Device = CPU,
    device_memory: _DeviceMemory = None,
    layers: LayersFlag = None,
) -> None:
    """Embed a whole graph on one machine, even if its features are many times larger than memory.

    S2 gets the snapshot's files, S2/embeddings (the change log's rows of epoch 0, in a folder for each kind where the
    model returns several), S2/base (the state of all operators) and snapshot.json. `freshet run --snapshot S2` starts
    from that state at once, with its --parts, --partitioner and direction; other values, or another model, are refused.
    The graph's topology is kept in memory, as in the job; features, rows and sums are not. With --for serving the
    topology stays on disk, too, and no state is written; --passes, --order and --eviction control that mode. Only for
    models with kinds of vertices, or layers that read attributes of edges, the topology is in memory in that mode, too,
    and --parts applies. The result's bits do not depend on --memory. The command reports the memory and disk that it
    needs before it starts. Repeat it to continue after a kill or a full disk. Prints a JSON line.

    With --runtime flink it is a PyFlink batch job. Flink distributes the parts of each operator, or with --for serving
    the passes of each layer, to --parallelism processes, on this machine or in --cluster, and retries failed ones. The
    bits are the same.

    With --for serving, --device cuda computes the layers by torch on a GPU, in chunks of vertices that fit its memory;
    the topology is in the memory of the host. auto takes cuda if there is a GPU with enough memory, else cpu, and says
    which. Rows equal those of the engine to 1e-6 of their terms. --device cpu --device-memory SIZE is the same pass on
    the processor.

    [bold]Examples[/bold]

    [cyan]freshet embed --model M --snapshot S --out S2 --memory 2GiB[/cyan]

    [cyan]freshet embed --model M --snapshot S --out S2 --parts 4 --partitioner hdrf[/cyan]
    for a job with these options.

    [cyan]freshet embed --model M --snapshot S --out S2 --parts 4 --runtime flink --parallelism 4[/cyan]
    four parts at a time.

    [cyan]freshet embed --model M --snapshot S --out S2 --for serving --memory 1GiB --passes 1 --order completion[/cyan]
    one pass per layer, with a cold store, over vertices in the order in which they finish soonest.

    [cyan]freshet embed --model M --snapshot S --out S2 --for serving --memory 4GiB --runtime flink --parallelism 4
    [/cyan]
    four passes of a layer at a time, each for a range of the vertices, with 1 GiB.

    [cyan]freshet embed --model M --snapshot S --out S2 --for serving --device auto[/cyan]
    on the GPU, if there is one.
    """
    _check_choices(for_, order, eviction, runtime, device)
    given = _passes(passes)
    placing = {"parts": parts, "partitioner": partitioner, "snapshot_placement": snapshot_placement}
    placed = load_partitioning(placing, config)
    _check_spread(for_, runtime, parallelism, cluster, given)
    _check_mode(for_, given, order, eviction)
    flink = _flink_options(define, config, runtime)
    budget, of_device = _memory(memory), _memory(device_memory, "--device-memory")
    reserve_little()
    _check_inputs(model, snapshot, layers)
    from freshet.job.embed.batch_job import Spread
    from freshet.job.embed.runner import EmbedOptions
    from freshet.job.embed.runner import embed as run

    spread = Spread(parallelism, cluster, flink) if runtime == _FLINK else None
    mirrored = load_direction(undirected, config)
    options = EmbedOptions(
        model, snapshot, out, budget, given, eviction, order, mirrored, for_, placed, spread, device, of_device
    )
    raise typer.Exit(run(options))


def _flink_options(define: list[str] | None, config: Path | None, runtime: str) -> dict[str, str]:
    if define and runtime == _LOCAL:
        msg = "-D: goes with --runtime flink; give that, or leave it out"
        raise UsageError(msg)
    return resolve(load_flink(config, define or ())) if runtime == _FLINK else {}


def _check_choices(for_: str, order: str, eviction: str, runtime: str, device: str) -> None:
    for option, given, expected in (
        ("--for", for_, (_STREAMING, _SERVING)),
        ("--order", order, ORDERS),
        ("--eviction", eviction, EVICTIONS),
        ("--runtime", runtime, (_LOCAL, _FLINK)),
        ("--device", device, DEVICES),
    ):
        if given not in expected:
            msg = f"{option}: got {given!r}, expected {', '.join(expected)}"
            raise UsageError(msg)


def _check_mode(for_: str, passes: int | None, order: str, eviction: str) -> None:
    if for_ == _STREAMING and (passes is not None or order != ORDERS[0] or eviction != EVICTIONS[0]):
        msg = "--passes, --order, --eviction: go with --for serving; leave them out, or give that"
        raise UsageError(msg)


def _check_inputs(model: Path, snapshot: Path, layers: list[str] | None) -> None:
    from freshet.job.run.preflight import check_model, check_snapshot

    check_model(model)
    check_snapshot(snapshot)
    take_layers(layers)


def _check_spread(for_: str, runtime: str, parallelism: int, cluster: str | None, passes: int | None) -> None:
    if runtime == _LOCAL and (parallelism > 1 or cluster is not None):
        msg = "--parallelism, --cluster: go with --runtime flink; give that, or leave them out"
        raise UsageError(msg)
    if cluster is not None and not is_address(cluster):
        msg = f"--cluster: got {cluster!r}, expected HOST:PORT, such as localhost:8081"
        raise UsageError(msg)
    if for_ == _SERVING and passes is not None and parallelism > passes:
        msg = f"--parallelism {parallelism}: more than --passes {passes}; a pass is made by one process"
        raise UsageError(msg)


def _passes(given: str) -> int | None:
    if given == "auto":
        return None
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        msg = f"--passes: got {given!r}, expected auto or a number from 1 on"
        raise UsageError(msg)
    return int(given)


def _memory(given: str | None, option: str = "--memory") -> int | None:
    if given is None:
        return None
    try:
        return size_in_bytes(given)
    except ValueError as error:
        msg = f"{option}: {error}"
        raise UsageError(msg) from None
