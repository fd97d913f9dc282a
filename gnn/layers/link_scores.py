"""Link heads (gnn/link_head.py), made ready to score pairs of stored rows."""

from __future__ import annotations

import numpy as np

from freshet.gnn.layers.own.program import ProgramRows
from freshet.gnn.link_head import DOT, LEFT, RIGHT, LinkHead
from freshet.gnn.model import WeightedModel

_PAIRS_AT_ONCE = 8192  # what lies between may be much wider than the rows


class LinkScores:
    """Scores of pairs; that of a pair depends on its two rows alone, to the bit.

    `by` says what they are of: `link_head`, that of the model, or `dot`, where it has none for these kinds.
    """

    def __init__(self, model: WeightedModel, head: LinkHead | None, where: str) -> None:
        """`where` is what the names of the head's weights begin with."""
        self.by = "dot" if head is None else "link_head"
        program = (head or DOT).program
        self._rows = ProgramRows(program, model, where, [str(len(program) - 1)])

    def of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the score of each pair.

        Shapes: left (n, width), or (1, width) for all pairs, right (n, width) float32; result (n,) float32
        """
        out = np.empty(len(right), np.float32)
        left = np.broadcast_to(left, (len(right), left.shape[1])) if len(left) == 1 else left
        for at in range(0, len(right), _PAIRS_AT_ONCE):
            some = slice(at, at + _PAIRS_AT_ONCE)
            rows = {name: np.ascontiguousarray(of[some]) for name, of in ((LEFT, left), (RIGHT, right))}
            with np.errstate(all="ignore"):
                out[some] = self._rows.of(rows, len(rows[RIGHT]))[:, 0]
        return out
