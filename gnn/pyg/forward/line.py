"""Conversion of a forward whose operations read any earlier rows into a line, in which rows read later are kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from torch.nn import Module

from freshet.gnn.declarations import Identity
from freshet.gnn.pyg.forward.in_place import gives_its_input, module_writes, overwritten
from freshet.gnn.pyg.steps import Hop, RowsFunction, Step
from freshet.gnn.rows.jumps import CURRENT, Join, Keep, Operation
from freshet.gnn.rows.layer import Layer

INPUT = "x"
"""The name of the rows that a forward is given."""


class LineOp(NamedTuple):
    """One operation: the rows that it reads, by name, and what it is; None where it makes one row of several.

    writes: whether it writes over the first of them.
    """

    reads: tuple[str, ...]
    step: Step | None
    operation: Operation = "sum"
    writes: bool = False

    @property
    def gives_its_input(self) -> bool:
        """True if its rows are those that it reads, in the same memory."""
        op = None if self.step is None else self.step.op
        if op is None or isinstance(op, Hop | RowsFunction):
            return False
        return isinstance(op, Identity) if isinstance(op, Layer) else gives_its_input(op)


class Operations:
    """The operations of a forward in order. Each reads the input's rows or those of earlier ones, by their names."""

    def __init__(self, inputs: Sequence[str] = (INPUT,)) -> None:
        """Begin with the inputs alone, of which a line has one."""
        self._ops: dict[str, LineOp] = {}
        self._inputs = inputs

    def add(self, rows: str, step: Step, *, writes: bool = False) -> str:
        """Note a step on the rows of that name, and whether it writes over them; returns the name of what it makes."""
        if not isinstance(step.op, Hop | Layer):
            writes = module_writes(step.op)
        return self._named(step.name, LineOp((rows,), step, writes=writes))

    def join(self, name: str, operation: Operation, rows: Sequence[str]) -> str:
        """Note that rows of several operations become one; returns its name."""
        return self._named(name, LineOp(tuple(rows), None, operation))

    def function(self, name: str, module: Module, rows: Sequence[str]) -> str:
        """Note a function of these rows that is read as it runs; returns the name of what it makes."""
        return self.called(Step(name, RowsFunction(module, tuple(rows))), rows)

    def called(self, step: Step, rows: Sequence[str]) -> str:
        """Note a function, or a conv, that is called with the rows of several layers; returns what it makes."""
        return self._named(step.name, LineOp(tuple(rows), step))

    def in_place(self, name: str) -> None:
        """Note that the operation of that name writes over the first rows that it reads."""
        self._ops[name] = self._ops[name]._replace(writes=True)

    def _named(self, name: str, op: LineOp) -> str:
        name = self._free(name)
        self._ops[name] = op
        return name

    def _free(self, wanted: str) -> str:
        """Return a name that no rows have yet."""
        name, number = wanted, 2
        while name in self._ops or name in (*self._inputs, CURRENT):
            name, number = f"{wanted}:{number}", number + 1
        return name

    def steps(self, result: str, start: str | None = INPUT) -> Iterator[Step]:
        """Return the steps in a line that ends with the rows of that name.

        It begins with those of `start`; None where all of its inputs are kept before it.
        """
        readers, places = self.refuse_overwritten([result]), enumerate((start, *self._ops))
        kept = {name for number, name in places if name and any(reader != number for reader in readers[name])}
        return in_line(start, self._ops.items(), result, kept)

    def refuse_overwritten(self, results: Sequence[str]) -> dict[str, list[int]]:
        """Return where which rows are read, as numbers of operations; these results by one past the last.

        Raises: ExportError naming an operation that writes over rows that are read after it.
        """
        readers: dict[str, list[int]] = defaultdict(list)
        for number, op in enumerate(self._ops.values()):
            for name in op.reads:
                readers[name].append(number)
        for result in results:
            readers[result].append(len(self._ops))
        memory = {name: name for name in self._inputs}
        for number, (name, op) in enumerate(self._ops.items()):
            first = memory[op.reads[0]]
            if op.writes and any(max(readers[one], default=0) > number for one, of in memory.items() if of == first):
                raise overwritten(name)
            memory[name] = first if op.writes or op.gives_its_input else name
        return readers


def in_line(
    start: str | None, ops: Iterable[tuple[str, LineOp]], wanted: str | None, kept: Container[str]
) -> Iterator[Step]:
    """Yield the steps of operations in a line, from the rows that it begins with to those that it is to end with.

    `kept`: rows that are read later than by the step behind them.
    """
    current = start
    if start is not None and start in kept:
        yield Step(start, Keep(name=start))
    for name, op in ops:
        if op.step is None:
            of = tuple(CURRENT if one == current else one for one in op.reads)
            yield Step(name, Join(operation=op.operation, of=of))
        elif isinstance(op.step.op, RowsFunction):
            of = tuple(CURRENT if one == current else one for one in op.reads)
            yield op.step._replace(op=op.step.op._replace(of=of))
        else:
            if op.reads[0] != current:
                yield _recall(op.reads[0])
            yield op.step
        current = name
        if name in kept:
            yield Step(name, Keep(name=name))
    if wanted is not None and wanted != current:
        yield _recall(wanted)


def _recall(name: str) -> Step:
    return Step(name, Join(of=(name,)))
