"""Reads a traced forward from its first operation to its last: modules, functions, arithmetic, joins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.errors import OUT_EDGES, ExportError, refuse
from freshet.gnn.pyg.forward.edge_functions import POOLS
from freshet.gnn.pyg.forward.in_place import gives_its_input, writes
from freshet.gnn.pyg.forward.joins import Stack, joined_rows, reduced
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.forward.opening import opened, opened_with
from freshet.gnn.pyg.forward.parameters import ModuleInputs
from freshet.gnn.pyg.forward.places import label_of, name_of, nodes_in, place_of
from freshet.gnn.pyg.forward.samples import Samples
from freshet.gnn.pyg.forward.several import PART
from freshet.gnn.pyg.functions import Noted, arithmetic, function_layer
from freshet.gnn.pyg.refusals import BY_HAND, CHANGES_EDGES, EDGE_FUNCTIONS, TAKEN
from freshet.gnn.pyg.steps import (
    ConvCall,
    RowsFunction,
    Step,
    adds_attributes,
    along,
    is_read,
    refuse_weights,
    takes_attributes,
    takes_both,
    written_class,
)

Open = Callable[[Operations, str, Any, str], str]

_ARITHMETIC = {
    **{name: name.removeprefix("i") for name in ("add", "iadd", "sub", "isub", "mul", "imul")},
    **dict.fromkeys(("truediv", "itruediv", "div", "divide", "true_divide"), "div"),
    **{"multiply": "mul", "subtract": "sub"},
}
_BY_HAND = {"getitem", "index_select", "gather", "matmul", "mm", "spmm", "scatter", "scatter_add", "index_add"}
_WEIGHTS = {"edge_weight", "edge_attr"}  # what convs call them
_OPTIONS = {"lambda_max"}  # constants that convs are called with


class Reader:
    """A traced graph whose operations are noted one after the other.

    `opens` says of a submodule how it is opened, where that is not the usual way.
    """

    def __init__(
        self,
        ops: Operations,
        graph: Any,
        given: ModuleInputs,
        root: Module,
        prefix: str,
        rows: Sequence[str],
        opens: Callable[[str], Open | None],
        samples: Samples,
    ) -> None:
        """Take the graph, the nodes of its inputs and the names of the rows that these are, and the graph's module."""
        self._ops, self._nodes, self._root, self._prefix, self._opens = ops, list(graph.nodes), root, prefix, opens
        self._samples = samples
        self._rows: dict[Any, str] = dict(zip(given.rows, rows, strict=True))
        self._stacks: dict[Any, Stack] = {}
        self._constants: dict[Any, Any] = {}

    def results(self) -> list[str]:
        """Note all operations; returns the names of the rows that the forward returns, one or a list of them.

        Raises: ExportError at the first node that cannot be taken over.
        """
        for node in self._nodes:
            if node.op == "output":
                break
            if node.op != "placeholder" and node not in self._rows and not self._is_constant(node):
                self._read(node)
        result = node.args[0]
        for one in node.all_input_nodes:
            self._settle(one)
        listed = list(result) if isinstance(result, tuple | list) else [result]
        if not all(hasattr(one, "all_input_nodes") and one in self._rows for one in listed):
            several = ": several things" if isinstance(result, tuple | list | dict) else ""
            refuse(f"{self._prefix or 'the module'} returns something other than the rows of a layer{several}. {TAKEN}")
        return [self._rows[one] for one in listed]

    def _settle(self, node: Any) -> None:
        """Have what a node gives be rows, where it is not yet."""

    def _read(self, node: Any) -> None:
        read = list(nodes_in((node.args, node.kwargs)))
        rows = [self._rows[one] for one in read if one in self._rows]
        stacks = [self._stacks[one] for one in read if one in self._stacks]
        if node.op == "call_module" and rows and not stacks:
            self._rows[node] = self._module(node)
        elif stacks:
            self._unstack(node, stacks[0])
        elif self._samples.take(node, self._rows, self._constants):
            pass
        elif read and read[0] in self._samples and gives_its_input(self._submodule(node)):
            self._samples.same(node, read[0])
        elif rows and node.args and self._samples.keeps_rows(node, self._rows, self._constants):
            self._rows[node] = rows[0]
        elif any(one not in self._rows and one not in self._constants for one in read) or not rows:
            raise ExportError(self._reads_other(node))
        elif len(rows) > 1 or isinstance(node.args[0] if node.args else None, tuple | list):
            made = joined_rows(self._ops, self._place(node), self._name(node), _label(node), rows, _options(node, read))
            if isinstance(made, str) and writes(node):
                self._ops.in_place(made)
            (self._stacks if isinstance(made, Stack) else self._rows)[node] = made  # type: ignore[assignment]
        else:
            self._rows[node] = self._function(node, rows[0])

    def _submodule(self, node: Any) -> Module | None:
        return self._root.get_submodule(node.target) if node.op == "call_module" else None

    def _called(self, node: Any) -> Any:
        """Return the module that a node calls; a conv against the edges is called with these the other way round."""
        op = self._root.get_submodule(node.target)
        return along(op) if "turned" in node.meta else op

    def _module(self, node: Any) -> str:
        op, name = self._called(node), self._name(node)
        try:
            given = inspect.signature(op.forward).bind(*node.args, **node.kwargs)
        except TypeError as error:
            msg = f"{self._place(node)}: {type(op).__name__}.forward: {error}"
            raise ExportError(msg) from None
        self._unpair(node, op, given.arguments)
        options = {
            name: value
            for name, value in self._values(dict(given.arguments)).items()
            if not list(nodes_in(value)) and name in _OPTIONS
        }
        given.arguments.update(dict.fromkeys(options))
        read = list(nodes_in(list(given.arguments.values())))  # in the order of its parameters
        rows = [self._rows[one] for one in read if one in self._rows]
        others = {one for one in read if one not in self._rows}
        weights = {one for one in others if self._samples.is_weights(one)}
        weigh = {name for name, value in given.arguments.items() if any(value is one for one in weights)}
        attributes = {one for one in others if self._samples.is_attributes(one)}
        known = all(one in weights or one in attributes or self._samples.is_edges(one) for one in others)
        if any(map(self._samples.is_turned, others)):
            msg = f"{self._place(node)} reads edges the other way round"
            raise ExportError(msg).of(OUT_EDGES)
        self._refuse_confused(node, op, weigh, attributed=bool(attributes))
        own = is_read(op)
        if read[0] not in self._rows or not known or not (own or weigh <= _WEIGHTS):
            raise ExportError(self._reads_other(node))
        weighted, special = bool(weights), None if written_class(op) else self._opens(name)
        if len(rows) > 1 and own and special is None:
            call = self._given(node, given.arguments, weigh)
            step = Step(name, RowsFunction(op, tuple(rows)), weighted, attributes=bool(attributes), given=call)
            return self._ops.called(step, rows)
        if len(rows) > 1:
            return opened_with(self._ops, self._place(node), name, op, rows, edge_weights=weighted)
        if special is not None:
            return special(self._ops, name, op, rows[0])
        attributed = bool(attributes)
        how = self._given(node, given.arguments, weigh) if own else None
        return opened(
            self._ops, name, op, rows[0], edge_weights=weighted, attributes=attributed, options=options, given=how
        )

    def _given(self, node: Any, arguments: Mapping[str, Any], weights: set[str]) -> ConvCall:
        """Return how a conv that is read is called."""
        nodes = {name: value for name, value in arguments.items() if list(nodes_in(value))}
        rows = [name for name, value in nodes.items() if value in self._rows]
        edges = next((name for name, value in nodes.items() if self._samples.is_edges(value)), "edge_index")
        attributes = next((name for name, value in nodes.items() if self._samples.is_attributes(value)), None)
        constants = {name: value for name, value in arguments.items() if name not in nodes}
        several = tuple(rows) if len(rows) > 1 else ()
        return ConvCall(
            rows[0],
            edges,
            next(iter(weights), None),
            attributes,
            constants,
            parameters=several,
            part=node.meta.get(PART),
        )

    def _unpair(self, node: Any, op: Module, arguments: dict[str, Any]) -> None:
        """Have `conv((x, x), ...)` be `conv(x, ...)`.

        Raises: ExportError for a pair of different rows.
        """
        name, pair = next(iter(arguments.items()))
        if not isinstance(pair, tuple) or len(pair) != 2 or not _is_conv(op):
            return
        rows = [self._rows.get(one) if hasattr(one, "all_input_nodes") else None for one in pair]
        if None in rows or rows[0] != rows[1]:
            refuse(f"{self._place(node)} is called with two kinds of rows, as on a bipartite graph: give it one, x")
        arguments[name] = pair[0]

    def _refuse_confused(self, node: Any, op: Any, weigh: Collection[str], *, attributed: bool) -> None:
        """Refuse attributes where a conv takes a weight or none, and weights where it takes attributes alone.

        `weigh` are the parameters that get weights.

        Raises: ExportError naming the conv.
        """
        kind = type(op).__name__
        if attributed and not takes_attributes(op) and not adds_attributes(op):
            msg = f"{self._place(node)}: {kind} is given attributes of edges, and reads none here"
            msg += f" (edge_dim={op.edge_dim})" if hasattr(op, "edge_dim") else ""
            msg += ". Leave them out of its call, or name what are weights edge_weight"
            raise ExportError(msg)
        if weigh and takes_attributes(op) and not takes_both(op, weigh):
            refuse(f"{self._place(node)}: {kind} is given weights of edges, and reads attributes: hand it edge_attr")
        if weigh:
            refuse_weights(self._place(node), op)

    def _function(self, node: Any, rows: str) -> str:
        label = _label(node)
        if label in _ARITHMETIC.values() and _raw_label(node) in _ARITHMETIC:
            return self._made(node, rows, self._arithmetic(node, label))
        first = node.args[0] if node.args else node.kwargs.get("input")
        if first not in self._rows:
            raise ExportError(self._reads_other(node))
        args, options = list(self._values(node.args)), dict(self._values(node.kwargs))
        if args:
            args.pop(0)
        else:
            options.pop("input", None)
        given = {name: value for name, value in options.items() if value is not None}
        if label == "square" or (label in ("pow", "ipow") and _is_two([*args, *given.values()])):
            made = self._ops.join(self._name(node), "product", [rows, rows])
            if writes(node):
                self._ops.in_place(made)
            return made
        return self._made(node, rows, [function_layer(self._place(node), node.target, args, given)])

    def _made(self, node: Any, rows: str, layers: Sequence[Noted]) -> str:
        for layer, weights in layers:
            rows = self._ops.add(rows, Step(self._name(node), layer, weights=weights), writes=writes(node))
        return rows

    def _arithmetic(self, node: Any, label: str) -> Sequence[Noted]:
        given = [*node.args, *(node.kwargs[name] for name in ("input", "other") if name in node.kwargs)]
        more = sorted(node.kwargs.keys() - {"input", "other"})
        if len(given) != 2 or more:
            refuse(f"{self._place(node)}: {label} with {', '.join(more) or given} is not supported")
        rows_first = given[0] in self._rows
        constant = self._values(given[1] if rows_first else given[0])
        try:
            return arithmetic(label, constant, rows_first=rows_first)
        except (TypeError, ValueError) as error:
            msg = f"{self._place(node)}: {error}"
            raise ExportError(msg) from None

    def _unstack(self, node: Any, stack: Stack) -> None:
        """Take `stack(...).mean(dim)` and the like; `max` and `min` give places too, which nobody can read."""
        label = _raw_label(node)
        if label in ("getitem", "getattr") and node.args[0] in self._rows and node.args[1] in (0, "values"):
            self._rows[node] = self._rows[node.args[0]]
            return
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", node.kwargs.get("start_dim"))
        dim = None if label == "flatten" and len(node.args) + len(node.kwargs) > 2 else dim
        self._rows[node] = reduced(self._ops, self._place(node), self._name(node), label, stack, dim)
        if label in ("max", "min"):
            self._stacks[node] = stack

    def _name(self, node: Any) -> str:
        return name_of(node, self._prefix)

    def _place(self, node: Any) -> str:
        return place_of(node, self._prefix)

    def _reads_other(self, node: Any) -> str:
        read, inside = list(nodes_in((node.args, node.kwargs))), node.meta.get("inside")
        inside = inside or next((one for one in POOLS if one == label_of(node)), None)
        others = [one for one in read if one in self._samples]
        if inside:
            return f"{inside} ({node.meta['line']}) {EDGE_FUNCTIONS[inside]}"
        msg = f"{self._place(node)} reads something other than rows of layers, edges and constants"
        if any(self._samples.is_number(one) for one in others):
            return f"{msg}: a size of the graph, which every event may change"
        if label_of(node) in _BY_HAND and others and any(one in self._rows for one in read):
            return f"{msg}: {BY_HAND}"
        if others and node.op == "call_module":
            return f"{msg}: it gets {self._samples.described(others)}"
        return f"{msg}: {CHANGES_EDGES}" if others else f"{msg}. {TAKEN}"

    def _is_constant(self, node: Any) -> bool:
        """Return whether the node depends on parameters alone; its value is then kept."""
        if node.op == "get_attr":
            value: Any = self._root
            for part in node.target.split("."):
                value = getattr(value, part)
            self._constants[node] = value.detach().clone() if hasattr(value, "detach") else value
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
        return torch.fx.node.map_arg(given, lambda node: self._constants.get(node, node))


def _is_conv(module: Module) -> bool:
    return isinstance(module, MessagePassing)


def _is_two(given: list[Any]) -> bool:
    return len(given) == 1 and isinstance(given[0], int | float) and given[0] == 2


def _raw_label(node: Any) -> str:
    return label_of(node).rstrip("_")


def _label(node: Any) -> str:
    label = _raw_label(node)
    return _ARITHMETIC.get(label, label)


def _options(node: Any, read: list[Any]) -> dict[str, Any]:
    """Return the other arguments of a function of several rows, by name; a positional one is its `dim`."""
    options = {name: value for name, value in node.kwargs.items() if not list(nodes_in(value))}
    places = [value for value in node.args if not list(nodes_in(value))]
    return options | ({"dim": places[0]} if places else {})
