"""The options of `freshet layer check`; what it does is in operators/checks."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from freshet.extras import EXTRAS, how_to_install
from freshet.job.errors import EXIT_CHECK_FAILED, UsageError
from freshet.job.options.layers import LayersFlag, take_layers
from freshet.log_lines import log

if TYPE_CHECKING:
    from freshet.gnn.kinds.model import KindsModel
    from freshet.gnn.model import Model


def check(
    layer: Annotated[
        str,
        typer.Argument(metavar="M|PACKAGE.MODULE:CLASS", help="Model folder, or a class.", show_default=False),
    ],
    layers: LayersFlag = None,
    width: Annotated[int, typer.Option(min=1, help="Of a class: width of the rows that it reads.")] = 2,
    edge_width: Annotated[int, typer.Option(min=0, help="Of a class: width of the attributes of edges.")] = 0,
    weights: Annotated[
        Path | None, typer.Option(help="Of a class: its weights, .safetensors, by the names that it uses.")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=AxB", help="Of a class without --weights: draw this weight at random; repeatable."),
    ] = None,
    options: Annotated[
        str, typer.Option(metavar="JSON", help="Of a class: its options, such as '{\"heads\": 2}'.")
    ] = "{}",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the cases that are searched.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line.")] = False,
) -> None:
    """Check what each layer declares before a job relies on it, and show the smallest case where it is wrong.

    A job keeps the aggregate of a vertex up to date by differences, and in parts. That is right only where

    - the aggregate of messages depends neither on their order nor on those that went, and states of parts merge into
    that of the whole: tried with a few messages of small integers, on which any difference is an error;

    - a row of each function depends on that row alone: bits are compared in other places, alone and once more, and a
    function makes the same at each of 50,000 calls;

    - the whole model, with the in-edges of a vertex in three parts, makes what a full pass in float64 makes: tried on
    streams of a few events. Of a model with kinds, these lead along relations with convs of your own, or along all.

    Of a MessagePassing that was read it also says whether the message is linear in its source, and whether it reads its
    target.

    Each claim is answered by `proved`, `searched N cases`, or `refuted` with the smallest case and both results. Exits
    with 1 where one is refuted. What a solver proves for two messages alone stays `searched`, with up to 1,200 of them.

    [bold]Examples[/bold]

    [cyan]freshet layer check M --layers mylayers[/cyan]

    [cyan]freshet layer check mylayers:Gated --width 4 --shape lin.weight=4x4 --shape bias=4[/cyan]
    checks a class before there is a model. Weights and options that it reads and that are not given are drawn.
    """
    model: Model | KindsModel | None = _model_of_class(layer, width, edge_width, weights, shape or [], options, seed)
    if model is None:
        from freshet.gnn.kinds.model import load_any_model
        from freshet.job.run.preflight import check_model as check_folder

        if re.fullmatch(r"[\w.]+", layer) and not Path(layer).exists():
            msg = f"{layer}: neither a folder nor a class; name a class as PACKAGE.MODULE:CLASS"
            raise UsageError(msg)
        check_folder(Path(layer))
        take_layers(layers)
        model = load_any_model(layer)
    from freshet.gnn.answers import is_refuted
    from freshet.gnn.kinds.model import KindsModel
    from freshet.operators.checks.exporting import answers_by_layer
    from freshet.operators.checks.layers import check_model, check_streams

    if find_spec(EXTRAS["proofs"][0]) is None:
        log(f"no claim is proved by a solver: z3 is not installed; {how_to_install('proofs')}")
    if isinstance(model, KindsModel):
        found = [*answers_by_layer(model, facts=True), check_streams(model, seed=seed)]
    else:
        found = check_model(model, seed=seed)
    if as_json:
        print(orjson.dumps({"layer": layer, "checks": [one.as_json() for one in found]}).decode(), flush=True)
    else:
        print("\n".join(map(str, found)), flush=True)
    if any(is_refuted(one.answers) for one in found):
        raise typer.Exit(EXIT_CHECK_FAILED)


def _model_of_class(
    name: str, width: int, edge_width: int, weights: Path | None, shapes: list[str], options: str, seed: int
) -> Model | None:
    """Return a model of a class alone; None for what is no name of a class.

    Raises: UsageError for options that do not do; LayersError, WrittenLayerError for a class that does not.
    """
    from freshet.gnn.convs.own_layer import CODE

    if not re.fullmatch(CODE, name) or Path(name).is_dir():
        return None
    from freshet.gnn.own.loading import split_name
    from freshet.operators.checks.alone import model_of_class

    take_layers(split_name(name)[:1])
    given, chosen = _weights(weights, shapes, seed), _options(options)
    model, drawn = model_of_class(name, given, chosen, (width, edge_width), seed)
    if drawn:
        log(f"drawn where nothing was given: {' '.join(drawn)}")
    return model


def _options(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        msg = f"--options {text}: no JSON ({error}); expected an object such as " + '{"heads": 2}'
        raise UsageError(msg) from None
    if not isinstance(found, dict):
        msg = f"--options {text}: got {type(found).__name__}, expected an object such as " + '{"heads": 2}'
        raise UsageError(msg)
    return found


def _weights(file: Path | None, shapes: list[str], seed: int) -> dict[str, Any]:
    """Return the weights of a file, and those that are drawn."""
    import numpy as np

    from freshet.operators.checks.alone import drawn_weight

    found: dict[str, Any] = {}
    if file is not None:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            found |= {name: weight.astype(np.float32) for name, weight in load_file(file).items()}
        except (SafetensorError, OSError) as error:
            msg = f"--weights {file}: no safetensors file ({error})"
            raise UsageError(msg) from None
    rng = np.random.default_rng(seed)
    for one in shapes:
        name, _, sizes = one.partition("=")
        if not name or not re.fullmatch(r"\d{1,4}(x\d{1,4}){0,2}", sizes):
            msg = f"--shape {one}: expected NAME=AxB, such as lin.weight=4x2, or NAME=A"
            raise UsageError(msg)
        found[name] = drawn_weight(tuple(map(int, sizes.split("x"))), rng)
    return found
