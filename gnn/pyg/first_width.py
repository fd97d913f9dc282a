"""The width of the features that a module reads, as its first layers say it."""

from __future__ import annotations

from collections.abc import Sequence

from freshet.gnn.declarations import Layer
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.layers import SIZED, convert
from freshet.gnn.pyg.own.conv import input_width
from freshet.gnn.pyg.own.rows import function_width
from freshet.gnn.pyg.steps import ChosenColumns, Hop, RowsFunction, Step, class_name, is_read, written_class
from freshet.gnn.rows.jumps import Join


def first_width(steps: Sequence[Step]) -> int | None:
    """Return the width of the rows that the first of these steps reads, as the first that says it does.

    What comes before that one keeps the width; None where something does not, or none of the steps says it.
    """
    for step in steps:
        if isinstance(step.op, Hop):
            if step.op.channels is not None:
                return step.op.channels
        elif isinstance(step.op, Join):
            if step.op.operation == "cat" and len(step.op.of) > 1:
                return None
        elif isinstance(step.op, ChosenColumns):
            return None
        elif isinstance(step.op, RowsFunction):
            return function_width(step)
        elif is_read(step.op):
            return input_width(step)
        elif class_name(step.op) in SIZED or written_class(step.op) is not None:
            try:
                return convert(step._replace(frozen=None), None)[0].in_width
            except (ExportError, ValueError):  # of which the conversion itself says more
                return None
        elif isinstance(step.op, Layer) and step.op.in_width is not None:
            return step.op.in_width
    return None
