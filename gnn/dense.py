"""Matrix products whose every row has bits of its own.

BLAS picks its kernels by shape, so a row multiplied alone and the same row among many differ in their last bits.
Replay after a restore, and pruning on equality, need a row's bits to be a function of the row. So every product here is
made of blocks of exactly 64 rows, the last one padded: one shape, one kernel, and inside it a row never meets another.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gnn.blas import use_one_thread

Rows = NDArray[np.float32]

BLOCK_ROWS = 64

use_one_thread()  # here, so that nobody can multiply without it


def matmul(x: Rows, w: Rows, out: Rows | None = None) -> Rows:
    """Return x @ w, each row's bits independent of the other rows and of its place.

    Shapes: x (n, k) float32; w (k, m) float32; out, if given, (n, m) float32 C-contiguous, not overlapping x.
    Invariant: matmul(x, w)[i] is bit-equal to matmul(x[i:i+1], w)[0] (tests/unit/gnn/test_dense.py).
    Raises: ValueError when the shapes do not fit.
    """
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[0]:
        msg = f"matmul: got shapes {x.shape} and {w.shape}, expected (n, k) and (k, m)"
        raise ValueError(msg)
    rows, width = x.shape[0], w.shape[1]
    if out is None:
        out = np.empty((rows, width), np.float32)
    elif out.shape != (rows, width) or out.dtype != np.float32 or not out.flags.c_contiguous:
        msg = f"matmul: out is {out.dtype} {out.shape}, expected C-contiguous float32 {(rows, width)}"
        raise ValueError(msg)
    x = np.ascontiguousarray(x, np.float32)
    if width == 1:  # numpy would call gemv, whose kernels treat rows by their place
        out[:] = matmul(x, np.repeat(w, 2, axis=1))[:, :1]
        return out
    w = np.ascontiguousarray(w, np.float32)
    whole = rows - rows % BLOCK_ROWS
    if whole:
        np.matmul(_blocks(x[:whole]), w, out=_blocks(out[:whole]))
    if whole < rows:
        padded = np.zeros((1, BLOCK_ROWS, x.shape[1]), np.float32)
        padded[0, : rows - whole] = x[whole:]
        out[whole:] = np.matmul(padded, w)[0, : rows - whole]
    return out


def _blocks(rows: Rows) -> Rows:
    return rows.reshape(-1, BLOCK_ROWS, rows.shape[1])
