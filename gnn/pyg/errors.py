"""Errors of an export."""

from __future__ import annotations

import re
from typing import NoReturn, Self

from freshet.gnn.model import ModelError

_BEGIN, _END = 700, 300  # characters of a long message that are kept


RECORDED = "recorded"
"""Of an error: what stands between the convs was run, so that it says what that does, not how it is written."""
WIDTH = "width"
"""Of an error: all was read but how wide rows are, which features=... says."""
WEIGHTS = "weights"
"""Of an error: weights of the module are NaN or infinite, whatever else there is."""
OUT_EDGES = "out-edges"
"""Of an error: a conv reads edges the other way round, which a relation that mirrors them has."""

DIFFERS = "differs"
"""Of an error: all was read, and the model does not give what the module gives."""
INSIDE = "inside"
"""Of an error: a conv of the user's own goes along the edges and against them, which what it propagates says."""
PER_EDGE = "per edge"
"""Of an error: all was read, and gives a row for each edge."""
UNREAD = "unread"
"""Of an error: a forward does not take attributes of edges in the form in which they were tried as categories."""


class ExportError(ModelError):
    """A module that Freshet cannot take over as it is; the message names the part and says why."""

    about = ""
    """`RECORDED`, `OUT_EDGES`, `WEIGHTS`, `WIDTH`, `DIFFERS`, `INSIDE`, `PER_EDGE`, `UNREAD` or nothing."""

    def of(self, about: str) -> Self:
        """Return the error, as one about that."""
        self.about = about
        return self

    def in_a_line(self) -> Self:
        """Return the error on one line, its middle cut out where modules or tensors make it long."""
        text = " ".join(str(self).split())
        if left_out := max(0, len(text) - _BEGIN - _END):
            text = f"{text[:_BEGIN]} [{left_out:,} characters] {text[-_END:]}"
        return type(self)(text)


class DifferingLayerError(ExportError):
    """A written layer that is not its module; the message has the smallest graph, line by line."""

    def in_a_line(self) -> Self:
        """Return the error with its lines, which are few."""
        return self


def refuse(message: str) -> NoReturn:
    """Refuse a module, or what was given with it.

    Raises: ExportError, always.
    """
    raise ExportError(message)


_NAMES_A_PART = re.compile(r"export_model\(model\.[\w.]+, folder\)$")
"""The end of a refusal that says which part of the module to export."""


def refusal_of(first: ExportError, second: ExportError) -> ExportError:
    """Return the error of a module that is refused as it is written, and as what stands between its convs runs."""
    if str(second) in str(first) or _NAMES_A_PART.search(str(first)):
        return first
    if second.about in (WEIGHTS, WIDTH):
        return second
    if second.about == PER_EDGE:
        *_, hint = str(first).rpartition(". If ")
        return ExportError(f"{second}. If {hint}" if hint != str(first) else str(second))
    if second.about not in (RECORDED, DIFFERS):
        line, other = (re.search(r"[^\s(]+:\d+", str(error)) for error in (first, second))
        return second if line and other and line[0] not in str(second) else first  # past what is read as it runs
    place, _, what = str(second).partition(": ")
    begin, listed, rest = str(first).partition("; supported are ")
    if place not in begin or not (listed or begin.startswith(what.split(" ")[0])):
        return ExportError(f"{first}. Besides, {second}")
    hint = "".join(rest.partition(". ")[1:])  # both are about one operation
    return ExportError(f"{begin}: {what}{hint}") if listed else first
