"""Matrix products in which the bits of a row depend on that row alone.

BLAS picks its kernels by shape, so a row multiplied alone and the same row among many differ in their last bits.
Replay after a restore, and pruning on equality, need a row's bits to be a function of the row. So every product here is
made of blocks of one shape, the last one padded: one shape, one kernel, and inside it a row never meets another.

A block has 64 rows where OpenBLAS sums all of them in the same order. Its kernels for Haswell (and AMD's Zen 1 to 3) do
not: of twelve rows they sum six in another order than the other six, in the first and the last eight columns. There a
block has 60 rows, and the product a margin of eight columns on either side; wide products are cut in another way
(`block_of`). BLAS copies the right side of each product to where it wants it, so several such blocks are one product
where that gives the same bits (`_blocks_at_once`): that takes a sixth less time for 42 columns.

Of what whole blocks leave over, few rows are not padded to one where a kernel of our own has the same bits
(gnn/numerics/few_products.py): most products of a small epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from freshet.gnn.numerics.few_products import FEW, chains_like, multiply_few
from freshet.gnn.numerics.few_products import Rows as Rows
from freshet.kernels.blas import take_work_memory, use_one_thread

_TRIALS = 8
_AT_ONCE = (8, 4, 2)  # blocks with margins in one product: what comes in between stays in the cache

use_one_thread()  # here, so that nobody can multiply without it
take_work_memory()


class ProductBlock(NamedTuple):
    """Division of a product: `rows` at a time; with `margin` columns of zeros on either side of `w`.

    `turned`: the rows of the result are columns to BLAS.
    """

    rows: int
    margin: int = 0
    turned: bool = False


# The fastest first. A row alone is always alike.
BLOCKS = (ProductBlock(64), ProductBlock(60, margin=8), ProductBlock(16, turned=True), ProductBlock(8), ProductBlock(1))


def matmul(x: Rows, w: Rows, out: Rows | None = None) -> Rows:
    """Return x @ w, each row's bits independent of the other rows and of its place.

    Shapes: x (n, k) float32; w (k, m) float32; out, if given, (n, m) float32 C-contiguous, not overlapping x.
    Invariant: matmul(x, w)[i] is bit-equal to matmul(x[i:i+1], w)[0] (tests/unit/gnn/numerics/test_dense.py).
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
    block = block_of(*w.shape)
    whole = rows - rows % block.rows
    if whole:
        _multiply(x[:whole], w, out[:whole], block)
    few = whole < rows <= whole + FEW
    if few and (ends := _chains_of(*w.shape)) is not None:
        multiply_few(x[whole:], w, ends, out[whole:])
    elif whole < rows:
        out[whole:] = _padded(block, x[whole:], w)
    return out


def _padded(block: ProductBlock, x: Rows, w: Rows) -> Rows:
    """Rows that are fewer than a block has, times w."""
    padded = np.zeros((block.rows, x.shape[1]), np.float32)
    padded[: len(x)] = x
    out = np.empty((block.rows, w.shape[1]), np.float32)
    _multiply(padded, w, out, block)
    return out[: len(x)]


@lru_cache(maxsize=256)
def _chains_of(k: int, m: int) -> np.ndarray | None:
    """Return the chains that give few rows the bits that they have in a block; None: multiply in a block.

    Shapes: of products (n, k) by (k, m), m above 1.
    """
    return chains_like(k, m, partial(_padded, block_of(k, m)))


@lru_cache(maxsize=256)
def block_of(k: int, m: int) -> ProductBlock:
    """The first of BLOCKS in which equal rows come out equal, tried on random ones; the same on every call.

    Shapes: of products (n, k) by (k, m), m above 1.
    """
    random = np.random.default_rng(0)
    return next((block for block in BLOCKS if _is_alike(random, k, m, partial(_repeated, block))), BLOCKS[-1])


def _is_alike(random: np.random.Generator, k: int, m: int, product: Callable[[Rows, Rows], Rows]) -> bool:
    """Return whether all rows of `product(row, w)` have the same bits, for random ones of shapes (1, k) and (k, m)."""
    for _ in range(_TRIALS):
        out = product(random.standard_normal((1, k), np.float32), random.standard_normal((k, m), np.float32))
        bits = out.view(np.int32)
        if (bits != bits[0]).any():
            return False
    return True


def _repeated(block: ProductBlock, row: Rows, w: Rows) -> Rows:
    """A block of the same row, times w."""
    out = np.empty((block.rows, w.shape[1]), np.float32)
    _multiply(np.repeat(row, block.rows, axis=0), w, out, block)
    return out


def _multiply(x: Rows, w: Rows, out: Rows, block: ProductBlock) -> None:
    """Write x @ w to `out`, block by block; `x` has whole blocks of rows."""
    blocks, results = x.reshape(-1, block.rows, x.shape[1]), out.reshape(-1, block.rows, w.shape[1])
    if block.margin:
        _multiply_with_margin(blocks, w, results, block.margin)
    elif block.turned:
        turned = np.empty((len(blocks), w.shape[1], block.rows), np.float32)
        np.matmul(blocks, w, out=turned.transpose(0, 2, 1))  # numpy hands BLAS the transposed product
        results[:] = turned.transpose(0, 2, 1)
    else:
        np.matmul(blocks, w, out=results)


def _multiply_with_margin(blocks: Rows, w: Rows, results: Rows, margin: int) -> None:
    padded, at, left = _with_margin(w, margin), 0, len(blocks)
    for many in _blocks_at_once(*w.shape, ProductBlock(blocks.shape[1], margin)):
        size = many * blocks.shape[1]
        wide = np.empty((size, padded.shape[1]), np.float32)
        while left >= many:
            np.matmul(blocks[at : at + many].reshape(size, -1), padded, out=wide)
            results[at : at + many] = wide[:, margin : margin + w.shape[1]].reshape(many, blocks.shape[1], -1)
            at, left = at + many, left - many


def _with_margin(w: Rows, margin: int) -> Rows:
    k, m = w.shape
    padded = np.zeros((k, 2 * margin + -(-m // margin) * margin), np.float32)
    padded[:, margin : margin + m] = w
    return padded


@lru_cache(maxsize=256)
def _blocks_at_once(k: int, m: int, block: ProductBlock) -> tuple[int, ...]:
    """Return how many blocks with margins may be one product with unchanged bits, tried on random rows.

    Shapes: of products (n, k) by (k, m).
    """
    random = np.random.default_rng(0)

    def product(many: int, row: Rows, w: Rows) -> Rows:
        """Return the first row of a block alone, and all rows of `many` blocks together."""
        padded = _with_margin(w, block.margin)
        alone, together = (np.repeat(row, times * block.rows, axis=0) @ padded for times in (1, many))
        return np.concatenate([alone[:1], together])[:, block.margin : block.margin + m]

    return *(many for many in _AT_ONCE if _is_alike(random, k, m, partial(product, many))), 1
