"""Turns a forward that torch.fx can trace into steps: modules, functions, arithmetic with constants."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from gnn.pyg.functions import Made, arithmetic, function_layer
from gnn.pyg.refusals import STRAIGHT, earlier_rows, several_rows, typed_input, why_not_module
from gnn.pyg.steps import ExportError, Step, Traced, class_name, expand, function_step

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

_WEIGHT_NAMES = ("edge_weight", "edge_weights", "edge_attr", "weight", "weights", "w")
_TYPE_NAMES = ("edge_type", "edge_types", "edge_type_index", "rel_type", "relation")
_ARITHMETIC = {
    **{name: name.removeprefix("i") for name in ("add", "iadd", "sub", "isub", "mul", "imul")},
    **{"truediv": "div", "itruediv": "div", "div": "div", "divide": "div", "multiply": "mul", "subtract": "sub"},
}
_LIBRARIES = ("torch", "torch_geometric", "gnn", "importlib", "inspect", "contextlib")


def trace_forward(module: Module, head: str | None) -> Traced:
    """Trace forward(x, edge_index[, edge_weight]) with torch.fx.

    Raises: ExportError when it is no straight line, with the line of the forward that is not.
    """
    parameters = list(inspect.signature(module.forward).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    name = type(module).__name__
    if len(positional) < 2 or positional[1].default is not inspect.Parameter.empty:
        msg = f"{name}.forward takes ({', '.join(p.name for p in parameters)}), expected (x, edge_index[, edge_weight])"
        raise ExportError(msg)
    for p in positional[2:]:
        if p.name in _TYPE_NAMES and p.default is inspect.Parameter.empty:
            raise ExportError(typed_input(name, p.name))
    third = positional[2] if len(positional) > 2 else None
    has_weight = third is not None and (third.name in _WEIGHT_NAMES or third.default is inspect.Parameter.empty)
    weight_name = third.name if third is not None and has_weight else None
    steps = fx_steps(module, "", head, edge_inputs=1, weight_name=weight_name)

    def run(copy: Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Any:
        return copy(x, edge_index, **({} if weight_name is None else {weight_name: edge_weight}))

    return Traced(steps, run)


def fx_steps(module: Module, name: str, head: str | None, *, edge_inputs: int, weight_name: str | None) -> list[Step]:
    """Return the steps of a module's forward; of its inputs it gets the rows, `edge_inputs` more, and edge weights."""
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

        def create_node(self, *args: Any, **options: Any) -> Any:
            node = super().create_node(*args, **options)
            node.meta["line"] = _line()
            return node

    label = name or type(module).__name__
    root = Root()
    was_training = {part: part.training for part in root.modules()}
    try:
        root.eval()
        graph = Tracer().trace(root)
    except ExportError:
        raise
    except Exception as error:
        msg = f"{label} cannot be traced ({type(error).__name__}: {error}). {STRAIGHT}, without branches on data"
        raise ExportError(msg) from error
    finally:
        for part, training in was_training.items():
            part.training = training
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op not in ("output", "placeholder"):
            graph.erase_node(node)
    return list(_Line(graph, root, name, head).steps())


def called(name: str, op: Any, *, weighted: bool, head: str | None) -> list[Step]:
    """Return the steps of a module or function that is called with the rows, and with edges."""
    from torch.nn import Module

    if not isinstance(op, Module):
        return [function_step(name, op)]
    return dense_steps(name, op) if name == head else list(expand(name, op, edge_weights=weighted))


def dense_steps(name: str, module: Module) -> list[Step]:
    """Return the steps of a module that reads rows alone, e.g. a head or GIN's nn."""
    return [inner for step in expand(name, module, edge_weights=False) for inner in _open_dense(step)]


def _open_dense(step: Step) -> Iterator[Step]:
    from torch.nn import Module

    if isinstance(step.op, Module) and not class_name(step.op).startswith(("torch.nn.", "torch_geometric.nn.")):
        yield from fx_steps(step.op, step.name, None, edge_inputs=0, weight_name=None)
    else:
        yield step


def refuse_several_rows(where: str, label: str, op: Any, names: list[str]) -> NoReturn:
    """Refuse an operation, or a module, that reads the rows of several layers.

    Raises: ExportError
    """
    hint = None if op is None else why_not_module(class_name(op))
    if hint is not None:
        msg = f"{where}: {class_name(op)} {hint}"
        raise ExportError(msg)
    raise ExportError(several_rows(where, label, names))


def _line() -> str:
    """Where the forward that is being traced stands: the innermost frame that is no library's."""
    frame = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.split(".")[0] not in _LIBRARIES:
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


