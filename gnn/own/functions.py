"""Functions of rows for written layers, whose bits depend on a row alone wherever it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import matmul

Array = np.ndarray
_MOST_KEPT = 256
_turned: dict[int, tuple[Array, Array]] = {}
_few: dict[int, int] = {}  # numbers of rows of blocks that are padded now, by the id of the block


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return x W^T + b; in float64 for rows of float64, as a full pass has them.

    Shapes: x (n, in), weight (W) (out, in), bias (out,), result (n, out).
    """
    if x.dtype != np.float32:
        made = x @ weight.T
    else:
        made = _product(x, _turn(weight))
    return made if bias is None else made + bias


def _product(x: Array, w: Array) -> Array:
    """Return x w; of a block that is padded, or of some of its columns, the rows that are padding are no work."""
    block = x if x.base is None else x.base
    rows = _few.get(id(block))
    if rows is None or x.ndim != 2 or len(x) != len(block) or x.strides[0] != block.strides[0]:
        return matmul(x, w)
    made = np.zeros((len(x), w.shape[1]), np.float32)
    matmul(x[:rows], w, made[:rows])
    return made


def padded(given: Sequence[Array], size: int) -> list[Array]:
    """Return fewer rows than a block has, each as one that nobody writes to, with zeros behind them; to be released."""
    blocks = []
    for rows in given:
        block = np.zeros((size, rows.shape[1]), rows.dtype)
        block[: len(rows)] = rows
        block.flags.writeable = False
        blocks.append(block)
    _few.update((id(block), len(rows)) for block, rows in zip(blocks, given, strict=True))
    return blocks


def release(blocks: Iterable[Array]) -> None:
    """Forget padded blocks, whose ids others may have from then on."""
    for block in blocks:
        del _few[id(block)]


def relu(x: Array) -> Array:
    """Return max(x, 0), value by value."""
    if x.dtype != np.float32:
        made: Array = np.maximum(x, 0)
        return made
    made = np.array(x, np.float32, order="C")
    elementwise.relu(made.reshape(-1))
    return made


def _turn(weight: Array) -> Any:
    """Return a weight as the right side of a product; that of one which nobody can write to is kept."""
    if weight.flags.writeable:
        return np.ascontiguousarray(weight.T, np.float32)
    kept = _turned.get(id(weight))
    if kept is None or kept[0] is not weight:
        if len(_turned) >= _MOST_KEPT:
            _turned.clear()
        kept = _turned[id(weight)] = weight, np.ascontiguousarray(weight.T, np.float32)
    return kept[1]
