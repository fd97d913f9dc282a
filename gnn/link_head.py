"""Scores of pairs of rows, as of links between vertices: a program of both rows that makes one number."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from freshet.gnn.convs.program import ArithmeticStep, ByHeadStep, Program, program_tensors, widths_of
from freshet.gnn.rows.layer import Shape

LEFT, RIGHT = "source", "target"
"""Names of both rows in a program."""


class LinkHead(BaseModel):
    """A program (gnn/convs/program.py) that makes the score of a pair of its left row, `source`, and its right row.

    Weights: `link_head.<step>.<tensor>`, with kinds `link_heads.<number>.<step>.<tensor>`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    program: Program

    def check(self, left: int, right: int, where: str) -> None:
        """Refuse a program that does not make one number of rows of these widths.

        Raises: ValueError
        """
        width = widths_of(self.program, {LEFT: left, RIGHT: right}, f"{where}.program")[-1]
        if width != 1:
            msg = f"{where}: its program makes {width} numbers of a pair, expected one score"
            raise ValueError(msg)

    def tensors(self, where: str) -> dict[str, Shape]:
        """Names and shapes of its weights."""
        return program_tensors(self.program, where)


class KindsLinkHead(LinkHead):
    """The head for pairs of two kinds, or of vertices of one; its name is empty where they have none."""

    left: str
    right: str


DOT = LinkHead(program=(ArithmeticStep(op="mul", of=(LEFT, RIGHT)), ByHeadStep(op="sum_columns", of=("0",))))
"""The dot product: how pairs are scored where a model has no head for them."""


def refuse_twice(heads: Iterable[KindsLinkHead]) -> None:
    """Refuse two heads for the same kinds.

    Raises: ValueError
    """
    known = set[tuple[str, str]]()
    for i, one in enumerate(heads):
        if (one.left, one.right) in known:
            msg = f"link_heads.{i}: a head from {one.left!r} to {one.right!r} is there already"
            raise ValueError(msg)
        known.add((one.left, one.right))
