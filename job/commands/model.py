"""The options of `freshet model import` and `freshet model describe`; what they do is in `gnn`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from freshet.extras import need
from freshet.job.errors import UsageError


def import_model(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="PACKAGE.MODULE:FACTORY",
            help="Callable that returns the PyTorch module; with its arguments, if it needs any: 'mymodels:Net(8, "
            "hidden=16)'. They are literals: numbers, texts, True, None, lists, tuples, dicts.",
        ),
    ],
    weights: Annotated[
        Path, typer.Option(help="Trained weights: a state dict, .safetensors or .pt (.pth, .ckpt, .bin).")
    ],
    out: Annotated[Path, typer.Option(help="Model folder to write; new or empty.")],
    edge_type: Annotated[
        list[str] | None, typer.Option(help="Edge type of a typed model, in order of its relations; repeatable.")
    ] = None,
    stats_from: Annotated[
        Path | None,
        typer.Option(
            help="Snapshot whose statistics norms over all vertices keep, e.g. GraphNorm: the training graph."
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="N|SNAPSHOT",
            help="Width of the features, or a snapshot that has them, where no layer says it: LGConv, APPNP first.",
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="Submodule whose output is served as logits beside the embedding.")
    ] = None,
) -> None:
    """Turn a trained PyTorch Geometric model into a model folder.

    Needs torch and torch-geometric, which `make install` brings, and the extra torch of the wheel. The result is run
    beside the original on a random graph, and refused when they differ. From Python: freshet.export_model(module,
    folder). docs/reference/models.md lists what can be taken over; a norm that reads the whole graph (GraphNorm,
    LayerNorm(mode="graph")) needs --stats-from and makes the model approximate. Prefixes that training put before the
    names of weights (module., _orig_mod., model.) are taken off, and names of PyG 1 become those of today; stderr says
    which.

    [bold]Examples[/bold]

    [cyan]freshet model import mymodels.sage:make --weights sage.safetensors --out M[/cyan]

    [cyan]freshet model import 'mymodels.sage:Net(8, hidden=16)' --weights net.ckpt --out M[/cyan]
    """
    if ":" not in factory:
        msg = f"{factory}: expected PACKAGE.MODULE:FACTORY, such as mymodels.sage:make"
        raise UsageError(msg)
    if not weights.is_file():
        msg = f"--weights {weights}: no such file; expected a state dict in .safetensors or .pt (.pth, .ckpt, .bin)"
        raise UsageError(msg)
    from freshet.job.run.preflight import check_new

    check_new(out)
    importing = _import_with_torch()
    graph = None
    if stats_from is not None:
        from freshet.operators.snapshot.arrays import read_arrays

        graph = tuple(read_arrays(stats_from))
    importing.import_model(
        factory,
        weights,
        out,
        edge_types=edge_type or None,
        head=head,
        stats_from=graph,
        features=None if features is None else _width_of(features),
    )


def describe(model: Annotated[Path, typer.Argument(help="Model folder.", show_default=False)]) -> None:
    """Explain a model: per layer its algebra, what is incremental, and the state it keeps per vertex.

    [bold]Example[/bold]

    [cyan]freshet model describe M[/cyan]
    """
    from freshet.job.run.preflight import check_model

    check_model(model)
    from rich import print as show

    from freshet.gnn import describe as describing

    show(describing.describe(model))


def _width_of(features: str) -> int:
    """The width that is given, or that of a snapshot's features.

    Raises: UsageError for what is neither; SnapshotError for a folder that is no snapshot.
    """
    if features.isdecimal() and int(features) > 0:
        return int(features)
    if not Path(features).is_dir():
        msg = f"--features {features}: expected a number above 0, or a snapshot folder"
        raise UsageError(msg)
    from freshet.operators.snapshot.arrays import feature_width

    return feature_width(Path(features))


def _import_with_torch() -> ModuleType:
    need("torch", "model import")
    from freshet.gnn.pyg import importing

    return importing
