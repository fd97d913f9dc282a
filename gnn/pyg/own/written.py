"""Torch modules in whose place a loaded layer that a user wrote stands: `class Mine(Layer, of=TorchClass)`."""

from __future__ import annotations

from typing import Any

from freshet.gnn.own.loading import classes_of, layer_class
from freshet.gnn.pyg.errors import ExportError


def written_class(module: Any) -> str | None:
    """Return the name of the loaded class that stands for a module, PACKAGE.MODULE:CLASS; None where none does.

    Raises: ExportError where several do.
    """
    found = classes_of(type(module))
    if len(found) > 1:
        msg = f"{type(module).__name__}: {' and '.join(found)} are all of it; load one of them"
        raise ExportError(msg)
    return found[0] if found else None


def reads_targets(code: str) -> bool:
    """Return whether a class has a function of rows of targets."""
    layer = layer_class(code, None)
    return layer.has("target") or layer.has("own")
