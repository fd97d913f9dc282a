"""What a vertex keeps of the messages it got: synopses, typed by what they can do.

A synopsis is a row of numbers. What is stored is un-normalised; the context (how many, how heavy) is combined on
reading, so that a changed degree costs a read and not a rewrite of old messages. How a synopsis is kept up to date is
up to the Storage: operators/storage/capability.py has the kernels of each type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnn.dense import Rows


@dataclass(frozen=True)
class Synopsis:
    """Base of all synopses: messages merge into a row, from an identity element, and the row is read with the context.

    Shapes: state (n, width) float32; messages (n, width) float32; count (n,) number of in-edges.
    Invariant: merging is associative and commutative (up to rounding), and merging the identity changes nothing.
    """

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the aggregate that the state stands for; 0 where the neighbourhood is empty."""
        raise NotImplementedError


@dataclass(frozen=True)
class InvertibleSynopsis(Synopsis):
    """A synopsis that can take back what it was given, so that a change is a delta (an Abelian group).

    Contract:
    - taking back a message that was merged leaves what was there before, wherever sums are exact;
    - a message that changed from m to m' is merged as m' - m.
    Source: RIPPLE++ section 3.3.3; sum and count are kept and divided on reading, against its printed mean rule.
    """

    kind: Literal["sum", "mean"] = "sum"
    weighted: bool = False

    @property
    def name(self) -> str:
        """Name for people: sum, mean, weighted sum, weighted mean."""
        return f"weighted {self.kind}" if self.weighted else self.kind

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return sum, or sum / count with 0 where there is none (what is left of a sum there is rounding)."""
        if self.kind == "sum":
            return state
        out = np.zeros_like(state)
        np.divide(state, count[:, None].astype(np.float32), out=out, where=(count > 0)[:, None])
        return out
