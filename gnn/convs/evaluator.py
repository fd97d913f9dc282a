"""One evaluator of programs (program.py), over rows of whatever kind an algebra has.

There are four algebras: float32 rows of a job (gnn/layers/own/program.py), values in float64 with their scales
(gnn/oracles/messages.py), symbols of a solver (operators/checks/proofs/programs.py), and rows of torch with gradients
(gnn/torch_modules/programs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

import numpy as np

from freshet.gnn.convs.program import (
    ArithmeticStep,
    BesideStep,
    ByHeadStep,
    ColumnsStep,
    ConstantStep,
    FunctionStep,
    ProgramStep,
    RepeatStep,
    RowsStep,
    WhereStep,
    steps_of,
)
from freshet.gnn.rows.dense import DenseLayer

V = TypeVar("V")
Run = Callable[[Sequence[V], int], V]
"""Makes the rows of a step of those that it reads, and of how many edges or vertices there are."""


class Algebra(Protocol[V]):
    """Operations of steps on rows of one kind; `name` is the place of a step, with which its weights' names begin.

    `constant` and `layer` are called once for a step, and the functions that they return at each run.
    """

    def moved(self, how: Callable[[Sequence[np.ndarray]], np.ndarray], of: Sequence[V]) -> V:
        """Return rows whose columns a function moves about: `how` is that of the arrays that rows consist of."""

    def constant(self, name: str) -> Callable[[int], V]:
        """Return a function of a count, which repeats the row of a constant that often."""

    def by_head(self, of: V, heads: int, *, is_mean: bool) -> V:
        """Return the sum or mean of the columns of each head."""

    def by_value(self, op: str, of: Sequence[V]) -> V:
        """Return what a function makes of each value, arithmetic and comparisons of each two, or where of three."""

    def layer(self, name: str, layer: DenseLayer) -> Callable[[V], V]:
        """Return what a layer does to rows."""


class Evaluator(Generic[V]):
    """The steps of a program that make those that are wanted, in their order.

    `known` are steps whose rows are given as inputs are; `first` are columns at which the rows of an input begin.
    """

    def __init__(
        self,
        program: Sequence[ProgramStep],
        algebra: Algebra[V],
        wanted: Sequence[str],
        *,
        known: Collection[str] = (),
        first: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.steps = sorted({i for name in wanted for i in steps_of(program, name, known)})
        self._wanted = wanted
        self._runs = [(str(i), program[i].of, _run(program[i], algebra, str(i), first)) for i in self.steps]

    def of(self, values: dict[str, V], count: int) -> Iterator[V]:
        """Yield the rows of the wanted steps for `count` edges or vertices; `values` are inputs, and get all steps."""
        for name, of, run in self._runs:
            values[name] = run([values[one] for one in of], count)
        return (values[name] for name in self._wanted)


def _run(step: ProgramStep, algebra: Algebra[V], name: str, first: Mapping[str, int]) -> Run[V]:
    """Return how a step runs."""
    match step:
        case ColumnsStep(of=(source,), begin=begin, end=end):
            shift = first.get(source, 0)
            return lambda rows, n: algebra.moved(lambda of: of[0][:, begin - shift : end - shift], rows)
        case BesideStep():
            return lambda rows, n: algebra.moved(lambda of: np.concatenate(of, axis=1), rows)
        case ConstantStep():
            constant = algebra.constant(name)
            return lambda rows, n: constant(n)
        case RepeatStep(times=times):
            return lambda rows, n: algebra.moved(lambda of: np.repeat(of[0], times, axis=1), rows)
        case ByHeadStep(op=op, heads=heads):
            return lambda rows, n: algebra.by_head(rows[0], heads, is_mean=op == "mean_columns")
        case FunctionStep(op=op) | ArithmeticStep(op=op) | WhereStep(op=op):
            return lambda rows, n: algebra.by_value(op, rows)
        case RowsStep(layer=layer):
            made = algebra.layer(name, layer)
            return lambda rows, n: made(rows[0])
    msg = f"a {type(step).__name__} has no way to run; this is a defect of Freshet"
    raise TypeError(msg)
