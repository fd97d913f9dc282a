"""Turns a module of any supported form into its steps."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gnn.pyg.fx import called, refuse_several_rows, trace_forward
from gnn.pyg.refusals import STRAIGHT, earlier_rows
from gnn.pyg.steps import ExportError, Step, Traced, class_name, expand

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


def trace(module: Module, head: str | None = None) -> Traced:
    """Return the steps of a module and how to run it; the submodule `head` is traced as a part of its own.

    Raises: ExportError when the module is no straight line of layers.
    """
    from torch_geometric.nn import Sequential
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    if class_name(module) == "torch.nn.ModuleList":
        return Traced(list(_module_list("", module)), _run_module_list)
    if isinstance(module, Sequential):
        return _sequential(module, head)
    if isinstance(module, BasicGNN) and type(module).forward is BasicGNN.forward:
        return Traced(list(expand("", module, edge_weights=True)), _run_basic_gnn)
    return trace_forward(module, head)


def _module_list(name: str, module: Module) -> Iterator[Step]:
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}".removeprefix(".")
        if class_name(child) == "torch.nn.ModuleList":
            yield from _module_list(full, child)
        else:
            yield from expand(full, child, edge_weights=True)


def _run_module_list(module: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    from torch_geometric.nn import MessagePassing
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    for child in module.children():
        if class_name(child) == "torch.nn.ModuleList":
            x = _run_module_list(child, x, edge_index, edge_weight)
        elif isinstance(child, MessagePassing):
            weighted = "edge_weight" in inspect.signature(child.forward).parameters
            x = child(x, edge_index, edge_weight) if weighted else child(x, edge_index)
        elif isinstance(child, BasicGNN):
            x = _run_basic_gnn(child, x, edge_index, edge_weight)
        else:
            x = child(x)
    return x


def _run_basic_gnn(module: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
    return module(x, edge_index, edge_weight=edge_weight if module.supports_edge_weight else None)


def _sequential(module: Any, head: str | None) -> Traced:
    """Read the headers of PyG's Sequential: its `forward` is made from a template that fx cannot read."""
    inputs = list(module.signature.param_dict)
    if len(inputs) not in (2, 3):
        msg = f"Sequential takes {inputs}, expected 'x, edge_index' or 'x, edge_index, edge_weight'"
        raise ExportError(msg)
    tokens: dict[str, object] = dict(zip(inputs, ("rows", "edges", "weights"), strict=False))
    rows: object = "rows"
    steps: list[Step] = []
    for child in module._children:
        given = [tokens.get(name) for name in child.param_names]
        op = getattr(module, child.name)
        _check_reads(child, op, given, rows)
        steps += called(child.name, op, weighted=given[1:] == ["edges", "weights"], head=head)
        if len(child.return_names) != 1:
            msg = f"{child.name} returns {', '.join(child.return_names)}. {STRAIGHT}"
            raise ExportError(msg)
        rows = tokens[child.return_names[0]] = ("rows after", child.name)

    def run(copy: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Any:
        return copy(*(x, edge_index, edge_weight)[: len(inputs)])

    return Traced(steps, run)


def _check_reads(child: Any, op: Any, given: list[object], rows: object) -> None:
    """Refuse a child of a Sequential that reads something other than the rows before it, and the edges."""
    named = [name for name, token in zip(child.param_names, given, strict=True) if token not in ("edges", "weights")]
    if len(named) > 1:
        refuse_several_rows(child.name, str(getattr(op, "__name__", "")), op, named)
    if given[0] == rows and len(named) == 1:
        return
    if given[0] in ("edges", "weights", None):
        msg = f"{child.name} reads {', '.join(child.param_names)}. {STRAIGHT}"
        raise ExportError(msg)
    raise ExportError(earlier_rows(child.name, child.param_names[0], "the output of the one"))
