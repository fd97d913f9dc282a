"""Tracing of a module by torch.fx; a module of its own, since it needs torch."""

from __future__ import annotations

import builtins
import operator
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.parameters import Shapes
from freshet.gnn.pyg.forward.places import place_here, where
from freshet.gnn.pyg.forward.sizes import RecordedSize, Refusing
from freshet.gnn.pyg.running import changed_numbers, keeping, kept_numbers
from freshet.gnn.pyg.steps import written_class


def _in_place(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a method of `RowsProxy` for an operator in place, which torch.fx takes for the one that makes a tensor."""
    return lambda rows, other: rows.tracer.create_proxy("call_function", function, (rows, other), {})


class RowsProxy(torch.fx.Proxy):
    """Placeholder of a tensor."""

    _is_param = _is_buffer = False  # what torch asks of a tensor to see whether it is one of a module's
    layout, is_sparse, is_sparse_csr = torch.strided, False, False
    __iadd__, __isub__ = _in_place(operator.iadd), _in_place(operator.isub)
    __imul__, __itruediv__ = _in_place(operator.imul), _in_place(operator.itruediv)
    __ipow__, __ifloordiv__, __imod__ = map(_in_place, (operator.ipow, operator.ifloordiv, operator.imod))

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse what puts other values in the place of a tensor's, which torch.fx would not see."""
        if hasattr(torch.Tensor, name) and name not in ("requires_grad", "grad"):
            msg = f"{place_here()} sets .{name} of rows, and Freshet takes values, not memory: "
            raise ExportError(msg + "assign a new tensor to a name")
        super().__setattr__(name, value)

    def dim(self) -> Any:
        """Return the number of dimensions, which that of an input is known by."""
        return self.node.meta.get("dim") or self.tracer.create_proxy("call_method", "dim", (self,), {})

    ndim = property(dim)


@contextmanager
def rows_as_tensors() -> Iterator[None]:
    """Have `RowsProxy` pass for tensors where Python asks by isinstance, as the tensors of a job will.

    There alone: torch's own code reads the memory of what it takes for a tensor (so no `__class__` may say it).
    """
    true_isinstance, a_tensor = isinstance, torch.empty(0)

    def passes(one: Any, kinds: Any) -> bool:
        return true_isinstance(one, kinds) or (type(one) is RowsProxy and true_isinstance(a_tensor, kinds))

    builtins.isinstance = passes
    try:
        yield
    finally:
        builtins.isinstance = true_isinstance


def traced(module: Module | None, trace: Callable[[], Any]) -> Any:
    """Return the graph that `trace` makes of a module, in which nothing depends on a number that its calls change.

    Raises: ExportError naming the line of what does.
    """
    before = {} if module is None else kept_numbers(module)
    graph = trace()
    if module is None or not (counts := changed_numbers(before, module)):
        return graph
    refusing = Refusing(counts)
    named = {name: RecordedSize(lambda sizes, name=name: sizes[name], name, refusing) for name in counts}  # type: ignore[misc]
    with keeping(module, named):
        return trace()


class Tracer(torch.fx.Tracer):
    """Traces one module, and takes layers as they are, the one called `head` among them."""

    def __init__(self, module: Module | None, head: str | None, shapes: Shapes) -> None:
        """Set the module to trace; None for a function."""
        super().__init__()
        self._module, self._head, self._shapes = module, head, shapes

    def proxy(self, node: Any) -> Any:
        """Return the placeholder for the result of an operation."""
        return RowsProxy(node, self)

    def create_arg(self, a: Any) -> Any:
        """Return an argument as the graph has it.

        Raises: ExportError for a number that changes from call to call.
        """
        if type(a) is RecordedSize:
            a.refuse()
        return a.node if type(a) is RowsProxy else super().create_arg(a)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Return whether a module is one operation; True for a user's own conv, which is then refused by name."""
        if m is self._module:
            return False
        if self._head is not None and module_qualified_name == f"inner.{self._head}":
            return True
        if isinstance(m, MessagePassing) or type(m).__module__.startswith("torch_geometric.") or written_class(m):
            return True
        return super().is_leaf_module(m, module_qualified_name)

    def create_node(self, *args: Any, **options: Any) -> Any:
        """An operation, with the line where it stands."""
        node = super().create_node(*args, **options)
        node.meta["line"], node.meta["inside"] = where(frame for frame, _ in traceback.walk_stack(sys._getframe(1)))
        if node.op == "placeholder":
            flat = {"edge_weight": not self._shapes.column, "edge_attr": self._shapes.flat}
            node.meta["dim"] = 1 if flat.get(node.target, False) else 2
        return node