class _Line:
    """A traced graph, read from its first node to its last."""

    def __init__(self, graph: Any, root: Module, prefix: str, head: str | None) -> None:
        self._nodes, self._root, self._prefix, self._head = list(graph.nodes), root, prefix, head
        self._rows, self._edges, self._weights = self._nodes[:3]
        self._before = [self._rows]  # all rows so far, the last ones included
        self._constants: dict[Any, Any] = {}

    def steps(self) -> Iterator[Step]:
        """Yield the steps.

        Raises: ExportError at the first node that is none.
        """
        for node in self._nodes[3:]:
            if node.op == "output":
                self._check_result(node.args[0])
                return
            if not self._is_constant(node):
                yield from self._step(node)
                self._rows = node
                self._before.append(node)

    def _name(self, node: Any) -> str:
        where = node.target if isinstance(node.target, str) and node.op != "call_method" else node.name
        return f"{self._prefix}.{where.removeprefix('inner.')}".removeprefix(".")

    def _place(self, node: Any) -> str:
        line = node.meta.get("line")
        return f"{self._name(node)} ({line})" if line else self._name(node)

    def _check_result(self, result: Any) -> None:
        if result is self._rows:
            return
        if result in self._before:
            what = "an earlier layer's output, past its last layer"
        else:
            what = "something other than its last layer's output"
        msg = f"{self._prefix or 'the module'} returns {what}. {STRAIGHT}"
        raise ExportError(msg)

    def _is_constant(self, node: Any) -> bool:
        """Whether the node depends on parameters alone; its value is then kept."""
        if node.op == "get_attr":
            value: Any = self._root
            for part in node.target.split("."):
                value = getattr(value, part)
            self._constants[node] = value
            return True
        inputs = node.all_input_nodes
        if node.op == "call_module" or not inputs or any(one not in self._constants for one in inputs):
            return False
        args, options = self._values(node.args), self._values(node.kwargs)
        if node.op == "call_method":
            self._constants[node] = getattr(args[0], node.target)(*args[1:], **options)
        else:
            self._constants[node] = node.target(*args, **options)
        return True

    def _values(self, given: Any) -> Any:
        """Put the values of constants in the place of their nodes."""
        import torch

        return torch.fx.node.map_arg(given, lambda node: self._constants.get(node, node))

    def _step(self, node: Any) -> Iterator[Step]:
        self._check_reads(node)
        label = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        if node.op == "call_module":
            op = self._root.get_submodule(node.target)
            yield from called(self._name(node), op, weighted=self._weights in node.all_input_nodes, head=self._head)
        elif label.rstrip("_") in _ARITHMETIC:
            yield from self._made(node, self._arithmetic(node, _ARITHMETIC[label.rstrip("_")]))
        else:
            args, options = list(self._values(node.args)), dict(self._values(node.kwargs))
            if args:
                args.pop(0)
            else:
                options.pop("input", None)
            made = function_layer(self._place(node), node.target, args, _without_none(options))
            yield from self._made(node, [made])

    def _made(self, node: Any, layers: list[Made]) -> Iterator[Step]:
        for layer, weights in layers:
            yield Step(self._name(node), layer, weights=weights)

    def _arithmetic(self, node: Any, label: str) -> list[Made]:
        given = [*node.args, *(node.kwargs[name] for name in ("input", "other") if name in node.kwargs)]
        more = sorted(node.kwargs.keys() - {"input", "other"})
        if len(given) != 2 or more:
            msg = f"{self._place(node)}: {label} with {', '.join(more) or given} is not supported"
            raise ExportError(msg)
        if given[0] is given[1]:
            msg = f"{self._place(node)}: {label} of the rows and themselves is not supported"
            raise ExportError(msg)
        rows_first = given[0] is self._rows
        constant = self._values(given[1] if rows_first else given[0])
        try:
            return arithmetic(label, constant, rows_first=rows_first)
        except (TypeError, ValueError) as error:
            msg = f"{self._place(node)}: {error}"
            raise ExportError(msg) from None

    def _check_reads(self, node: Any) -> None:
        """Refuse what reads more than the rows of the step before, and something other than them first."""
        rows = list(dict.fromkeys(one for one in node.all_input_nodes if one in self._before))
        label = str(getattr(node.target, "__name__", node.target)).rstrip("_")
        if len(rows) > 1:
            op = self._root.get_submodule(node.target) if node.op == "call_module" else None
            refuse_several_rows(self._place(node), label, op, [self._called(one) for one in rows])
        first = node.args[0] if node.args else node.kwargs.get("x", node.kwargs.get("input"))
        allowed = {self._edges, self._weights} if node.op == "call_module" else self._constants.keys()
        in_place = label in _ARITHMETIC or first in self._before
        if not rows or not in_place or any(one not in allowed for one in node.all_input_nodes if one not in rows):
            msg = f"{self._place(node)} reads something other than the output of the layer before it. {STRAIGHT}"
            raise ExportError(msg)
        if rows != [self._rows]:
            raise ExportError(earlier_rows(self._place(node), self._called(rows[0]), self._called(self._rows)))

    def _called(self, rows: Any) -> str:
        return "the input" if rows is self._before[0] else self._name(rows)


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
