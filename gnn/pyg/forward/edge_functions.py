"""PyG's functions of edges, and its pools, of which a traced forward has each call as one operation."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import Module
from torch_geometric import nn, utils
from torch_geometric.nn.conv import gcn_conv

POOLS = ("global_add_pool", "global_mean_pool", "global_max_pool")
_OF_ONE = ("degree", "scatter", "softmax", *POOLS)  # others return edges, and what these have
_NAMES = (*_OF_ONE, "add_self_loops", "add_remaining_self_loops", "remove_self_loops", "gcn_norm")
_LIBRARIES = ("torch", "torch_geometric", "freshet")


def function_of_edges(name: str) -> Callable[..., Any]:
    """Return the function that PyG has under a name at this time."""
    found: Callable[..., Any] = getattr(gcn_conv if name == "gcn_norm" else nn if name in POOLS else utils, name)
    return found


@contextmanager
def replaced(homes: Iterable[dict[str, Any]], hooks: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Have namespaces hold `hooks`, by the names that PyG has, in place of its functions, whatever they call these."""
    by_id = {id(function_of_edges(name)): hook for name, hook in hooks.items()}
    before = [(home, name, value) for home in homes for name, value in list(home.items()) if id(value) in by_id]
    try:
        for home, name, value in before:
            home[name] = by_id[id(value)]
        yield
    finally:
        for home, name, value in before:
            home[name] = value


def _by_name(name: str) -> Callable[..., Any]:
    """Return a function that calls the one which PyG has under that name at the time of the call."""

    def called(*args: Any, **options: Any) -> Any:
        return function_of_edges(name)(*args, **options)

    called.__name__ = called.__qualname__ = name
    called.__module__ = "torch_geometric.utils"  # as what it calls, which writes to none of its arguments
    return called


_OPERATIONS = {name: _by_name(name) for name in _NAMES}
OPERATIONS = frozenset(_OPERATIONS.values())
"""Calls of functions of edges in a traced graph."""
EDGES_FIRST = frozenset(one for name, one in _OPERATIONS.items() if name not in _OF_ONE)
"""Operations that return edges, and what these have."""
FRESH = frozenset(_OPERATIONS[name] for name in _OF_ONE)
"""Operations that make new memory."""


class EdgesByMethods:
    """Edges in a form of their own, which has PyG's functions of edges that it knows as methods."""


@contextmanager
def as_operations(module: Module) -> Iterator[None]:
    """Have calls of these functions with what is traced be one operation each, in all code but that of libraries.

    Also where a part of the module keeps one, as in `self.norm = gcn_norm`.
    """
    with replaced(
        [vars(utils), vars(nn), vars(nn.pool), *homes_of(module)],
        {name: _hooked(name, function_of_edges(name)) for name in _NAMES},
    ):
        yield


def homes_of(module: Module) -> list[dict[str, Any]]:
    """Return the namespaces of all code but that of libraries, and those of the parts of a module."""
    homes: list[dict[str, Any]] = [vars(part) for part in module.modules()]
    for name, code in list(sys.modules.items()):
        if name.split(".")[0] not in _LIBRARIES and isinstance(getattr(code, "__dict__", None), dict):
            homes.append(vars(code))
    return homes


def _hooked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], EdgesByMethods):
            return getattr(args[0], name)(*args[1:], **options)
        traced = next((one for one in (*args, *options.values()) if isinstance(one, torch.fx.Proxy)), None)
        if traced is None:
            return function(*args, **options)
        made = traced.tracer.create_proxy("call_function", _OPERATIONS[name], args, options)
        if name in _OF_ONE:
            return made
        edges, values = made[0], made[1]
        edges.node.meta["dtype"] = torch.int64
        return edges, values

    return called
