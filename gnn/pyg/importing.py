"""A model from the code that builds it and the file that keeps its weights: `freshet model import`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch_geometric  # noqa: F401  # so that who lacks it learns so before anything is read

from gnn.model import Model
from gnn.pyg.export import export_model
from gnn.pyg.steps import ExportError
from gnn.pyg.weights import load_weights


def import_model(
    factory: str,
    weights: str | Path,
    out: str | Path,
    *,
    edge_types: Sequence[str] | None = None,
    head: str | None = None,
    stats_from: Any = None,
    features: int | None = None,
) -> Model:
    """Build a module by `package.module:factory`, load its weights, and write it as a model folder.

    The factory is called without arguments and returns the untrained module; the package is looked for on the Python
    path and in the working directory. Weights are a state dict, in `.safetensors`, or in `.pt` (read with weights_only,
    so that it runs no code).

    Raises: ExportError saying what of the factory or the file does not fit, and what export_model refuses.
    """
    module = build_module(factory)
    _load(module, load_weights(Path(weights)), weights)
    return export_model(module, out, edge_types=edge_types, stats_from=stats_from, head=head, features=features)


def build_module(factory: str) -> torch.nn.Module:
    """Return what `package.module:factory` builds.

    Raises: ExportError when it cannot be found or builds no torch.nn.Module.
    """
    name, _, attribute = factory.partition(":")
    if not name or not attribute:
        msg = f"got {factory!r}, expected package.module:factory"
        raise ExportError(msg)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        make: Any = importlib.import_module(name)
        for step in attribute.split("."):
            make = getattr(make, step)
    except (ImportError, AttributeError) as error:
        msg = f"{factory} cannot be imported: {error}"
        raise ExportError(msg) from None
    module = make() if callable(make) and not isinstance(make, torch.nn.Module) else make
    if not isinstance(module, torch.nn.Module):
        msg = f"{factory} gives a {type(module).__name__}, expected a torch.nn.Module"
        raise ExportError(msg)
    return module


def _load(module: torch.nn.Module, state: Mapping[str, Any], source: str | Path) -> None:
    try:
        module.load_state_dict(dict(state), strict=True)
    except RuntimeError as error:
        msg = f"{source} does not fit the module: {error}"
        raise ExportError(msg) from None
