"""Functions of rows that are read as they run, in a forward between its convs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from freshet.gnn.pyg.errors import RECORDED, ExportError, refuse
from freshet.gnn.pyg.own.chosen import Chosen
from freshet.gnn.pyg.own.conv import input_width, opened_own
from freshet.gnn.pyg.own.lines import steps_of
from freshet.gnn.pyg.own.running import ConvWidths, fitting, read
from freshet.gnn.pyg.refusals import HOW_WIDE
from freshet.gnn.pyg.steps import ConvCall, RowsFunction, Step

_MOST_WIDTHS = 1024


def opened_function(step: Step, widths: Mapping[str, int | None], *, begins: bool) -> list[Step]:
    """Return the steps of a function of rows; `widths` are those of the rows that are there, by name.

    `begins`: whether nothing before it says how wide its rows are.

    Raises: ExportError naming the place of what stops it.
    """
    function = step.op
    assert isinstance(function, RowsFunction)
    joined = list[tuple[str, int]]()
    for name in function.of:
        if (width := widths.get(name)) is None:
            msg = f"{step.name}: the width of the rows that it reads is unknown, since no layer says it; {HOW_WIDE}"
            raise ExportError(msg).of(RECORDED)
        joined.append((name, width))
    if step.given is not None:
        called = step._replace(op=function.module, given=step.given._replace(joined=tuple(joined)))
        return opened_own(called, 0, begins=begins)
    run = step._replace(op=function.module)
    try:
        value = read(run, _call(function, tuple(joined)), ConvWidths(0, 0))
        if not value.width:
            refuse(f"{value.place or step.name}: its rows have no columns")
        return steps_of(step.name, Chosen().of(value), begins=begins)
    except ExportError as error:
        raise error.of(RECORDED) from None


def function_width(step: Step) -> int | None:
    """Return the one width of rows with which a function of rows runs; None where several will do, or none."""
    function = step.op
    assert isinstance(function, RowsFunction)
    if step.given is not None:
        joined = tuple((name, 0) for name in function.of)
        return input_width(step._replace(op=function.module, given=step.given._replace(joined=joined)))
    call = _call(function, tuple((name, 0) for name in function.of))
    widths = (ConvWidths(width, 0) for width in range(1, _MOST_WIDTHS + 1))
    found = list(islice(fitting(step._replace(op=function.module), call, widths), 2))
    return found[0].rows if len(found) == 1 else None


def _call(function: RowsFunction, joined: tuple[tuple[str, int], ...]) -> ConvCall:
    return ConvCall(function.of[0], "", joined=joined)
