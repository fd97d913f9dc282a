"""Operations of a traced forward that are run again: functions of rows, and of what edges have, in front of a conv."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import Module, ModuleList

from freshet.gnn.pyg.encoded_conv import VERTICES, EncodedConv
from freshet.gnn.pyg.forward.places import RUNS_AGAIN, standing_at
from freshet.gnn.pyg.steps import ConvCall, Step


class Made(NamedTuple):
    """The result of an earlier operation, by its number, or what is given as that parameter."""

    of: int | str


class TracedCall(NamedTuple):
    """An operation of a traced graph. kind: that of torch.fx; target: a function, or the name of a method or part."""

    kind: str
    target: Any
    args: Any
    options: Any
    place: str


class TracedFunction(Module):
    """Runs operations of a traced forward again, from rows to one result."""

    def __init__(self, calls: Sequence[TracedCall], parts: Sequence[Module]) -> None:
        """Take the operations in order; the target of one that calls a module is its number among `parts`."""
        super().__init__()
        self._calls, self.parts = list(calls), ModuleList(parts)

    def forward(self, **rows: Any) -> Any:
        """Return the result of the last operation, given rows0, rows1 and so on, or what EncodedConv has."""
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
                    result = call.target(*args, **options)
                    made.append(args[0] if call.target is operator.setitem else result)
        return made[-1]


RUNS_AGAIN.add(TracedFunction.forward.__code__)


def traced_again(nodes: Sequence[Any], root: Module, given: Callable[[Any], Any]) -> TracedFunction:
    """Return the function that operations of a traced graph are, in their order; `given` says what they read else."""
    calls, parts, numbers = list[TracedCall](), list[Module](), dict[Any, int]()

    def of(one: Any) -> Any:
        return Made(numbers[one]) if one in numbers else given(one)

    for one in nodes:
        args, options = torch.fx.node.map_arg((one.args, dict(one.kwargs)), of)
        target = one.target
        if one.op == "call_module":
            parts.append(root.get_submodule(one.target))
            target = len(parts) - 1
        numbers[one] = len(calls)
        calls.append(TracedCall(one.op, target, args, options, one.meta.get("line") or ""))
    return TracedFunction(calls, parts)


class Encoding(NamedTuple):
    """The arguments of a conv beside rows, of which some are functions of edges and what these have.

    edges: the function that makes its edges, where they are not those of the graph. reads: what functions read, and
    what it is handed. sizes: what the numbers of sources and of targets are called.
    """

    encoders: dict[str, Module]
    handed: dict[str, str]
    constants: dict[str, Any]
    reads: set[str]
    edges: Module | None = None
    sizes: tuple[str, str] = VERTICES

    def step(self, name: str, conv: Any, *, pair: bool = False, two_kinds: bool = False) -> Step:
        """Return a conv that is called so; `pair` and `two_kinds` as ConvCall has them."""
        weights, attributes = (one if one in self.reads else None for one in ("edge_weight", "edge_attr"))
        given = ConvCall("x", "edge_index", weights, attributes, pair=pair, two_kinds=two_kinds)
        op = EncodedConv(conv, self.encoders, self.handed, self.constants, self.edges, self.sizes)
        return Step(name, op, weights is not None, attributes=attributes is not None, given=given)
