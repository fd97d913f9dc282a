"""A model from the code that builds it and the file that keeps its weights: `freshet model import`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch  # noqa: F401  # so that who lacks it learns so before anything is read
import torch_geometric  # noqa: F401

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.export import Checks, export_model
from freshet.gnn.pyg.kinds.looking_up import StoredGraph
from freshet.gnn.pyg.saved.fitting import load_into
from freshet.gnn.pyg.saved.loading import build_module, load_weights

__all__ = ["StoredGraph", "build_module", "import_model"]


def import_model(
    factory: str,
    weights: str | Path,
    out: str | Path,
    *,
    edge_types: Sequence[str] | None = None,
    head: str | None = None,
    stats_from: Any = None,
    features: int | Mapping[str, int] | None = None,
    checks: Checks | None = None,
    overwrite: bool = False,
) -> Model | KindsModel:
    """Build a module by `package.module:factory`, load its weights, and write it as a model folder.

    The factory returns the untrained module; it may have arguments that are literals, as in `package.module:Net(8,
    hidden=16)`. The package is looked for on the Python path and in the working directory. Weights are a state dict, in
    `.safetensors`, or in `.pt`, `.pth`, `.ckpt` or `.bin` (read with weights_only, so that it runs no code). Prefixes
    of what wrapped the module in training (`module.`, `_orig_mod.`, `model.`) are taken off, and names of an earlier
    PyG become those of today; stderr has a line about each. `checks` and `overwrite` are those of export_model.

    Raises: ExportError saying what of the factory or the file does not fit, and what export_model refuses.
    """
    try:
        module = build_module(factory)
        load_into(module, load_weights(Path(weights)), str(weights), _say)
    except ExportError as error:
        raise error.in_a_line() from None
    return export_model(module, out, edge_types, stats_from, head, features, checks=checks, overwrite=overwrite)


def _say(note: str) -> None:
    print(note, file=sys.stderr)
