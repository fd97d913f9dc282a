"""The columns that vertices of a kind send: rows made of their own rows, each once whoever reads them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from freshet.gnn.layers.base import Contexts
from freshet.gnn.layers.chain import linear
from freshet.gnn.numerics.dense import Rows

NO_CONTEXTS: Contexts = {}
_Step = Callable[[Rows, Contexts], Rows]


@dataclass(frozen=True, eq=False)
class RowPiece:
    """Columns made of the row of a vertex: x itself, W x + b, or what `make` makes of x, or `by_degree` of both.

    Pieces of one key are the same columns, which are sent once.

    Shapes: weight (in_width, width) float32; bias (width,); make turns (n, in_width) float32 rows, which it leaves as
    they are, into new (n, width) ones, and by_degree rows with the degrees of their vertices.
    """

    key: Hashable
    width: int
    weight: Rows | None = None
    bias: Rows | None = None
    make: Callable[[Rows], Rows] | None = None
    by_degree: Callable[[Rows, Contexts], Rows] | None = None

    @property
    def is_linear(self) -> bool:
        """True if the columns are W x + b."""
        return self.weight is not None


def linear_piece(weight: Rows, bias: Rows | None = None) -> RowPiece:
    """Return the piece W x + b; of the same numbers it is the same columns."""
    key = "linear", weight.shape, weight.tobytes(), None if bias is None else bias.tobytes()
    return RowPiece(key, weight.shape[1], weight, bias)


def as_it_is(width: int) -> RowPiece:
    """Return the piece that is the row itself."""
    return RowPiece("x", width)


class Columns:
    """Pieces side by side, each once, ready to be made of rows; linear ones beside each other are one product.

    A row's bits depend on that row alone, and on the degrees of its vertex where pieces read these.
    """

    def __init__(self, pieces: Iterable[RowPiece]) -> None:
        """Take the pieces in order; those with the key of an earlier one are left out."""
        self._pieces: dict[Hashable, RowPiece] = {}
        self._places: dict[Hashable, slice] = {}
        self.width = 0
        for piece in pieces:
            if piece.key not in self._pieces:
                self._pieces[piece.key] = piece
                self._places[piece.key] = slice(self.width, self.width + piece.width)
                self.width += piece.width
        runs = groupby(self._pieces.values(), key=lambda piece: piece.is_linear)
        self._steps = [step for linear_ones, run in runs for step in _steps(list(run), linear_ones)]

    def __contains__(self, piece: RowPiece) -> bool:
        return piece.key in self._places

    def place(self, piece: RowPiece | None) -> slice:
        """Return the columns of a piece; none for None."""
        return slice(0, 0) if piece is None else self._places[piece.key]

    def made(self, x: Rows, contexts: Contexts = NO_CONTEXTS) -> Rows:
        """Return the columns of rows; x itself, where that is all.

        Shapes: x (n, in_width) float32 C-contiguous; result (n, width) float32 C-contiguous.
        """
        found = [step(x, contexts) for step in self._steps]
        if not found:
            return np.empty((len(x), 0), np.float32)
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)


def _steps(pieces: Sequence[RowPiece], linear_ones: bool) -> list[_Step]:
    return [_product(pieces)] if linear_ones else [_step(piece) for piece in pieces]


def _step(piece: RowPiece) -> _Step:
    if piece.by_degree is not None:
        return piece.by_degree
    make = piece.make
    return (lambda x, contexts: x) if make is None else (lambda x, contexts: make(x))


def _product(pieces: Sequence[RowPiece]) -> _Step:
    """Return one product for several pieces W x + b."""
    weight = np.concatenate([piece.weight for piece in pieces if piece.weight is not None], axis=1)
    bias = None
    if any(piece.bias is not None for piece in pieces):
        # x + -0.0 is x, whatever its sign
        bias = np.concatenate(
            [np.full(piece.width, -0.0, np.float32) if piece.bias is None else piece.bias for piece in pieces]
        )
    return lambda x, contexts: linear(x, weight, bias)
