"""Turns a module of any supported form into its steps."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gnn.pyg.steps import ExportError, Step, Traced, class_name, expand, function_layer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

_WEIGHT_NAMES = ("edge_weight", "edge_weights", "edge_attr", "weight", "weights", "w")
_STRAIGHT = "Freshet takes straight lines only: each layer reads the output of the one before"


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
    return _fx(module, head)


def dense_steps(name: str, module: Module) -> list[Step]:
    """Return the steps of a module that reads rows alone, e.g. a head or GIN's nn."""
    return [inner for step in expand(name, module, edge_weights=False) for inner in _open_dense(step)]


def _open_dense(step: Step) -> Iterator[Step]:
    from torch.nn import Module

    if isinstance(step.op, Module) and not class_name(step.op).startswith(("torch.nn.", "torch_geometric.nn.")):
        yield from _fx_steps(step.op, step.name, None, edge_inputs=0, weight_name=None)
    else:
        yield step


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
        if given[0] != rows or any(token not in ("edges", "weights") for token in given[1:]):
            msg = f"{child.name} reads {', '.join(child.param_names)}. {_STRAIGHT}"
            raise ExportError(msg)
        op = getattr(module, child.name)
        steps += _called(child.name, op, weighted=given[1:] == ["edges", "weights"], head=head)
        if len(child.return_names) != 1:
            msg = f"{child.name} returns {', '.join(child.return_names)}. {_STRAIGHT}"
            raise ExportError(msg)
        rows = tokens[child.return_names[0]] = ("rows after", child.name)

    def run(copy: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Any:
        return copy(*(x, edge_index, edge_weight)[: len(inputs)])

    return Traced(steps, run)


def _called(name: str, op: Any, *, weighted: bool, head: str | None) -> list[Step]:
    from torch.nn import Module

    if not isinstance(op, Module):
        return [Step(name, function_layer(name, op, (), {}))]
    return dense_steps(name, op) if name == head else list(expand(name, op, edge_weights=weighted))


def _fx(module: Module, head: str | None) -> Traced:
    """Trace forward(x, edge_index[, edge_weight]) with torch.fx."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    name = type(module).__name__
    if len(positional) < 2 or positional[1].default is not inspect.Parameter.empty:
        msg = f"{name}.forward takes ({', '.join(p.name for p in parameters)}), expected (x, edge_index[, edge_weight])"
        raise ExportError(msg)
    third = positional[2] if len(positional) > 2 else None
    has_weight = third is not None and (third.name in _WEIGHT_NAMES or third.default is inspect.Parameter.empty)
    weight_name = third.name if third is not None and has_weight else None
    steps = _fx_steps(module, "", head, edge_inputs=1, weight_name=weight_name)

    def run(copy: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Any:
        return copy(x, edge_index, **({} if weight_name is None else {weight_name: edge_weight}))

    return Traced(steps, run)


def _fx_steps(module: Module, name: str, head: str | None, *, edge_inputs: int, weight_name: str | None) -> list[Step]:
    import torch

    class Root(torch.nn.Module):
        """Calls the module with what it needs, so that its other parameters keep their defaults."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
            options = {} if weight_name is None else {weight_name: edge_weight}
            return self.inner(*(x, edge_index)[: 1 + edge_inputs], **options)

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            if m is module:
                return False
            if head is not None and module_qualified_name == f"inner.{head}":
                return True
            return type(m).__module__.startswith("torch_geometric.") or super().is_leaf_module(m, module_qualified_name)

    label = name or type(module).__name__
    root = Root()
    was_training = module.training
    try:
        root.eval()
        graph = Tracer().trace(root)
    except ExportError:
        raise
    except Exception as error:
        msg = f"{label} cannot be traced ({type(error).__name__}: {error}). {_STRAIGHT}, without branches on data"
        raise ExportError(msg) from error
    finally:
        root.train(was_training)
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op not in ("output", "placeholder"):
            graph.erase_node(node)
    return list(_walk(graph, root, name, head))


def _walk(graph: Any, root: Module, prefix: str, head: str | None) -> Iterator[Step]:
    nodes = list(graph.nodes)
    rows, edges, weights = nodes[:3]
    for node in nodes[3:]:
        where = node.target if isinstance(node.target, str) else node.name
        where = f"{prefix}.{where.removeprefix('inner.')}".removeprefix(".")
        if node.op == "output":
            if node.args[0] is not rows:
                msg = f"{prefix or 'the module'} returns something other than its last layer's output. {_STRAIGHT}"
                raise ExportError(msg)
            return
        if node.op == "get_attr" or node.target is operator.getitem:
            msg = f"{where}: {node.format_node()} is no layer. {_STRAIGHT}"
            raise ExportError(msg)
        options = {k: v for k, v in node.kwargs.items() if v is not None}
        args = list(node.args)
        given = args.pop(0) if args else options.pop("x", options.pop("input", None))
        others = [value for value in (*args, *options.values()) if hasattr(value, "op")]
        if given is not rows or any(value not in (edges, weights) for value in others):
            msg = f"{where} reads something other than the output of the layer before it. {_STRAIGHT}"
            raise ExportError(msg)
        if node.op == "call_module":
            op = root.get_submodule(node.target)
            yield from _called(where, op, weighted=weights in others, head=head)
        else:
            yield Step(where, function_layer(where, node.target, args, options))
        rows = node
