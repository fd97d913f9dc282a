"""Turns a module of any supported form into its steps."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import LightGCN, MessagePassing, Sequential
from torch_geometric.nn.models.basic_gnn import BasicGNN

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.asked import FORWARD, Asked
from freshet.gnn.pyg.forward.fx import called, trace_forward, traced_function
from freshet.gnn.pyg.forward.hops import light_gcn
from freshet.gnn.pyg.forward.line import INPUT, Operations
from freshet.gnn.pyg.forward.opening import opened, opened_with
from freshet.gnn.pyg.forward.untouched import is_plain
from freshet.gnn.pyg.own.conv import call_by_names
from freshet.gnn.pyg.refusals import TAKEN, several_rows
from freshet.gnn.pyg.steps import (
    Traced,
    adds_attributes,
    class_name,
    is_read,
    parts_of,
    takes_attributes,
)

# What holds the module that makes the rows, and under which name.
_WRAPPERS = {
    **dict.fromkeys(("torch_geometric.nn.GAE", "torch_geometric.nn.VGAE"), "encoder"),
    **dict.fromkeys(
        (
            "torch.nn.DataParallel",
            "torch.nn.parallel.distributed.DistributedDataParallel",
            "torch.optim.swa_utils.AveragedModel",
            "torch_geometric.nn.DataParallel",
        ),
        "module",
    ),
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
}


def refuse_wrapped(module: Module) -> None:
    """Refuse what holds the module that makes the rows.

    Raises: ExportError naming that module.
    """
    if (inner := _WRAPPERS.get(class_name(module))) is not None:
        msg = f"{type(module).__name__} wraps the module that is to be exported: give its .{inner}"
        msg += ", with output=0 for the means" if class_name(module) == "torch_geometric.nn.VGAE" else ""
        raise ExportError(msg)


def trace(module: Module, head: str | None = None, asked: Asked = FORWARD) -> Traced:
    """Return the steps of a module and how to run it; the submodule `head` is traced as a part of its own.

    `asked`: which method of it, and which of its results.

    Raises: ExportError when it does something that cannot be taken over.
    """
    refuse_no_method(module, asked.method)
    if asked.method != "forward":
        return trace_forward(module, head, asked)
    if is_plain(module, Sequential):
        return _sequential(module, head, asked)
    whole = None if asked.opened else _whole(module, added=bool(asked.edge_features))
    if whole is None:
        return trace_forward(module, head, asked)
    if asked.output is not None:
        asked.of(module, None)
    return whole


def refuse_no_method(module: Module, method: str) -> None:
    """Refuse the name of what is no method of a module.

    Raises: ExportError
    """
    if not callable(getattr(module, method, None)):
        own = [one for kind in type(module).__mro__ if not kind.__module__.startswith("torch.") for one in vars(kind)]
        methods = sorted({one for one in own if not one.startswith("_") and callable(getattr(module, one, None))})
        refuse(f"method={method!r} is no method of {type(module).__name__}; it has {', '.join(methods)}")


def _whole(module: Module, *, added: bool) -> Traced | None:
    """The steps of a module whose forward need not be traced; None for any other.

    `added`: whether convs that may do without attributes of edges get them.
    """
    ops = Operations()
    attributes = added or takes_attributes(module)
    if class_name(module) == "torch.nn.ModuleList":
        result = _module_list(ops, "", module, INPUT, added=added)
        return Traced(list(ops.steps(result)), partial(_run_module_list, added=added))
    if isinstance(module, MessagePassing):
        rows = opened(ops, "conv", module, INPUT, edge_weights=True, attributes=attributes)
        return Traced(list(ops.steps(rows)), partial(_run_conv, added=added))
    if isinstance(module, LightGCN) and not is_plain(module, LightGCN):
        msg = f"{type(module).__name__} is a LightGCN with methods of its own: export LightGCN itself, or name what "
        raise ExportError(msg + "makes the rows of vertices, as in export_model(module, folder, method=...)")
    if isinstance(module, LightGCN):
        return Traced(list(ops.steps(light_gcn(ops, module, INPUT))), _run_light_gcn)
    if is_plain(module, BasicGNN):
        rows = opened(ops, "", module, INPUT, edge_weights=True, attributes=attributes)
        return Traced(list(ops.steps(rows)), _run_basic_gnn)
    return None


def _module_list(ops: Operations, name: str, module: Module, rows: str, *, added: bool) -> str:
    for child_name, child in parts_of(module):
        full = f"{name}.{child_name}".removeprefix(".")
        if class_name(child) == "torch.nn.ModuleList":
            rows = _module_list(ops, full, child, rows, added=added)
        else:
            attributes = added or takes_attributes(child)
            rows = opened(ops, full, child, rows, edge_weights=True, attributes=attributes)
    return rows


def _run_module_list(
    module: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor, *, added: bool
) -> Tensor:
    for _, child in parts_of(module):
        if class_name(child) == "torch.nn.ModuleList":
            x = _run_module_list(child, x, edge_index, edge_weight, edge_attr, added=added)
        elif isinstance(child, MessagePassing):
            x = _run_conv(child, x, edge_index, edge_weight, edge_attr, added=added)
        elif isinstance(child, BasicGNN):
            x = _run_basic_gnn(child, x, edge_index, edge_weight, edge_attr)
        else:
            x = child(x)
    return x


def _run_conv(
    module: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor, *, added: bool
) -> Tensor:
    if is_read(module):
        how = call_by_names(module)
        given = {how.rows: x, how.edges: edge_index, how.weights: edge_weight, how.attributes: edge_attr}
        options = {name: value for name, value in given.items() if name is not None}
        by_name: Tensor = module(**options, **how.constants)
        return by_name
    if takes_attributes(module) or (added and adds_attributes(module)):
        of_attributes: Tensor = module(x, edge_index, edge_attr=edge_attr)
        return of_attributes
    weighted = "edge_weight" in inspect.signature(module.forward).parameters
    result: Tensor = module(x, edge_index, edge_weight) if weighted else module(x, edge_index)
    return result


def _run_basic_gnn(module: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor) -> Tensor:
    if takes_attributes(module):
        of_attributes: Tensor = module(x, edge_index, edge_attr=edge_attr)
        return of_attributes
    return module(x, edge_index, edge_weight=edge_weight if module.supports_edge_weight else None)


def _run_light_gcn(module: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor) -> Tensor:
    """Its embeddings are what comes in: a row of features for each vertex."""
    module.embedding.weight = torch.nn.Parameter(x)
    result: Tensor = module.get_embedding(edge_index, edge_weight)
    return result


def _sequential(module: Any, head: str | None, asked: Asked) -> Traced:
    """Read the headers of PyG's Sequential: its `forward` is made from a template that fx cannot read."""
    inputs = list(module.signature.param_dict)
    attributes = _attributes_of(module, inputs[2:])
    if len(inputs) - (attributes is not None) not in (2, 3):
        refuse(f"Sequential takes {inputs}, expected 'x, edge_index' or 'x, edge_index, edge_weight'")
    ops, edges = Operations(), [name for name in inputs[1:] if name != attributes]
    named: dict[str, list[str]] = {inputs[0]: [INPUT]}
    last = [INPUT]
    for child in module._children:
        rows = [one for name in child.param_names for one in named.get(name, [])]
        if not rows or child.param_names[0] not in named or not set(child.param_names) <= {*named, *inputs[1:]}:
            refuse(f"{child.name} reads {', '.join(child.param_names)}. {TAKEN}")
        last = _child(ops, module, child, rows, edges, (head, attributes))
        names = child.return_names
        if len(names) not in (1, len(last)):
            refuse(f"{child.name} returns {', '.join(names)}. {TAKEN}")
        named |= {names[0]: last} if len(names) == 1 else {name: [one] for name, one in zip(names, last, strict=True)}

    def run(copy: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor) -> Any:
        given = [x, *(edge_attr if name == attributes else edge_weight for name in inputs[1:])]
        given[1] = edge_index
        return asked.of(copy, copy(*given))

    result = asked.of(module, last if len(last) > 1 else last[0])
    if isinstance(result, list):
        refuse("Sequential returns the rows of several layers: say which, as in export_model(module, folder, output=0)")
    return Traced(list(ops.steps(result)), run)


