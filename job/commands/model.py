"""The options of `freshet model import` and `freshet model describe`; what they do is in `gnn`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from freshet.extras import need
from freshet.job.errors import UsageError
from freshet.job.folder.layout import out_here
from freshet.job.options.layers import LayersFlag, take_layers


def import_model(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="PACKAGE.MODULE:FACTORY",
            help="Callable that returns the PyTorch module, with literal arguments if it needs any: 'mymodels:Net(8, "
            "hidden=16)'. Literals are numbers, strings, True, None, lists, tuples, dicts.",
        ),
    ],
    weights: Annotated[
        Path, typer.Option(help="Trained weights: a state dict, .safetensors or .pt (.pth, .ckpt, .bin).")
    ],
    out: Annotated[Path, typer.Option(help="Model folder to write; new or empty.", callback=out_here)],
    edge_type: Annotated[
        list[str] | None, typer.Option(help="Edge type of a typed model, in order of its relations; repeatable.")
    ] = None,
    stats_from: Annotated[
        Path | None,
        typer.Option(
            help="Snapshot (the training graph) at whose statistics norms over all vertices are frozen: GraphNorm; of "
            "models with kinds, HANConv's weights of relations too."
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="N|SNAPSHOT",
            help="Feature width, or a snapshot with features (of each kind), if no layer specifies one: LGConv or "
            "APPNP first.",
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="Submodule whose output is served as logits beside the embedding.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model that --out has.")] = False,
    layers: LayersFlag = None,
) -> None:
    """Turn a trained PyTorch Geometric model into a model folder.

    Needs torch and torch-geometric, from `make install` or the extra torch of the wheel. The result is compared with
    the original on a random graph, and refused if they differ, or if a layer does not do what it declares (`freshet
    layer check`). From Python: freshet.export_model(module, folder).
    docs/reference/models.md lists supported models. A norm over the whole graph (GraphNorm, LayerNorm(mode="graph"))
    needs --stats-from and makes the model approximate. Prefixes of weight names from training (module., _orig_mod.,
    model.) are removed, and names of PyG 1 are converted; stderr lists them.

    [bold]Examples[/bold]

    [cyan]freshet model import mymodels.sage:make --weights sage.safetensors --out M[/cyan]

    [cyan]freshet model import 'mymodels.sage:Net(8, hidden=16)' --weights net.ckpt --out M[/cyan]
    """
    take_layers(layers)
    _check_given(factory, weights, out, overwrite=overwrite)
    importing = _import_with_torch()
    from freshet.operators.checks.exporting import answers_at_export

    importing.import_model(
        factory,
        weights,
        out,
        edge_types=edge_type or None,
        head=head,
        stats_from=None if stats_from is None else _stored(importing, stats_from),
        features=None if features is None else _width_of(features),
        checks=answers_at_export,
        overwrite=overwrite,
    )


def describe(
    model: Annotated[Path, typer.Argument(help="Model folder.", show_default=False)], layers: LayersFlag = None
) -> None:
    """Explain a model: the algebra, the incremental operations and the state per vertex of each layer.

    [bold]Example[/bold]

    [cyan]freshet model describe M[/cyan]
    """
    from freshet.job.run.preflight import check_model

    check_model(model)
    take_layers(layers)
    from rich import print as show

    from freshet.gnn import describe as describing

    show(describing.describe(model))


def _check_given(factory: str, weights: Path, out: Path, *, overwrite: bool) -> None:
    """Check what can be checked of an import before torch is loaded.

    Raises: UsageError.
    """
    if ":" not in factory:
        msg = f"{factory}: expected PACKAGE.MODULE:FACTORY, such as mymodels.sage:make"
        raise UsageError(msg)
    if not weights.is_file():
        msg = f"--weights {weights}: no such file; expected a state dict in .safetensors or .pt (.pth, .ckpt, .bin)"
        raise UsageError(msg)
    from freshet.job.run.preflight import check_new

    if not overwrite:
        check_new(out, "; --overwrite replaces a model in it")


def _stored(importing: ModuleType, snapshot: Path) -> Any:
    """Return a snapshot as the graph of statistics, which is read when the module's kinds are known."""
    from freshet.operators.snapshot.arrays import read_arrays
    from freshet.operators.snapshot.kind_arrays import read_kinds

    return importing.StoredGraph(lambda: tuple(read_arrays(snapshot)), partial(read_kinds, snapshot))


def _width_of(features: str) -> int | dict[str, int]:
    """Return the given width, or that of a snapshot's features; of one with kinds those of each.

    Raises: UsageError if it is neither; SnapshotError for a folder that is not a snapshot.
    """
    if features.isdecimal() and int(features) > 0:
        return int(features)
    if not Path(features).is_dir():
        msg = f"--features {features}: expected a number above 0, or a snapshot folder"
        raise UsageError(msg)
    from freshet.operators.snapshot.arrays import feature_width
    from freshet.operators.snapshot.kind_arrays import widths_by_kind

    by_kind = {kind: width for kind, width in widths_by_kind(Path(features)).items() if width}
    return by_kind or feature_width(Path(features))


def _import_with_torch() -> ModuleType:
    need("torch", "model import")
    from freshet.gnn.pyg import importing

    return importing
