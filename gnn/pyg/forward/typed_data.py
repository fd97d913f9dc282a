"""Forwards of one Data that read the types of its edges are called with these by themselves."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from torch.nn import Module
from torch_geometric.data import Data

from freshet.gnn.pyg.forward.parameters import rows_of, takes_data
from freshet.gnn.pyg.forward.sampled import put_sizes

_TYPES = "edge_type"
_FIELDS = ("edge_attr", "edge_weight")


def with_types_by_name(module: Module, method: str) -> Module:
    """Return a module whose `method` takes (x, edge_index, edge_type), where it takes one Data with types; else itself.

    Other fields of edges that its code names come behind. The copy has the parts of the module.
    """
    function = getattr(module, method, None)
    if not callable(function) or not takes_data(list(inspect.signature(function).parameters.values())):
        return module
    code = getattr(inspect.unwrap(function), "__code__", None)
    named = () if code is None else {*code.co_names, *(one for one in code.co_consts if isinstance(one, str))}
    if _TYPES not in named:
        return module
    kind, fields = type(module), [one for one in _FIELDS if one in named]

    def called(self: Any, x: Any, edge_index: Any, edge_type: Any, **others: Any) -> Any:
        data = Data(x=x, edge_index=edge_index, edge_type=edge_type, **others)
        put_sizes(data, x.size(0), data, edge_index.size(1))
        return rows_of(getattr(kind, method)(self, data), x)

    names = ["self", "x", "edge_index", _TYPES, *fields]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    found = copy.copy(module)
    found.__class__ = type(kind.__name__, (kind,), {method: called, "__module__": kind.__module__})
    return found
