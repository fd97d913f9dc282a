"""Programs of messages, updates and scores of pairs (gnn/convs/program.py), run on rows of torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from freshet.gnn.convs.evaluator import Evaluator
from freshet.gnn.convs.program import ColumnsStep, ProgramStep, made_at, steps_of
from freshet.gnn.declarations import Layer, MessageConv
from freshet.gnn.pyg.rows import dense
from freshet.gnn.torch_modules.aggregates import MessageEdges
from freshet.gnn.torch_modules.rows import Weights
from freshet.gnn.torch_modules.weights import within


class _TorchRows:
    """Algebra of rows of torch."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    def moved(self, how: Callable[[Sequence[np.ndarray]], np.ndarray], of: Sequence[Tensor]) -> Tensor:
        """Move the numbers of columns, and take the columns with these numbers."""
        ends = np.cumsum([0, *(rows.shape[1] for rows in of)])
        columns = how([np.arange(a, b)[None] for a, b in pairwise(ends)])[0]
        every = of[0] if len(of) == 1 else torch.cat(list(of), dim=1)
        if (np.diff(columns) == 1).all():
            return every[:, int(columns[0]) : int(columns[-1]) + 1]
        return every[:, torch.from_numpy(columns).to(every.device)]

    def constant(self, name: str) -> Callable[[int], Tensor]:
        value = self._weights[f"{name}.value"]
        return lambda count: value.expand(count, -1)

    def by_head(self, of: Tensor, heads: int, *, is_mean: bool) -> Tensor:
        by_head = of.view(len(of), heads, of.shape[1] // heads)
        return by_head.mean(dim=2) if is_mean else by_head.sum(dim=2)

    def by_value(self, op: str, of: Sequence[Tensor]) -> Tensor:
        return _BY_VALUE[op](*of)

    def layer(self, name: str, layer: Layer) -> Callable[[Tensor], Tensor]:
        weights = within(self._weights, name)
        return lambda of: dense(layer, weights, of)


_BY_VALUE: dict[str, Callable[..., Tensor]] = {
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "neg": torch.neg,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "atan2": torch.atan2,
    "greater": lambda one, other: torch.gt(one, other).to(one.dtype),
    "equal": lambda one, other: torch.eq(one, other).to(one.dtype),
    "where": lambda mask, one, other: torch.where(mask != 0, one, other),
    "max": torch.maximum,
    "min": torch.minimum,
}


def run_program(
    program: Sequence[ProgramStep],
    weights: Weights,
    given: dict[str, Tensor],
    count: int,
    wanted: Sequence[str] = (),
    known: Collection[str] = (),
) -> list[Tensor]:
    """Return the rows of the wanted steps of a program, by default of the last, for `count` edges or vertices.

    `given` are inputs, and the rows of steps that are `known`. Names of weights begin with the place of their step.
    """
    wanted = wanted or [str(len(program) - 1)]
    return list(Evaluator(program, _TorchRows(weights), wanted, known=known).of(dict(given), count))


def message_conv(layer: MessageConv, weights: Weights, x: Tensor, own: Tensor, edges: MessageEdges) -> Tensor:
    """Return the rows after a conv whose message is a program.

    What it reads of one end alone is made once for each vertex, not for each edge.
    """
    edges = edges.with_loops(layer.self_value if layer.add_self_loops else None, layer.existing_loops)
    if (first := layer.self_columns) is not None:  # added self-loops are behind all others
        of_loops = own[:, first : first + layer.edge_channels]
        edges = edges._replace(attr=torch.cat([edges.attr[: -len(own), : layer.edge_channels], of_loops]))
    of_program = within(weights, "program")
    given = {"weight": edges.weight[:, None], "attr": edges.attr[:, : layer.edge_channels]}
    known = set[str]()
    for end, rows, places in (("source", x, edges.src), ("target", own, edges.dst)):
        names = _made_at(layer, end, rows.shape[1])
        if names:
            made = run_program(layer.program, of_program, {end: rows}, len(rows), names)
            given |= {name: of.index_select(0, places) for name, of in zip(names, made, strict=True)}
            known.update(name for name in names if name.isdigit())
    (messages,) = run_program(layer.program, of_program, given, len(edges.src), [layer.last], known)
    if (first := layer.self_messages) is not None:
        messages = torch.cat([messages[: -len(own)], own[:, first : first + messages.shape[1]]])
    aggregate = _summed(layer, messages, edges)
    if layer.update is None:
        return aggregate
    (made,) = run_program(layer.update, within(weights, "update"), {"aggregate": aggregate, "own": own}, len(own))
    return made


def _made_at(layer: MessageConv, end: str, width: int) -> list[str]:
    """Return the names of what edges get of one end: of its row those columns that steps read.

    The row itself, where steps read more columns than it has, one by one.
    """
    names, program = made_at(layer.program, layer.last, end), layer.program
    if end not in names:
        return names
    readers = [i for i in steps_of(program, layer.last, names) if end in program[i].of]
    columns = [step.end - step.begin for i in readers if isinstance(step := program[i], ColumnsStep)]
    if len(columns) < len(readers) or sum(columns) > width or layer.last == end:
        return names
    return [name for name in names if name != end] + [str(i) for i in readers]


def _summed(layer: MessageConv, messages: Tensor, edges: MessageEdges) -> Tensor:
    """Return the aggregate of messages, of softmax that of [scores | values]."""
    if layer.aggr != "softmax":
        return edges.aggregated(layer.aggr, messages)
    scores, values = messages.split([layer.heads, messages.shape[1] - layer.heads], dim=1)
    by_head = values.view(len(values), layer.heads, values.shape[1] // layer.heads)
    return edges.aggregated("sum", (edges.softmax(scores)[..., None] * by_head).flatten(1))
