"""Products of few rows with the bits that BLAS gives them in a block of many (gnn/numerics/dense.py).

BLAS computes every element of a product as a chain of fused multiply-adds in the order of k; of a long k it makes
several such chains, whose sums it adds. Where that is all it does, the same chains here give the same bits, without a
block for a single row: 1 microsecond instead of 30 for a row of 128 by 128. It is tried on random rows for each shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from freshet.kernels.compiled import compiling
from freshet.kernels.kernel import fused

Rows = NDArray[np.float32]

FEW = 24  # rows, which take about as long as a block then
_TRIALS = 4
_LONGEST = (256, 320, 384, 448, 512, 640, 768, 1024)  # chains (`GEMM_Q`) of OpenBLAS's kernels
_STEPS = (8, 16, 4)  # of the lengths that it halves (`GEMM_UNROLL_M`)


@fused
def _multiply(x: np.ndarray, w: np.ndarray, ends: np.ndarray, chain: np.ndarray, out: np.ndarray) -> None:
    """Write x @ w to `out`, with a chain of multiply-adds up to each of `ends`; `chain` (m,) is memory."""
    width = w.shape[1]
    for i in range(len(x)):
        for j in range(width):
            out[i, j] = np.float32(0)
        for k in range(ends[0]):
            factor = x[i, k]
            for j in range(width):
                out[i, j] += factor * w[k, j]
        for part in range(1, len(ends)):
            for j in range(width):
                chain[j] = np.float32(0)
            for k in range(ends[part - 1], ends[part]):
                factor = x[i, k]
                for j in range(width):
                    chain[j] += factor * w[k, j]
            for j in range(width):
                out[i, j] += chain[j]


def multiply_few(x: Rows, w: Rows, ends: np.ndarray, out: Rows) -> None:
    """Write x @ w to `out`, each element as the sum of chains up to each of `ends`.

    Shapes: x (n, k), w (k, m), out (n, m), all float32 and C-contiguous; ends (chains,) int64, the last one k.
    """
    x, w = x.view(), w.view()
    x.flags.writeable = w.flags.writeable = False  # kernels are compiled for one kind of array only
    _multiply(x, w, ends, np.empty(w.shape[1], np.float32), out)


def chains_like(k: int, m: int, product: Callable[[Rows, Rows], Rows]) -> np.ndarray | None:
    """Return the ends of chains that give the bits of `product` for rows of this shape; None if none do.

    Shapes: `product` is called with (1, k) and (k, m) float32 and returns (1, m).
    """
    if not compiling():  # Python rounds twice, and is only to show what types the kernel is called with
        one = np.ones((1, 1), np.float32)
        multiply_few(one, one, np.ones(1, np.int64), one.copy())
        return None
    random = np.random.default_rng(0)
    trials = []
    for _ in range(_TRIALS):
        row, w = random.standard_normal((1, k), np.float32), random.standard_normal((k, m), np.float32)
        trials += [(row, w, product(row, w)), (zeros := np.copysign(np.float32(0), row), w, product(zeros, w))]
    alike = (ends for ends in _candidates(k) if all(_is_alike(ends, *trial) for trial in trials))
    return next(alike, None)


def _is_alike(ends: np.ndarray, row: Rows, w: Rows, expected: Rows) -> bool:
    out = np.empty_like(expected)
    multiply_few(row, w, ends, out)
    return bool((out.view(np.int32) == expected.view(np.int32)).all())


def _candidates(k: int) -> Iterator[np.ndarray]:
    """One chain, or those that OpenBLAS makes of a k that is longer than some longest one."""
    seen = set()
    for longest in (k, *_LONGEST):
        for step in _STEPS:
            ends = _ends(k, longest, step)
            if ends not in seen:
                seen.add(ends)
                yield np.array(ends)


def _ends(k: int, longest: int, step: int) -> tuple[int, ...]:
    """Return the ends as in OpenBLAS's level3.c: a rest of up to twice the longest chain is halved, in whole steps."""
    ends, at = [], 0
    while at < k:
        left = k - at
        if left >= 2 * longest:
            at += longest
        elif left > longest:
            at += -(-(left // 2) // step) * step
        else:
            at = k
        ends.append(at)
    return tuple(ends)
