"""The layers between two convs, ready to run: dense layers, kept rows, and joins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from freshet.gnn.layers.chain import Chain
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.rows.jumps import Join, Keep, Operation
from freshet.gnn.rows.layer import Layer

_PAIRS = {"sum": np.add, "product": np.multiply, "max": np.maximum, "min": np.minimum}


def joined(operation: Operation, rows: Sequence[Rows]) -> Rows:
    """Return the rows that a Join makes, new ones; of one array alone that array itself.

    A NaN makes an extremum NaN, as in torch. Shapes: rows (n, width each); result (n, width).
    """
    if len(rows) == 1:
        return rows[0]
    if operation == "cat":
        return np.concatenate(rows, axis=1)
    if operation == "times_length":
        out = np.array(rows[0], np.float32, order="C")
        elementwise.times_length(out, np.ascontiguousarray(rows[1]))
        return out
    if operation == "quotient":
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.divide(rows[0], rows[1])
    out = _PAIRS[operation](rows[0], rows[1])
    for more in rows[2:]:
        _PAIRS[operation](out, more, out=out)
    if operation in ("max", "min"):
        out += np.float32(0)  # -0.0 and 0.0 are equal, and which of them wins may depend on the place in the array
    return out


class Segment:
    """Layers without neighbours, applied one after the other; a row's bits depend on that row and its kept ones alone.

    Shapes: rows (n, width) float32 C-contiguous in and out.
    """

    def __init__(self, model: WeightedModel, layers: Sequence[Layer], names: Sequence[str]) -> None:
        """Take the layers, and for each the prefix of its weights' names in the model."""
        self._pieces: list[Chain | Keep | Join] = []
        for jumps, pairs in groupby(zip(layers, names, strict=True), key=lambda pair: isinstance(pair[0], Keep | Join)):
            of_piece = list(pairs)
            if jumps:
                self._pieces += [layer for layer, _ in of_piece]  # type: ignore[misc]
            else:
                self._pieces.append(Chain(model, *zip(*of_piece, strict=True)))

    def apply(self, rows: Rows, kept: dict[str, Rows], *, own: bool) -> Rows:
        """Run the layers; what they keep goes to `kept`. `own` allows the given rows to be overwritten."""
        for piece in self._pieces:
            if isinstance(piece, Keep):
                kept[piece.name], own = rows, False
            elif isinstance(piece, Join):
                found = piece.picked(rows, kept)
                rows, own = joined(piece.operation, found), len(found) > 1
            else:
                rows, own = piece.apply(rows, own=own), own or len(piece) > 0
        return rows
