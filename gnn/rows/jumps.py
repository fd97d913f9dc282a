"""Rows that are kept for later, and those of several layers brought together: residuals and jumping knowledge.

A model's layers are a straight line; each reads the rows that the one before it made. `Keep` gives those rows a name,
under which a later `Join` finds them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import Field, field_validator

from freshet.gnn.rows.layer import Layer

CURRENT = "."
"""In `Join.of`: the rows of the layer before."""

Rows = TypeVar("Rows")
Operation = Literal["cat", "sum", "product", "max", "min", "times_length", "quotient"]


class Keep(Layer):
    """Keep the rows under a name and hand them on as they are; a later Keep of that name replaces them.

    Args:
        name: Name for a later Join, not empty and not ".".
    """

    type: Literal["keep"] = "keep"
    name: Annotated[str, Field(min_length=1)]

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if name == CURRENT:
            msg = f"keep: the name {CURRENT!r} stands for the rows of the layer before"
            raise ValueError(msg)
        return name


class Join(Layer):
    """Make one row of several of the same vertex: side by side (`cat`), or value by value.

    `times_length` multiplies the first by the Euclidean lengths of the second (PyG's MessageNorm), and `quotient`
    divides the first by the second. Of a single one it makes just that: the line goes on from there.

    Args:
        operation: cat, sum, product, max, min, times_length or quotient.
        of: One or more names of Keep, or "." for the rows of the layer before.
    """

    type: Literal["join"] = "join"
    operation: Operation = "cat"
    of: Annotated[tuple[str, ...], Field(min_length=1)]

    def picked(self, current: Rows, kept: Mapping[str, Rows]) -> list[Rows]:
        """Return the rows that it reads, in its order: those of the layer before, and those kept under its names."""
        return [current if name == CURRENT else kept[name] for name in self.of]

    def width_of(self, widths: Mapping[str, int]) -> int:
        """Return the width of its rows, given those of the kept ones and of `CURRENT`.

        Raises: ValueError for a name that nothing was kept under, or different widths that are not put side by side.
        """
        unknown = [name for name in self.of if name not in widths]
        if unknown:
            msg = f"nothing is kept as {', '.join(map(repr, unknown))} before it"
            raise ValueError(msg)
        found = [widths[name] for name in self.of]
        if self.operation == "cat":
            return sum(found)
        if self.operation in ("times_length", "quotient") and len(found) != 2:
            msg = f"{self.operation} of {len(found)} kinds of rows, expected 2"
            raise ValueError(msg)
        if self.operation == "times_length":
            return found[0]
        if len(set(found)) > 1:
            msg = f"{self.operation} of rows of widths {', '.join(map(str, found))}, expected the same"
            raise ValueError(msg)
        return found[0]
