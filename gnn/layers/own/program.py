"""Programs of messages (gnn/convs/program.py), made ready to run on rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from freshet.gnn.convs.program import (
    INPUTS,
    ArithmeticStep,
    BesideStep,
    ByHeadStep,
    ColumnsStep,
    ConstantStep,
    FunctionStep,
    ProgramStep,
    RepeatStep,
    RowsStep,
    steps_of,
)
from freshet.gnn.declarations import MessageConv
from freshet.gnn.layers.chain import Chain
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows

Values = dict[str, Rows]
Run = Callable[[list[Rows], int], Rows]
"""Makes the rows of a step of those that it reads, and of how many edges there are."""

_ARITHMETIC: dict[str, Callable[[Rows, Rows], Rows]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    # zeros of either sign compare equal, and which of them numpy takes depends on their place
    "max": lambda one, other: np.maximum(one, other) + np.float32(0),
    "min": lambda one, other: np.minimum(one, other) + np.float32(0),
}


class DeclaredMessage(NamedTuple):
    """A conv whose message is a program, with its weights by the names that the program gives them."""

    spec: MessageConv
    weights: Mapping[str, Rows]


class ProgramRows:
    """The rows that some steps of a program make, side by side; a row's bits depend on its own edge or vertex alone.

    `known` are steps whose rows are given as inputs are; `first` are columns at which the rows of an input begin.
    """

    def __init__(
        self,
        program: Sequence[ProgramStep],
        model: WeightedModel,
        prefix: str,
        wanted: Sequence[str],
        *,
        known: Collection[str] = (),
        first: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`prefix` is that of its weights' names."""
        self._wanted, self._first = wanted, first
        live = sorted({i for name in wanted for i in steps_of(program, name, known)})
        self._steps = [(str(i), program[i].of, self._run(program[i], model, f"{prefix}.{i}")) for i in live]
        self.multiplications = sum(program[i].multiplications for i in live)

    def of(self, values: Values, count: int) -> Rows:
        """Return the rows of `count` edges or vertices, given those of inputs; `values` gets those of steps.

        Shapes: result (count, the sum of the widths) float32 C-contiguous; it may be an input itself.
        """
        for name, of, run in self._steps:
            values[name] = run([values[one] for one in of], count)
        found = [values[name] for name in self._wanted]
        return np.ascontiguousarray(found[0] if len(found) == 1 else np.concatenate(found, axis=1), np.float32)

    def _run(self, step: ProgramStep, model: WeightedModel, name: str) -> Run:
        if isinstance(step, ColumnsStep):
            shift = self._first.get(step.of[0], 0)
            begin, end = step.begin - shift, step.end - shift
            return lambda rows, n: rows[0][:, begin:end]
        if isinstance(step, RowsStep):
            chain = Chain(model, [step.layer], [name])
            return lambda rows, n: chain.apply(np.ascontiguousarray(rows[0], np.float32), own=False)
        if isinstance(step, ConstantStep):
            value = model.weights_of(name)["value"][None]
            return lambda rows, n: np.broadcast_to(value, (n, value.shape[1]))
        return _plain(step)


class ProgramMessage(ProgramRows):
    """The messages that the step `last` of a program makes.

    `first` are the columns of source and target at which the rows begin that `message` gets.
    Shapes: see MessageMaker.
    """

    def __init__(
        self,
        program: Sequence[ProgramStep],
        model: WeightedModel,
        prefix: str,
        last: str,
        width: int,
        first: tuple[int, int] = (0, 0),
    ) -> None:
        """`prefix` is that of its weights' names, `width` that of a message."""
        super().__init__(program, model, prefix, [last], first={"source": first[0], "target": first[1]})
        self.width = width

    def message(self, source: Rows, target: Rows, weight: Rows, attr: Rows) -> Rows:
        """Return the messages of n edges, (n, width) float32."""
        return self.of(dict(zip(INPUTS, (source, target, weight, attr), strict=True)), len(source))

    def of_rows(self, x: Rows) -> Rows:
        """Return what it makes of rows of sources, where it reads nothing else."""
        none = x[:, :0]
        return self.message(x, none, none, none)


def _plain(step: ProgramStep) -> Run:
    """Return how a step without weights runs."""
    if isinstance(step, BesideStep):
        return lambda rows, n: np.concatenate(rows, axis=1)
    if isinstance(step, ArithmeticStep):
        function = _ARITHMETIC[step.op]
        return lambda rows, n: function(rows[0], rows[1])
    if isinstance(step, FunctionStep):
        of_values = _FUNCTIONS[step.op]
        return lambda rows, n: of_values(rows[0])
    if isinstance(step, ByHeadStep):
        heads, is_mean = step.heads, step.op == "mean_columns"
        return lambda rows, n: _by_head(rows[0], heads, is_mean=is_mean)
    if isinstance(step, RepeatStep):
        times = step.times
        return lambda rows, n: np.repeat(rows[0], times, axis=1)
    msg = f"a {type(step).__name__} has no way to run; this is a defect of Freshet"
    raise TypeError(msg)


def _by_head(rows: Rows, heads: int, *, is_mean: bool) -> Rows:
    out = np.empty((len(rows), heads), np.float32)
    elementwise.sum_groups(np.ascontiguousarray(rows), out)
    if is_mean:
        out /= np.float32(rows.shape[1] // heads)
    return out


def _in_place(kernel: Callable[[Rows], None]) -> Callable[[Rows], Rows]:
    def run(rows: Rows) -> Rows:
        made = np.array(rows, np.float32, order="C")
        kernel(made.reshape(-1))
        return made

    return run


_FUNCTIONS: dict[str, Callable[[Rows], Rows]] = {
    "exp": _in_place(elementwise.exponential),
    "log": _in_place(elementwise.logarithm),
    "sqrt": np.sqrt,
    "abs": np.abs,
    "neg": np.negative,
}
