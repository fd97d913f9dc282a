"""Traces a forward by torch.fx."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from gnn.pyg.forward.in_place import refuse_overwritten
from gnn.pyg.forward.line import INPUT, Operations
from gnn.pyg.forward.opening import function_step, opened
from gnn.pyg.forward.reading import Reader
from gnn.pyg.refusals import TAKEN, typed_input
from gnn.pyg.running import copy_of
from gnn.pyg.steps import ExportError, Step, Traced
from gnn.rows.jumps import Join, Keep

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

_WEIGHT_NAMES = ("edge_weight", "edge_weights", "edge_attr", "weight", "weights", "w")
_TYPE_NAMES = ("edge_type", "edge_types", "edge_type_index", "rel_type", "relation")


def trace_forward(module: Module, head: str | None) -> Traced:
    """Trace forward(x, edge_index[, edge_weight]) with torch.fx.

    Raises: ExportError at the first operation that cannot be taken over, with its line.
    """
    parameters = list(inspect.signature(module.forward).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    name = type(module).__name__
    if len(positional) < 2 or positional[1].default is not inspect.Parameter.empty:
        msg = f"{name}.forward takes ({', '.join(p.name for p in parameters)}), expected (x, edge_index[, edge_weight])"
        raise ExportError(msg)
    more = [*positional[2:], *(p for p in parameters if p.kind is p.KEYWORD_ONLY)]
    weight_name = _weight_parameter(name, more)
    ops = Operations()
    result = _traced(ops, "", module, INPUT, head=head, edge_inputs=1, weight_name=weight_name)
    if weight_name is None:
        _refuse_unnamed_weights(module, head, [p.name for p in more])

    def run(copy: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Any:
        return copy(x, edge_index, **({} if weight_name is None else {weight_name: edge_weight}))

    return Traced(list(ops.steps(result)), run)


def _weight_parameter(name: str, parameters: list[inspect.Parameter]) -> str | None:
    """The parameter of a forward that takes edge weights, among those past edge_index; None where none does.

    Raises: ExportError where it needs another one.
    """
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    if typed := [one for one in required if one in _TYPE_NAMES]:
        raise ExportError(typed_input(name, typed[0]))
    named = sorted((p.name for p in parameters if p.name in _WEIGHT_NAMES), key=_WEIGHT_NAMES.index)
    first = [p.name for p in parameters[:1] if p.name in required]
    weight_name = next(iter(named + first), None)
    if others := [one for one in required if one != weight_name]:
        msg = f"{name}.forward needs {', '.join(others)}, expected (x, edge_index[, edge_weight]): give it a default"
        raise ExportError(msg)
    return weight_name


def _refuse_unnamed_weights(module: Module, head: str | None, names: list[str]) -> None:
    """Refuse a parameter that is handed to convs as edge weights, but is not called so: weights would be ignored.

    Raises: ExportError naming it.
    """
    for name in names:
        ops = Operations()
        try:
            result = _traced(ops, "", module, INPUT, head=head, edge_inputs=1, weight_name=name)
        except ExportError:  # what it is otherwise, it keeps its default
            continue
        for step in ops.steps(result):
            if step.edge_weights:
                kind = type(module).__name__
                msg = f"{kind}.forward hands {name} to {step.name} as weights of edges: call it edge_weight"
                raise ExportError(msg)


def _traced(
    ops: Operations,
    name: str,
    module: Module,
    rows: str,
    *,
    head: str | None,
    edge_inputs: int,
    weight_name: str | None,
) -> str:
    """Note the operations of a module's forward: it gets the rows, `edge_inputs` more, and edge weights."""
    import torch

    from gnn.pyg.forward.tracer import Tracer, rows_as_tensors

    class Root(torch.nn.Module):
        """Calls the module with what it needs, so that its other parameters keep their defaults."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = copy_of(module)  # a forward may keep what it is given

        def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
            options = {} if weight_name is None else {weight_name: edge_weight}
            return self.inner(*(x, edge_index)[: 1 + edge_inputs], **options)

    root = Root()
    try:
        with rows_as_tensors():
            graph = Tracer(root.inner, head).trace(root)
    except ExportError:
        raise
    except Exception as error:
        msg = f"{name or type(module).__name__} cannot be traced ({type(error).__name__}: {error}). {TAKEN}"
        raise ExportError(msg) from error
    root.inner = module
    refuse_overwritten(graph, root, name)
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op not in ("output", "placeholder"):
            graph.erase_node(node)
    return Reader(ops, graph, root, name, rows, lambda label: _dense if label == head else None).result()


def called(ops: Operations, name: str, op: Any, rows: str, *, weighted: bool, head: str | None) -> str:
    """Note a module or function that is called with these rows, and with edges; returns the name of its rows."""
    from torch.nn import Module

    if not isinstance(op, Module):
        return ops.add(rows, function_step(name, op))
    return _dense(ops, name, op, rows) if name == head else opened(ops, name, op, rows, edge_weights=weighted)


def dense_steps(name: str, module: Module) -> list[Step]:
    """Return the steps of a module that reads rows alone, e.g. a head or a conv's nn.

    Raises: ExportError where a layer reads rows of another than the one before.
    """
    ops = Operations()
    steps = list(ops.steps(_dense(ops, name, module, INPUT)))
    refuse_jumps(name, steps)
    return steps


def refuse_jumps(name: str, steps: list[Step]) -> None:
    """Refuse rows that are kept, in a head or in a conv's nn.

    Raises: ExportError
    """
    for step in steps:
        if isinstance(step.op, Keep | Join):
            msg = f"{name}: {step.name} is read past the layer behind it; a head and a conv's nn are straight lines"
            raise ExportError(msg)


def _dense(ops: Operations, name: str, module: Module, rows: str) -> str:
    """Note the operations of a module that reads rows alone; those of one's own classes are traced."""

    def other(inner: str, part: Module, rows: str) -> str:
        return _traced(ops, inner, part, rows, head=None, edge_inputs=0, weight_name=None)

    return opened(ops, name, module, rows, edge_weights=False, other=other)
