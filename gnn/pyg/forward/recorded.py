"""Reads what stands between the convs of a forward as it runs: reshaped rows, recurrent cells, functions of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import Module, ModuleList
from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.places import RUNS_AGAIN, label_of, standing_at
from freshet.gnn.pyg.forward.reading import Reader
from freshet.gnn.pyg.norms import reads_whole_graph
from freshet.gnn.pyg.steps import class_name, written_class

_ADDS = ("add", "iadd", "stack", "cat", "maximum", "minimum")
_REDUCES = ("sum", "mean", "max", "min", "prod", "amax", "amin")


class Made(NamedTuple):
    """The result of an earlier operation, by its number, or the rows of that parameter."""

    of: int | str


class _Call(NamedTuple):
    """An operation of a traced graph. kind: that of torch.fx; target: a function, or the name of a method or part."""

    kind: str
    target: Any
    args: Any
    options: Any
    place: str


class TracedFunction(Module):
    """Runs operations of a traced forward again, from rows to one result."""

    def __init__(self, calls: Sequence[_Call], parts: Sequence[Module]) -> None:
        """Take the operations in order; the target of one that calls a module is its number among `parts`."""
        super().__init__()
        self._calls, self.parts = list(calls), ModuleList(parts)

    def forward(self, **rows: Any) -> Any:
        """Return the result of the last operation, given rows0, rows1 and so on."""
        made = list[Any]()

        def of(given: Any) -> Any:
            if isinstance(given, Made):
                return rows[given.of] if isinstance(given.of, str) else made[given.of]
            if isinstance(given, list | tuple):
                return type(given)(map(of, given))
            if isinstance(given, dict):
                return {name: of(value) for name, value in given.items()}
            return slice(of(given.start), of(given.stop), of(given.step)) if isinstance(given, slice) else given

        for call in self._calls:
            args, options = of(call.args), of(call.options)
            with standing_at(call.place):
                if call.kind == "call_module":
                    made.append(self.parts[call.target](*args, **options))
                elif call.kind == "call_method":
                    made.append(getattr(args[0], call.target)(*args[1:], **options))
                else:
                    made.append(call.target(*args, **options))
        return made[-1]


RUNS_AGAIN.add(TracedFunction.forward.__code__)


class RecordingReader(Reader):
    """A reader that has functions of rows, and modules of them, run and recorded, where it is to."""

    def __init__(self, *given: Any, recorded: bool) -> None:
        """Take what a reader takes, and whether it records."""
        super().__init__(*given)
        self._recorded = recorded
        self._waiting = dict[Any, None]()  # what is made of rows, and no rows yet
        self._of_convs = set[Any]()

    def _read(self, node: Any) -> None:
        if self._recorded:
            if self._samples.take(node, self._rows, self._constants):
                return
            if not self._adds_convs(node) and self._is_function(node, node.all_input_nodes):
                self._waiting[node] = None
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
            return self._opens(self._name(node)) is None and _is_of_rows(self._root.get_submodule(node.target))
        return True

    def _settle(self, node: Any) -> None:
        """Have what waits be rows, where an operation that is no function of rows reads it."""
        if node not in self._waiting:
            return
        calls, parts, names, numbers = list[_Call](), list[Module](), list[str](), dict[Any, int]()
        needed = self._behind(node)

        def given(one: Any) -> Any:
            if one in numbers:
                return Made(numbers[one])
            if one in self._constants:
                return self._constants[one]
            if (name := self._rows[one]) not in names:
                names.append(name)
            return Made(f"rows{names.index(name)}")

        for one in [other for other in self._nodes if other in needed]:
            args, options = torch.fx.node.map_arg((one.args, dict(one.kwargs)), given)
            target = one.target
            if one.op == "call_module":
                parts.append(self._root.get_submodule(one.target))
                target = len(parts) - 1
            numbers[one] = len(calls)
            calls.append(_Call(one.op, target, args, options, one.meta.get("line") or ""))
        if not names:
            raise ExportError(self._reads_other(node))
        self._rows[node] = self._ops.function(self._name(node), TracedFunction(calls, parts), names)
        del self._waiting[node]

    def _behind(self, node: Any) -> set[Any]:
        """Return the operations that make a result of rows."""
        found, stack = set[Any](), [node]
        while stack:
            one = stack.pop()
            if one not in found and one not in self._rows and one not in self._constants:
                if one.op == "placeholder":
                    raise ExportError(self._reads_other(node))
                found.add(one)
                stack += one.all_input_nodes
        return found


def _is_of_rows(module: Module) -> bool:
    """Return whether a module of torch's or PyG's may be a function of each row."""
    if written_class(module) is not None or any(isinstance(one, MessagePassing) for one in module.modules()):
        return False
    if any(reads_whole_graph(one) is not None for one in module.modules()):
        return False
    return class_name(module).startswith(("torch.nn.", "torch_geometric.nn."))
