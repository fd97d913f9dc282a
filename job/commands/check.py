"""The options of `freshet check`; what it does is in `job.results.check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.local.malloc import reserve_little
from freshet.job.options.input_options import IdType
from freshet.job.options.layers import LayersFlag, take_layers


def check(
    model: Annotated[Path | None, typer.Option(help="Model folder of the run.")] = None,
    events: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Event files and topics of the run, in its order; repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder of the run.")] = None,
    snapshot: Annotated[Path | None, typer.Option(help="Snapshot that the run started from, if any.")] = None,
    oracle: Annotated[
        Literal["pyg", "own"] | None,
        typer.Option(help="Implementation of the full pass (default: PyTorch Geometric if installed and if it fits)."),
    ] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Maximum error, relative to the scale of the value.")] = 1e-4,
    every: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Also check the state after every N-th epoch (default: the last only)."),
    ] = None,
    undirected: Annotated[
        bool | None, typer.Option("--undirected/--directed", help="Mirror every edge (default: as the run did).")
    ] = None,
    id_type: Annotated[IdType | None, typer.Option(help="Kind of vertex ids (default: that of the run).")] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Kind of vertices to compare, of several that the model returns (default: all of them)."),
    ] = None,
    layers: LayersFlag = None,
    config: Annotated[
        Path | None,
        typer.Option(help="The run's YAML file, for model, events, snapshot, out and kafka; a flag wins."),
    ] = None,
) -> None:
    """Compare a run's embeddings with a full pass in float64 over its graph, rebuilt from its input.

    The input is read by code that the job does not use. An error is relative to the scale of its value: the magnitude
    of the summed terms. Epochs must be complete and match the input's events, and run.json, status and rows must agree.

    Prints one JSON line (vertices, max_abs_error, max_rel_error, worst, missing, extra, nan, faults, ...; by_kind where
    the model returns several kinds). Exits with 1 when an error exceeds the tolerance, an embedding is missing or
    superfluous, or there is another fault.

    [bold]Examples[/bold]

    [cyan]freshet check --model M --snapshot S --events changes.jsonl --out O[/cyan]

    [cyan]freshet check --model M --events changes.jsonl --out O --every 100[/cyan]
    also checks the state after every 100th epoch.

    [cyan]freshet check --config job.yaml[/cyan]
    checks the run of that file.
    """
    reserve_little()
    from freshet.job.options.config_file import load_inputs, load_properties
    from freshet.job.run.preflight import check_model, check_snapshot, event_files

    given = load_inputs({"model": model, "events": events, "snapshot": snapshot, "out": out}, config)
    check_model(given.model)
    take_layers(layers)
    if given.snapshot is not None:
        check_snapshot(given.snapshot)
    event_files(given.events, topics=True)
    if not (given.out / layout.EPOCHS).is_dir():
        msg = f"--out {given.out}: no epochs/ in it; give the output folder of a `freshet run`"
        raise UsageError(msg)
    from freshet.job.results import check as checking

    code = checking.check(
        model=given.model,
        events=given.events,
        out=given.out,
        snapshot=given.snapshot,
        oracle=oracle,
        tolerance=tolerance,
        undirected=undirected,
        id_type=id_type,
        properties=load_properties(config),
        every=every,
        kind=kind,
    )
    raise typer.Exit(code)
