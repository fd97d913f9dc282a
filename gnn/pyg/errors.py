"""Errors of an export."""

from __future__ import annotations

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
UNREAD = "unread"
"""Of an error: a forward does not take attributes of edges in the form in which they were tried as categories."""


class ExportError(ModelError):
    """A module that Freshet cannot take over as it is; the message names the part and says why."""

    about = ""
    """`RECORDED`, `OUT_EDGES`, `WEIGHTS`, `WIDTH`, `DIFFERS`, `INSIDE`, `UNREAD` or nothing."""

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
