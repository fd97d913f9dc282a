"""The option --layers of commands that read a model: modules of layers that users write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

LAYERS_HELP = "Module of layers of your own that the model has, in the current folder or installed; repeatable."
LAYERS_METAVAR = "PACKAGE.MODULE"
LayersFlag = Annotated[list[str] | None, typer.Option("--layers", metavar=LAYERS_METAVAR, help=LAYERS_HELP)]


def take_layers(names: Sequence[str] | None) -> None:
    """Load modules of written layers into this process.

    Raises: LayersError for one that cannot be imported.
    """
    if names:
        from freshet.gnn.own.loading import load_layers

        load_layers(names)
