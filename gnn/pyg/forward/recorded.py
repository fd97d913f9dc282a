"""Reads what stands between the convs of a forward as it runs: reshaped rows, recurrent cells, functions of several."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch.nn import Module
from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.encoded_conv import FrontedConv
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.again import Made, TracedFunction, traced_again
from freshet.gnn.pyg.forward.asked import Asked
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.forward.places import label_of
from freshet.gnn.pyg.forward.reading import Reader
from freshet.gnn.pyg.norms import reads_whole_graph
from freshet.gnn.pyg.steps import ConvCall, RowsFunction, Step, class_name, is_read, written_class

_ADDS = ("add", "iadd", "stack", "cat", "maximum", "minimum")
_REDUCES = ("sum", "mean", "max", "min", "prod", "amax", "amin")


class RecordingReader(Reader):
    """A reader that has functions of rows, and modules of them, run and recorded, where it is to."""

    def __init__(self, *given: Any, asked: Asked) -> None:
        """Take what a reader takes, and what is asked for."""
        super().__init__(*given)
        self._recorded, self._is_of_head = asked.recorded, asked.is_of_head
        self._waiting = dict[Any, None]()  # what is made of rows, and no rows yet
        self._of_convs = set[Any]()

    def _read(self, node: Any) -> None:
        if self._recorded:
            if self._samples.take(node, self._rows, self._constants):
                return
            if not self._adds_convs(node) and self._is_function(node, node.all_input_nodes):
                self._waiting[node] = None
                return
            if self._fronts(node):
                self._rows[node] = self._fronted(node)
                self._of_convs.add(node)
                return
            self._settle_read(node)
        super()._read(node)
        if self._recorded and node in self._rows:
            self._of_convs.add(node)

    def _adds_convs(self, node: Any) -> bool:
        """Return whether an operation puts together what convs give, as those of several relations."""
        read, label = node.all_input_nodes, label_of(node)
        if any(one in self._stacks for one in read):
            return True
        if label == "stack" and not all(label_of(user) in _REDUCES for user in node.users):
            return False
        return label in _ADDS and len(read) > 0 and all(one in self._of_convs for one in read)

    def _fronts(self, node: Any) -> bool:
        """Return whether a conv reads rows of several dimensions: its vertices are the first of them (node_dim=0)."""
        if (
            node.op != "call_module"
            or type(self._ops) is not Operations
            or not any(one in self._waiting for one in node.all_input_nodes)
        ):
            return False
        op = self._root.get_submodule(node.target)
        return isinstance(op, MessagePassing) and op.node_dim == 0 and is_read(op)

    def _fronted(self, node: Any) -> str:
        """Note a conv together with the function of rows in front of it.

        Raises: ExportError where it is called with more than that function, edges and what these have.
        """
        op, names = self._called(node), list[str]()
        try:
            (parameter, x), *rest = inspect.signature(op.forward).bind(*node.args, **node.kwargs).arguments.items()
        except TypeError as error:
            msg = f"{self._place(node)}: {type(op).__name__}.forward: {error}"
            raise ExportError(msg) from None
        given, constants = dict[str, str](), dict[str, Any]()
        for name, value in rest:
            is_constant = not hasattr(value, "all_input_nodes") or value in self._constants
            what = None if is_constant else self._samples.what_of(value)
            if what is not None:
                given[what] = name
            elif is_constant:
                constants[name] = self._values(value)
            else:
                raise ExportError(self._reads_other(node))
        function = self._function_of(x, names) if x in self._waiting and "edges" in given else None
        if function is None or "turned" in node.meta:
            raise ExportError(self._reads_other(node))
        parameters = tuple(f"rows{i}" for i in range(len(names)))
        weights, attributes = given.get("weights"), given.get("attributes")
        call = ConvCall("rows0", given["edges"], weights, attributes, constants, parameters=parameters)
        made = RowsFunction(FrontedConv(op, parameter, function), tuple(names))
        has = weights is not None, attributes is not None
        return self._ops.called(Step(self._name(node), made, has[0], attributes=has[1], given=call), names)

    def _settle_read(self, node: Any) -> None:
        """Have all that an operation reads be rows."""
        for one in node.all_input_nodes:
            self._settle(one)

    def _is_function(self, node: Any, read: Sequence[Any]) -> bool:
        """Return whether an operation reads rows, what was made of these, their sizes and constants alone."""
        of_rows = {one for one in read if one in self._rows or one in self._waiting or self._samples.is_size(one)}
        if not of_rows or not all(one in of_rows or one in self._constants for one in read):
            return False
        if node.op == "call_module":
            name = self._name(node)
            kept = self._opens(name) is not None or self._is_of_head(name)
            return not kept and is_of_rows(self._root.get_submodule(node.target))
        return True

    def _settle(self, node: Any) -> None:
        """Have what waits be rows, where an operation that is no function of rows reads it."""
        if node not in self._waiting:
            return
        names = list[str]()
        function = self._function_of(node, names)
        if function is None or not names:
            raise ExportError(self._reads_other(node))
        self._rows[node] = self._ops.function(self._name(node), function, names)
        del self._waiting[node]

    def _function_of(self, node: Any, names: list[str]) -> TracedFunction | None:
        """Return the function that makes a result of rows, of which `names` gets the names; None of other inputs."""

        def given(one: Any) -> str | None:
            if (name := self._rows.get(one)) is None:
                return None
            if name not in names:
                names.append(name)
            return f"rows{names.index(name)}"

        return self._again(node, given)

    def _again(self, node: Any, given: Callable[[Any], str | None]) -> TracedFunction | None:
        """Return the function that makes a result of constants and of what `given` has a parameter for.

        None where it reads another input.
        """
        needed, stack = set[Any](), [node]
        while stack:
            one = stack.pop()
            if one in needed or one in self._constants or given(one) is not None:
                continue
            if one.op == "placeholder":
                return None
            needed.add(one)
            stack += one.all_input_nodes

        def outside(one: Any) -> Any:
            if one in self._constants:
                return self._constants[one]
            parameter = given(one)
            assert parameter is not None  # by what is needed
            return Made(parameter)

        return traced_again([one for one in self._nodes if one in needed], self._root, outside)


def is_of_rows(module: Module) -> bool:
    """Return whether a module of torch's or PyG's may be a function of each row."""
    if written_class(module) is not None or any(isinstance(one, MessagePassing) for one in module.modules()):
        return False
    if any(reads_whole_graph(one) is not None for one in module.modules()):
        return False
    return class_name(module).startswith(("torch.nn.", "torch_geometric.nn."))
