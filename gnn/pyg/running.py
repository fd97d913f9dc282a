"""Copies of modules, in eval mode and in float32 on the CPU, and the numbers that a module keeps from call to call."""

from __future__ import annotations

import copy
import dis
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import Parameter
from types import CellType, FunctionType, MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.nn import Module

from freshet.gnn.pyg.aggregations import with_quantiles
from freshet.gnn.pyg.errors import ExportError

_OLD_CACHES = ("cached_result", "cached_num_edges")  # of PyG's convs before 1.6, which many projects copied
_CACHES = ("_cached_edge_index", "_cached_adj_t", "_cached_x", "_cached_h")
_OWN_CACHES = ("edge_index", "edge_weight", "norm", "adj", "adj_t")  # tensors that convs of one's own keep so
_TIMES = (
    "_use_segment_matmul_heuristic_output",
)  # RGCNConv notes which product is faster; its rows do not depend on it


def copy_of(module: Module) -> Module:
    """Return a copy in eval mode that shares nothing with the module.

    What training has left in it, such as SuperGATConv's last attention, is copied without its gradients: torch itself
    copies no tensor that was made of others.
    Raises: ExportError for a module that Python cannot copy.
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        _detach(vars(part), memo)
        _keep_signatures(vars(part), memo)
    held = {id(one) for one in (*module.modules(), *module.parameters(), *module.buffers())}
    functions, found = list[Any](), dict[int, list[Any]]()
    for part in module.modules():
        functions += _functions_in(vars(part), held, found)
    for function in functions:
        memo[id(function)] = FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            closure=tuple(CellType() for _ in function.__closure__ or ()),
        )
    try:
        copied = copy.deepcopy(module, memo)
        for function in functions:
            _fill(memo[id(function)], function, memo)
        forget(copied)
        return copied.eval()
    except Exception as error:
        msg = f"{type(module).__name__} cannot be copied ({type(error).__name__}: {error}), and is to stay as it is"
        raise ExportError(msg) from error


def _keep_signatures(kept: Any, memo: dict[int, Any]) -> None:
    """Have what inspect.signature has given, which Python cannot copy and nobody changes, stand in a copy itself."""
    if isinstance(kept, dict | list | tuple):
        for one in kept.values() if isinstance(kept, dict) else kept:
            _keep_signatures(one, memo)
    elif isinstance(kept, MappingProxyType) and all(isinstance(one, Parameter) for one in kept.values()):
        memo[id(kept)] = kept


def _functions_in(kept: Any, held: set[int], found: dict[int, list[Any]]) -> list[Any]:
    """The functions among these values that hold something of the module: copied, they would read the module itself.

    `found`: what was found in functions so far, which may hold each other.
    """
    if isinstance(kept, dict | list | tuple):
        values = kept.values() if isinstance(kept, dict) else kept
        return [one for value in values for one in _functions_in(value, held, found)]
    if isinstance(kept, functools.partial):
        return _functions_in(kept.func, held, found)
    if not isinstance(kept, FunctionType):
        return []
    if id(kept) not in found:
        found[id(kept)] = []
        inside = _given_to(kept)
        within = _functions_in(inside, held, found)
        if within or any(id(one) in held for one in _flat(inside)):
            found[id(kept)] = [kept, *within]
    return found[id(kept)]


def _given_to(function: FunctionType) -> list[Any]:
    """Return the outer values of a function: the filled cells of its closure, and its defaults."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _flat(values: Any) -> Iterator[Any]:
    for one in values:
        if isinstance(one, list | tuple):
            yield from _flat(one)
        elif isinstance(one, dict):
            yield from _flat(one.values())
        else:
            yield one


def _fill(copied: Any, function: FunctionType, memo: dict[int, Any]) -> None:
    """Have a copied function hold the copies of what the function holds."""

    def of(value: Any) -> Any:
        return copy.deepcopy(value, memo) if isinstance(value, dict | list | tuple) else memo.get(id(value), value)

    for cell, old in zip(copied.__closure__ or (), function.__closure__ or (), strict=True):
        if old != CellType():
            cell.cell_contents = of(old.cell_contents)
    copied.__defaults__ = None if function.__defaults__ is None else tuple(of(one) for one in function.__defaults__)
    named = function.__kwdefaults__
    copied.__kwdefaults__ = None if named is None else {name: of(one) for name, one in named.items()}
    copied.__module__, copied.__qualname__ = function.__module__, function.__qualname__


def _detach(kept: Any, memo: dict[int, Any]) -> None:
    """Note copies of the tensors in containers that torch would not copy."""
    if isinstance(kept, torch.Tensor):
        if not kept.is_leaf:
            memo[id(kept)] = kept.detach().clone()
    elif isinstance(kept, dict):
        _detach(list(kept.values()), memo)
    elif isinstance(kept, list | tuple):
        for one in kept:
            _detach(one, memo)


