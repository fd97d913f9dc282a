"""Builds the module that `package.module:factory(...)` names, with arguments that are literals."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
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
