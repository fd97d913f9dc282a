"""Programs of messages (gnn/convs/program.py), made ready to run on rows in float32."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from freshet.gnn.convs.evaluator import Evaluator
from freshet.gnn.convs.program import INPUTS, ProgramStep
from freshet.gnn.declarations import DenseLayer, MessageConv
from freshet.gnn.layers.chain import Chain
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows

Values = dict[str, Rows]


class DeclaredMessage(NamedTuple):
    """A conv whose message is a program, with its weights by the names that the program gives them."""

    spec: MessageConv
    weights: Mapping[str, Rows]


class _Float32:
    """Algebra of float32 rows, in which a row's bits depend on that row alone."""

    def __init__(self, model: WeightedModel, prefix: str) -> None:
        self._model, self._prefix = model, prefix

    def moved(self, how: Callable[[Sequence[np.ndarray]], np.ndarray], of: Sequence[Rows]) -> Rows:
        return how(of)

    def constant(self, name: str) -> Callable[[int], Rows]:
        value = self._model.weights_of(f"{self._prefix}.{name}")["value"]
        return lambda count: np.broadcast_to(value, (count, len(value)))

    def by_head(self, of: Rows, heads: int, *, is_mean: bool) -> Rows:
        out = np.empty((len(of), heads), np.float32)
        elementwise.sum_groups(np.ascontiguousarray(of), out)
        if is_mean:
            out /= np.float32(of.shape[1] // heads)
        return out

    def by_value(self, op: str, of: Sequence[Rows]) -> Rows:
        return _BY_VALUE[op](*of)

    def layer(self, name: str, layer: DenseLayer) -> Callable[[Rows], Rows]:
        chain = Chain(self._model, [layer], [f"{self._prefix}.{name}"])
        return lambda of: chain.apply(np.ascontiguousarray(of, np.float32), own=False)


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
        self._evaluator = Evaluator(program, _Float32(model, prefix), wanted, known=known, first=first)
        self.multiplications = sum(program[i].multiplications for i in self._evaluator.steps)

    def of(self, values: Values, count: int) -> Rows:
        """Return the rows of `count` edges or vertices, given those of inputs; `values` gets those of steps.

        Shapes: result (count, the sum of the widths) float32 C-contiguous; it may be an input itself.
        """
        found = list(self._evaluator.of(values, count))
        return np.ascontiguousarray(found[0] if len(found) == 1 else np.concatenate(found, axis=1), np.float32)


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


def _in_place(kernel: Callable[[Rows], None]) -> Callable[[Rows], Rows]:
    def run(rows: Rows) -> Rows:
        made = np.array(rows, np.float32, order="C")
        kernel(made.reshape(-1))
        return made

    return run


_BY_VALUE: dict[str, Callable[..., Rows]] = {
    "exp": _in_place(elementwise.exponential),
    "log": _in_place(elementwise.logarithm),
    "sqrt": np.sqrt,
    "abs": np.abs,
    "neg": np.negative,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "atan2": np.arctan2,
    "greater": lambda one, other: np.greater(one, other).astype(np.float32),
    "equal": lambda one, other: np.equal(one, other).astype(np.float32),
    "where": lambda mask, one, other: np.where(mask != 0, one, other),
    # zeros of either sign compare equal, and which of them numpy takes depends on their place
    "max": lambda one, other: np.maximum(one, other) + np.float32(0),
    "min": lambda one, other: np.minimum(one, other) + np.float32(0),
}
