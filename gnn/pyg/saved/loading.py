"""Builds the module that `package.module:factory(...)` names, and reads a file of weights without running any."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pickle
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.steps import ExportError

_EXPECTED = "expected package.module:factory, or with arguments: 'package.module:factory(8, hidden=16)'"


class Factory(NamedTuple):
    """Location of a factory, and its arguments; arguments None if none are given, not even ()."""

    module: str
    path: str
    arguments: tuple[list[Any], dict[str, Any]] | None


def parse_factory(text: str) -> Factory:
    """Read `package.module:factory` or `package.module:factory(8, hidden=16)`; nothing of it is run.

    Raises: ExportError for anything else, and for arguments that are no literals.
    """
    name, _, rest = text.partition(":")
    wrong = f"got {text!r}, {_EXPECTED}"
    try:
        tree = ast.parse(rest.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExportError(wrong) from None
    call = tree if isinstance(tree, ast.Call) else None
    target = tree if call is None else call.func
    path = ast.unparse(target)
    if not name or not all(part.isidentifier() for part in (*name.split("."), *path.split("."))):
        raise ExportError(wrong)
    return Factory(name, path, None if call is None else _literals(text, call))


def _literals(text: str, call: ast.Call) -> tuple[list[Any], dict[str, Any]]:
    try:
        args = [ast.literal_eval(one) for one in call.args]
        return args, {str(one.arg): ast.literal_eval(one.value) for one in call.keywords if one.arg or _refuse_stars()}
    except (ValueError, TypeError):
        msg = (
            f"{text}: arguments are literals (numbers, 'text', True, None, lists, tuples, dicts of these), since "
            "nothing here is run; for others write a factory that makes them"
        )
        raise ExportError(msg) from None


def _refuse_stars() -> bool:
    raise ValueError


def build_module(text: str) -> torch.nn.Module:
    """Return what a factory builds; the package is looked for on the Python path and in the working directory.

    Raises: ExportError when it cannot be found, needs other arguments, fails, or builds no torch.nn.Module.
    """
    factory = parse_factory(text)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        make: Any = importlib.import_module(factory.module)
        for step in factory.path.split("."):
            make = getattr(make, step)
    except Exception as error:  # whatever a module of somebody's raises when it is imported
        kind = "" if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: "
        msg = f"{text} cannot be imported: {kind}{error}"
        raise ExportError(msg) from error
    module = _called(text, make, factory.arguments)
    if not isinstance(module, torch.nn.Module):
        refuse(f"{text} gives a {type(module).__name__}, expected a torch.nn.Module")
    return module


def _called(text: str, make: Any, arguments: tuple[list[Any], dict[str, Any]] | None) -> Any:
    if isinstance(make, torch.nn.Module) or not callable(make):
        if arguments is None:
            return make
        refuse(f"{text}: there is a {type(make).__name__} already, which takes no arguments; leave them out")
    args, options = arguments or ([], {})
    _check_arguments(text, make, args, options)
    try:
        return make(*args, **options)
    except Exception as error:  # whatever the code of somebody raises
        msg = f"{text} fails: {type(error).__name__}: {error}"
        raise ExportError(msg) from error


def _check_arguments(text: str, make: Any, args: list[Any], options: dict[str, Any]) -> None:
    """Refuse arguments that a factory does not take, with those that it does."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # there is none to be had
        return
    try:
        signature.bind(*args, **options)
    except TypeError as error:
        needed = [p.name for p in signature.parameters.values() if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
        example = f"{text.partition('(')[0]}({', '.join(f'{name}=...' for name in needed)})"
        msg = f"{text}: {error}. It takes {signature}: give what it needs, as in '{example}', with literals"
        raise ExportError(msg) from None


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
    return bool(found) and all(isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in found.items())
