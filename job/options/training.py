"""The options of `freshet train`."""

from __future__ import annotations

from inspect import Parameter
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_type_hints

import typer

from freshet.job.options.layers import LayersFlag


class Training(NamedTuple):
    """Options: the graph, the model, how it is trained, and how it is judged."""

    job: Annotated[
        Path,
        typer.Argument(metavar="O", help="Output folder of the job, or a service folder.", show_default=False),
    ]
    labels: Annotated[
        Path, typer.Option(metavar="L", help="Parquet file with id and label, and kind or ts.", show_default=False)
    ]
    out: Annotated[
        Path,
        typer.Option(metavar="M2", help="Model folder to write; new or empty.", show_default=False),
    ]
    kind: Annotated[str | None, typer.Option(help="Kind of the labelled vertices, without a column kind in L.")] = None
    factory: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.MODULE:FACTORY",
            help="Callable that returns a module to train from the start (default: the model that is served).",
        ),
    ] = None
    head: Annotated[
        str | None, typer.Option(help="Submodule of the factory's module whose output is served as logits.")
    ] = None
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the labelled vertices.")] = 100
    lr: Annotated[float, typer.Option(min=0, help="Learning rate of Adam at the begin; it falls to 0.")] = 0.001
    batch_size: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Labelled vertices per step (default: all of them).")
    ] = None
    fanout: Annotated[
        list[int] | None,
        typer.Option(
            min=-1,
            metavar="N",
            help="With --batch-size: in-edges sampled per vertex, once for each conv; repeatable; -1: all.",
        ),
    ] = None
    gate_margin: Annotated[
        float,
        typer.Option(min=-1, max=1, help="Fraction by which the metric must be above that of the served model."),
    ] = 0.01
    metric: Annotated[
        Literal["accuracy", "average-precision"] | None,
        typer.Option(help="Metric to judge by (default: average-precision for one logit, else accuracy)."),
    ] = None
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the labelled vertices that are left to judge by.")
    ] = 0.2
    split: Annotated[
        Literal["hash", "time"],
        typer.Option(help="Choice of these: by a hash of the id, the same in every round; or the newest by ts."),
    ] = "hash"
    begin: Annotated[
        str,
        typer.Option(
            metavar="base|latest|PATH",
            help="Graph from which the input is read: that of the job's begin, a new savepoint, or a savepoint.",
        ),
    ] = "base"
    epoch: Annotated[
        int | None, typer.Option(min=0, help="Epoch of the job whose graph to train on (default: the newest).")
    ] = None
    ranks: Annotated[
        int,
        typer.Option(min=1, help="Processes that share the graph where its rows do not fit into one; not faster."),
    ] = 1
    every: Annotated[
        str | None, typer.Option(metavar="1d", help="Train again and again, from begin to begin; M2 has a folder each.")
    ] = None
    then: Annotated[
        str | None, typer.Option(metavar="CMD", help="Command after each round that was taken; gets FRESHET_MODEL.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0
    model: Annotated[Path | None, typer.Option(help="Model folder of the job, if it has moved.")] = None
    layers: LayersFlag = None
    config: Annotated[
        Path | None, typer.Option(help="YAML file with properties of Kafka's clients under `kafka:`.")
    ] = None


def parameters() -> list[Parameter]:
    """Return the parameters of the command."""
    hints, defaults = get_type_hints(Training, include_extras=True), Training._field_defaults
    return [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name, Parameter.empty), annotation=hints[name])
        for name in Training._fields
    ]
