"""Recognition of modules that read kinds of vertices, or types of edges."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from freshet.gnn.pyg.forward.whole import is_of_kinds
from freshet.gnn.pyg.kinds.calling import typed_parameter
from freshet.gnn.pyg.kinds.typed import is_typed

if TYPE_CHECKING:
    from torch.nn import Module


def reads_kinds(module: Module, method: str) -> bool:
    """Return whether a module is called with dicts by kind, or with the types of edges."""
    function = getattr(module, method, None)
    if not callable(function):
        return False
    names = list(inspect.signature(function).parameters)
    if any(name.endswith("_dict") for name in names) or any(is_of_kinds(part) for part in module.modules()):
        return True
    typed = typed_parameter(function)
    return typed is not None and (typed.default is typed.empty or any(is_typed(part) for part in module.modules()))
