"""Programs that make the message of an edge: steps over what it reads of source, target and edge.

A step has the name of its place, "0", "1" and so on, and reads inputs and earlier steps by name; the last one makes the
message. Inputs are `source` and `target`, the rows of the ends; `weight`, one number; and `attr`, the attributes.
Each step makes rows of a width that follows from those that it reads.

An update is such a program, too: it makes the row of a vertex of `aggregate`, that of its messages, and `own`, its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from freshet.gnn.rows.chains import chain_width
from freshet.gnn.rows.dense import DenseLayer, Linear
from freshet.gnn.rows.functions import Scale
from freshet.gnn.rows.layer import Shape, Width

INPUTS = ("source", "target", "weight", "attr")
OF_UPDATES = ("aggregate", "own")
MOST_STEPS = 256
WIDEST = 1 << 16
"""Columns of a step: what comes from outside may not double widths until memory is full."""

Name = Annotated[str, Field(pattern=r"^(source|target|weight|attr|aggregate|own|\d+)$")]
One = tuple[Name]


class ProgramStep(BaseModel):
    """Base of the steps of a program."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    of: tuple[Name, ...]

    def width_of(self, widths: Sequence[int]) -> int:
        """Return the width of the rows that it makes of rows of these widths.

        Raises: ValueError where they do not fit.
        """
        return widths[0]

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return {}

    @property
    def multiplications(self) -> int:
        """Number of matrix entries: each multiplies a row once."""
        return 0


class ColumnsStep(ProgramStep):
    """The columns `begin` to `end` of rows."""

    op: Literal["columns"] = "columns"
    of: One
    begin: Annotated[int, Field(ge=0)]
    end: Width

    def width_of(self, widths: Sequence[int]) -> int:
        """Return the number of columns."""
        if not self.begin < self.end <= widths[0]:
            msg = f"columns {self.begin} to {self.end} of rows of width {widths[0]}"
            raise ValueError(msg)
        return self.end - self.begin


class BesideStep(ProgramStep):
    """Rows side by side."""

    op: Literal["cat"] = "cat"
    of: Annotated[tuple[Name, ...], Field(min_length=1)]

    def width_of(self, widths: Sequence[int]) -> int:
        """Return the sum of the widths."""
        return sum(widths)


class ArithmeticStep(ProgramStep):
    """A function of two rows, value by value; one of width 1 meets every column of the other.

    greater and equal are 1 where the first value is greater than the second, or equal to it, else 0. atan2 is the angle
    of the point whose ordinate is the first value, and whose abscissa the second, 0 for the origin.
    """

    op: Literal["add", "sub", "mul", "div", "max", "min", "greater", "equal", "atan2"]
    of: tuple[Name, Name]

    def width_of(self, widths: Sequence[int]) -> int:
        """Return the larger width."""
        if widths[0] != widths[1] and 1 not in widths:
            msg = f"{self.op} of rows of widths {widths[0]} and {widths[1]}, expected one width, or one of 1"
            raise ValueError(msg)
        return max(widths)


class WhereStep(ProgramStep):
    """A choice of three rows, value by value: the second where the first is not 0, else the third; widths may be 1."""

    op: Literal["where"] = "where"
    of: tuple[Name, Name, Name]

    def width_of(self, widths: Sequence[int]) -> int:
        """Return the largest width."""
        if {*widths} - {1, max(widths)}:
            msg = f"where of rows of widths {', '.join(map(str, widths))}, expected one width, or 1"
            raise ValueError(msg)
        return max(widths)


class FunctionStep(ProgramStep):
    """A function of each value, beside those that layers of rows have."""

    op: Literal["exp", "log", "sqrt", "abs", "neg"]
    of: One


class RowsStep(ProgramStep):
    """A layer of rows: linear, an activation, a norm."""

    op: Literal["rows"] = "rows"
    of: One
    layer: DenseLayer

    def width_of(self, widths: Sequence[int]) -> int:
        """Return the width that the layer makes."""
        return chain_width([self.layer], widths[0], "layer")

    def tensors(self) -> dict[str, Shape]:
        """Names and shapes of the layer's weights."""
        return self.layer.tensors()

    @property
    def multiplications(self) -> int:
        """Number of the layer's matrix entries."""
        return self.layer.multiplications


class ConstantStep(ProgramStep):
    """A row that all edges share. Weights: value, (width,)."""

    op: Literal["constant"] = "constant"
    of: tuple[()] = ()
    width: Annotated[int, Field(ge=1, le=WIDEST)]

    def width_of(self, widths: Sequence[int]) -> int:
        """Return its width."""
        return self.width

    def tensors(self) -> dict[str, Shape]:
        """Name and shape of the row."""
        return {"value": (self.width,)}


class ByHeadStep(ProgramStep):
    """The sum or mean of the columns of each head, one number per head."""

    op: Literal["sum_columns", "mean_columns"]
    of: One
    heads: Width = 1

    def width_of(self, widths: Sequence[int]) -> int:
        """Return the number of heads."""
        if widths[0] % self.heads:
            msg = f"{self.op} of {self.heads} heads: a width of {widths[0]} is no multiple of it"
            raise ValueError(msg)
        return self.heads


class RepeatStep(ProgramStep):
    """Each column `times` times, one beside the other: the number of a head for each of its channels."""

    op: Literal["repeat"] = "repeat"
    of: One
    times: Annotated[int, Field(ge=1, le=WIDEST)]

    def width_of(self, widths: Sequence[int]) -> int:
        """Return the width times `times`."""
        return widths[0] * self.times