def _attributes_of(module: Any, inputs: list[str]) -> str | None:
    """The input of a Sequential that holds attributes of edges; None where no conv reads any.

    Raises: ExportError for an input that is handed on as attributes and as a weight.
    """
    child_of = {child.name: getattr(module, child.name) for child in module._children}
    uses = [
        (name, _takes_as_attributes(child_of[child.name], place), child.name)
        for child in module._children
        for place, name in enumerate(child.param_names)
        if name in inputs
    ]
    found = next((name for name, is_attribute, _ in uses if is_attribute), None)
    for name, is_attribute, child in uses:
        if (name == found) != is_attribute:
            what = "attributes of edges" if is_attribute else "a weight"
            refuse(f"{child} gets {name} as {what}, and another conv as something else: have an input for each")
    return found


def _takes_as_attributes(op: Any, place: int) -> bool:
    """Return whether a child of a Sequential takes its argument at a place as attributes of edges."""
    if is_read(op):
        return list(inspect.signature(op.forward).parameters)[place] == call_by_names(op).attributes
    return takes_attributes(op) or adds_attributes(op)


def _child(
    ops: Operations, module: Any, child: Any, rows: list[str], edges: list[str], named: tuple[str | None, str | None]
) -> list[str]:
    """Note a child of a Sequential; returns the name of its rows, or those of the rows that it lists.

    `named`: the head, and the input of attributes.
    """
    op, weighted = getattr(module, child.name), edges[1:] != [] and edges[-1] in child.param_names
    if not isinstance(op, Module):
        try:
            return traced_function(ops, child.name, op, rows)
        except ExportError as error:
            if len(rows) == 1:
                raise
            msg = f"{error}. {several_rows(child.name, str(getattr(op, '__name__', op)), rows)}"
            raise ExportError(msg) from error
    if len(rows) == 1:
        attributed = named[1] is not None and named[1] in child.param_names
        return [called(ops, child.name, op, rows[0], weighted=weighted, attributed=attributed, head=named[0])]
    return [opened_with(ops, child.name, child.name, op, rows, edge_weights=weighted)]
