"""Reads state dicts from files, without executing anything that is in them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnn.pyg.steps import ExportError

_NESTED = ("state_dict", "model_state_dict", "model")


def load_weights(path: Path) -> Mapping[str, Any]:
    """Return the state dict in a .safetensors or .pt file, also one under `state_dict` in a training checkpoint.

    Raises: ExportError when there is no such file, it is of another kind, or it holds anything but tensors.
    """
    if not path.is_file():
        msg = f"{path}: no such file"
        raise ExportError(msg)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix in (".pt", ".pth"):
        return _torch_file(path)
    msg = f"{path}: weights are read from .safetensors or .pt, got {path.suffix or 'no suffix'}"
    raise ExportError(msg)


def _safetensors(path: Path) -> Mapping[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state: Mapping[str, Any] = load_file(path)
    except (SafetensorError, OSError) as error:
        msg = f"{path} is not a safetensors file: {error}"
        raise ExportError(msg) from None
    return state


def _torch_file(path: Path) -> Mapping[str, Any]:
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        msg = (
            f"{path} holds more than tensors, or is no torch file ({first}). "
            "Save the state dict: torch.save(model.state_dict(), path)"
        )
        raise ExportError(msg) from None
    for key in _NESTED:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        msg = f"{path} holds a {type(state).__name__}, expected a state dict (names and tensors)"
        raise ExportError(msg)
    return state