AnyStep = Annotated[
    ColumnsStep
    | BesideStep
    | ArithmeticStep
    | WhereStep
    | FunctionStep
    | RowsStep
    | ConstantStep
    | ByHeadStep
    | RepeatStep,
    Field(discriminator="op"),
]
Program = Annotated[tuple[AnyStep, ...], Field(min_length=1, max_length=MOST_STEPS)]


def widths_of(program: Sequence[ProgramStep], inputs: dict[str, int], where: str) -> list[int]:
    """Return the width of each step; `inputs` are those of what it may read, 0 for what there is none of.

    Raises: ValueError naming the first step that does not fit.
    """
    known, found = {name: width for name, width in inputs.items() if width}, list[int]()
    for i, step in enumerate(program):
        try:
            for name in step.of:
                if name not in known:
                    msg = f"it reads {name!r}, which is no earlier step; inputs are {', '.join(k for k in inputs)}"
                    msg = f"it reads {name}, which the layer has none of" if name in inputs else msg
                    raise ValueError(msg)
            width = step.width_of([known[name] for name in step.of])
            if width > WIDEST:
                msg = f"it makes rows of width {width}, expected at most {WIDEST}"
                raise ValueError(msg)
        except ValueError as error:
            msg = f"{where}.{i} ({step.op}): {error}"  # type: ignore[attr-defined]
            raise ValueError(msg) from None
        known[str(i)] = width
        found.append(width)
    return found


def reads_of(program: Sequence[ProgramStep], last: str) -> set[str]:
    """Return the inputs that the step of this name reads, by way of others, too."""
    return {name for name in _live(program, last) if not name.isdigit()}


def steps_of(program: Sequence[ProgramStep], last: str, known: Iterable[str] = ()) -> list[int]:
    """Return the places of the steps that make the step of this name, itself included, in their order.

    `known` are names of rows that are there already.
    """
    return sorted(int(name) for name in _live(program, last, known) if name.isdigit() and name not in known)


def made_at(program: Sequence[ProgramStep], last: str, end: str) -> list[str]:
    """Return the names of what the step `last` reads of one end of an edge, as far as that can be made of it alone.

    That which only moves columns about, or repeats them, is left to the edges.
    """
    found, seen, waiting = list[str](), set[str](), [last]
    while waiting:
        name = waiting.pop()
        if name in seen or (not name.isdigit() and name != end):
            continue
        seen.add(name)
        moves = name.isdigit() and isinstance(program[int(name)], ColumnsStep | BesideStep | RepeatStep)
        if not moves and reads_of(program, name) == {end}:
            found.append(name)
        elif name.isdigit():
            waiting += program[int(name)].of
    return sorted(found, key=lambda name: (name.isdigit(), name.isdigit() and int(name)))


def columns_read(program: Sequence[ProgramStep], last: str, name: str, width: int) -> tuple[int, int]:
    """Return the columns of an input that are read, the first and the one behind the last; (0, 0) for none."""
    found = list[tuple[int, int]]()
    for i in steps_of(program, last):
        step = program[i]
        if name in step.of:
            found.append((step.begin, step.end) if isinstance(step, ColumnsStep) else (0, width))
    if name == last:
        found.append((0, width))
    return (min(begin for begin, _ in found), max(end for _, end in found)) if found else (0, 0)


def factor_of_weight(program: Sequence[ProgramStep]) -> str | None:
    """Return the name of what the weight multiplies, where the message is that product and reads it nowhere else."""
    last = program[-1]
    if not (isinstance(last, ArithmeticStep) and last.op == "mul" and "weight" in last.of):
        return None
    other = last.of[1 - last.of.index("weight")]
    return other if other not in ("weight", "attr") and "weight" not in reads_of(program, other) else None


def is_linear(program: Sequence[ProgramStep], last: str, of: str = "source") -> bool:
    """Return whether the step of this name is linear in an input, and reads no other."""
    if last == of:
        return True
    return reads_of(program, last) == {of} and all(_is_linear(program, i) for i in steps_of(program, last))


def _is_linear(program: Sequence[ProgramStep], i: int) -> bool:
    """Return whether a step is linear in what it reads that is no constant."""
    step = program[i]
    free = [not reads_of(program, name) for name in step.of]
    if all(free):
        return True  # a constant: refused below where it is added
    if isinstance(step, ColumnsStep | BesideStep | ByHeadStep | RepeatStep):
        return not any(free)
    if isinstance(step, ArithmeticStep):
        if step.op in ("add", "sub"):
            return not any(free)
        return (step.op == "mul" and any(free)) or (step.op == "div" and free[1])
    if isinstance(step, RowsStep):
        layer = step.layer
        return (isinstance(layer, Linear) and not layer.bias) or (isinstance(layer, Scale) and not layer.offset)
    return isinstance(step, FunctionStep) and step.op == "neg"


def _live(program: Sequence[ProgramStep], last: str, known: Iterable[str] = ()) -> set[str]:
    found, waiting = set[str](), [last]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += program[int(name)].of if name.isdigit() and name not in known else []
    return found


def program_tensors(program: Iterable[ProgramStep], prefix: str) -> dict[str, Shape]:
    """Return names and shapes of the weights of a program, as `prefix.step.name`."""
    return {f"{prefix}.{i}.{name}": shape for i, step in enumerate(program) for name, shape in step.tensors().items()}
