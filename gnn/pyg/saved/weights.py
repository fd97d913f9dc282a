"""Reads state dicts from files, without executing anything that is in them."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.steps import ExportError

SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
# Under which names a training checkpoint has its state dict; of several the first.
_NESTED = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "weights")
_LIGHTNING = "pytorch-lightning_version"
_SAVE = "torch.save(model.state_dict(), 'weights.pt')"


class Weights(NamedTuple):
    """A state dict, the key of the file that it stands under, and whether Lightning has written the file."""

    state: Mapping[str, Any]
    key: str = ""
    of_lightning: bool = False


def load_weights(path: Path) -> Weights:
    """Return the state dict in a .safetensors file or one of torch's, also one that a training checkpoint nests.

    Raises: ExportError when there is no such file, it is of another kind, or it holds anything but tensors.
    """
    if not path.is_file():
        refuse(f"{path}: no such file")
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        return Weights(_safetensors(path))
    if suffix in SUFFIXES:
        return _state_in(path, _torch_file(path))
    msg = f"{path}: weights are read from .safetensors or .pt, got {path.suffix or 'no suffix'}"
    msg += " (.pth, .ckpt and .bin are read as .pt)"
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


def _torch_file(path: Path) -> Any:
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of damaged files torch raises whatever its reader meets
        raise ExportError(_why_not(path, error)) from None


def _why_not(path: Path, error: Exception) -> str:
    """Say why a file could not be read, and how to write one that can."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else type(error).__name__
    what = f"{path} holds more than tensors, or is no torch file"
    if "TorchScript" in text:
        return f"{what}: it is a TorchScript archive. Save the state dict of the module that was scripted: {_SAVE}"
    found = re.search(r"GLOBAL (\S+) was not an allowed global", text)
    if found is None or not isinstance(error, pickle.UnpicklingError):
        return f"{what} ({first}). Save the state dict: {_SAVE}"
    name = found[1]
    if _is_whole_module(path):
        return (
            f"{what}: it is a whole pickled module ({name}), and to read it is to run the code in it. Where its code "
            f"is and the file is trusted: model = torch.load({path.name!r}, weights_only=False); {_SAVE}"
        )
    return (
        f"{what}: beside tensors there is a {name}. Where the file is trusted: state = torch.load({path.name!r}, "
        "weights_only=False)['state_dict'] (or the key that it has); torch.save(state, 'weights.pt')"
    )


def _is_whole_module(path: Path) -> bool:
    """Return whether the pickle contains torch modules."""
    import torch

    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # an old file, or no torch file at all
        names = [line for line in path.read_bytes()[: 1 << 16].decode("latin-1").splitlines() if "torch.nn" in line]
    return any("torch.nn.modules" in name or "torch_geometric.nn" in name for name in names)


def _state_in(path: Path, found: Any) -> Weights:
    """The state dict in what a file holds: itself, or what it nests.

    Raises: ExportError where there is none.
    """
    of_lightning, keys = isinstance(found, Mapping) and _LIGHTNING in found, list[str]()
    while isinstance(found, Mapping) and not _is_state(found):
        inner = [key for key, value in found.items() if isinstance(value, Mapping) and _holds_state(value)]
        named = [key for key in _NESTED if key in inner]
        if not named and len(inner) != 1:
            break
        keys.append(str((named or inner)[0]))
        found = found[(named or inner)[0]]
    if isinstance(found, Mapping) and _is_state(found):
        return Weights(found, ".".join(keys), of_lightning)
    what = f"a {type(found).__name__}"
    if isinstance(found, Mapping):
        what = f"a dict of {', '.join(map(str, list(found)[:8]))}" if found else "an empty dict"
    refuse(f"{path} holds {what}, expected a state dict (names and tensors): {_SAVE}")


def _holds_state(found: Mapping[Any, Any]) -> bool:
    return _is_state(found) or any(isinstance(one, Mapping) and _holds_state(one) for one in found.values())


def _is_state(found: Mapping[Any, Any]) -> bool:
    import torch

    return bool(found) and all(isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in found.items())