class Kept(NamedTuple):
    """A number that a module keeps: where it stands, and how it is set there."""

    value: int | float
    put: Callable[[Any], None]


def kept_numbers(module: Module) -> dict[str, Kept]:
    """Return the numbers that a module, its classes and their modules keep, by their names, such as self.calls."""
    found = dict[str, Kept]()
    for path, part in module.named_modules():
        _add_kept(found, ".".join(filter(None, ("self", path))), vars(part), 0)
    for kind in own_classes(module):
        for name, value in vars(kind).items():
            if type(value) in (int, float):
                found[f"{kind.__name__}.{name}"] = Kept(value, partial(setattr, kind, name))
        _add_kept(found, kind.__module__, vars(sys.modules[kind.__module__]), _MOST_WITHIN)
    return found


def own_classes(module: Module) -> list[type]:
    """Return the classes of a module's parts, and those that they derive from, which are the user's own."""
    kinds = dict.fromkeys(kind for part in module.modules() for kind in type(part).__mro__)
    return [kind for kind in kinds if kind.__module__.split(".")[0] not in _NO_HOMES]


_NO_HOMES = ("torch", "torch_geometric", "freshet", "builtins", "typing", "abc")
_MOST_WITHIN = 2


def _add_kept(found: dict[str, Kept], name: str, kept: Any, within: int) -> None:
    """Note the numbers in a dict or list, and in those that stand in it."""
    for key, value in list(kept.items() if isinstance(kept, dict) else enumerate(kept)):
        label = f"{name}.{key}" if within in (0, _MOST_WITHIN) else f"{name}[{key!r}]"
        if type(value) in (int, float):
            found[label] = Kept(value, partial(kept.__setitem__, key))
        elif type(value) in (dict, list) and within < _MOST_WITHIN:
            _add_kept(found, label, value, within + 1)


def changed_numbers(before: Mapping[str, Kept], module: Module) -> dict[str, int | float]:
    """Return the numbers that a module keeps otherwise than before, by their names."""
    after = kept_numbers(module)
    return {name: one.value for name, one in after.items() if one.value != before.get(name, one).value}


def new_numbers(before: Mapping[str, Kept], module: Module) -> bool:
    """Return whether a module keeps numbers that it did not keep before: a next call says whether calls change them."""
    return not kept_numbers(module).keys() <= before.keys()


def what_is_kept(module: Module) -> list[Any]:
    """Return what a module's calls may change of it: its numbers, and what else it keeps of which type and length."""
    names = sorted({kind.__module__ for part in module.modules() for kind in type(part).__mro__})
    homes = [sys.modules[name] for name in names if name.split(".")[0] not in _NO_HOMES]
    holders = (*module.modules(), *homes)
    kept = [value for holder in holders for name, value in vars(holder).items() if name not in _TIMES]
    lengths = [(type(value), len(value) if isinstance(value, list | dict | set) else 0) for value in kept]
    buffers = [str(float(one.detach().double().sum())) for one in module.buffers()]
    return [*((name, one.value) for name, one in kept_numbers(module).items()), *lengths, *buffers]


@contextmanager
def keeping(module: Module, numbers: Mapping[str, Any]) -> Iterator[None]:
    """Have a module keep other numbers in the place of those of these names, and its classes in this context alone."""
    before = kept_numbers(module) if numbers else {}
    for name, number in numbers.items():
        before[name].put(number)
    try:
        yield
    finally:
        for name in numbers:
            before[name].put(before[name].value)


def clone_of(module: Module) -> Module:
    """Return a copy that can be run on any graph, and that leaves the module as it is."""
    return with_quantiles(copy_of(module).cpu().float())


def forget(clone: Module) -> None:
    """Have convs with cached=True answer for the next graph, not for the one that they were trained on."""
    for part in clone.modules():
        cached = getattr(part, "cached", False) is True
        for name in (*_CACHES, *(_OLD_CACHES if cached else ())):
            if getattr(part, name, None) is not None:
                setattr(part, name, None)
        for name in _OWN_CACHES if cached else ():
            if isinstance(vars(part).get(name), torch.Tensor) and _is_kept_by(type(part).forward, name):
                setattr(part, name, None)


def _is_kept_by(forward: Callable[..., Any], name: str) -> bool:
    """Return whether a forward writes this attribute, as `self.norm = norm`."""
    try:
        lines = dis.get_instructions(forward)
        return any(one.opname == "STORE_ATTR" and one.argval == name for one in lines)
    except TypeError:  # not a function of Python
        return False
