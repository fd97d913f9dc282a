"""What is read of softmax sums (attention_kernels.py), and how a tail puts what several parts have read together."""

from __future__ import annotations

import math

import numpy as np

from gnn.kernel import inner, kernel
from gnn.scores import ADDITIVE
from operators.storage.aggregates.attention_kernels import Attention, places_of
from operators.storage.exact_sums import prefetch_sum
from state.prefetch import prefetch

_AHEAD = 8


@inner
def _shift_of(att: Attention, z: np.ndarray, row: int, h: int, side: int) -> np.float64:
    """What a side's sums are relative to, the target's part of an additive score included."""
    shift = np.float64(att.shift.data[row, side * att.terms.heads + h])
    if att.terms.kind == ADDITIVE:
        target = np.float64(z[row, att.terms.target + h])
        shift += target if side else np.float64(att.terms.slope) * target
    return shift


@inner
def _add_side(att: Attention, row: int, k: int, factor: float, out: np.ndarray, i: int, at: int) -> None:
    """Add `factor` times the sums of a side to `out`."""
    first, _ = places_of(att, k, np.int64(0))
    for c in range(np.uint64(1 + att.terms.channels)):
        out[i, np.uint64(at) + c] += np.float32(att.s.data[row, first + c] * factor)


@kernel
def read_attention(att: Attention, z: np.ndarray, slots: np.ndarray, out: np.ndarray, first: int) -> None:
    """Write [m | D | N] of every head of these rows to `out`, from column `first` on, the sides put together."""
    sides, heads, channels = att.held.data.shape[1] // att.terms.heads, att.terms.heads, att.terms.channels
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            ahead = np.int64(slots[i + _AHEAD])
            prefetch_sum(att.s.data, ahead)
            prefetch(att.held.data, ahead * att.held.data.shape[1])
            prefetch(att.shift.data, ahead * att.held.data.shape[1])
            prefetch(z, ahead * z.shape[1] + att.terms.target)
        row = slots[i]
        for h in range(heads):
            at, most, some = first + h * (channels + 2), np.float64(0), False
            for side in range(sides):
                if att.held.data[row, side * heads + h] > 0:
                    shift = _shift_of(att, z, row, h, side)
                    most = max(most, shift) if some else shift
                    some = True
            out[i, at] = np.float32(most)
            for c in range(np.uint64(1 + channels)):
                out[i, np.uint64(at + 1) + c] = np.float32(0)
            for side in range(sides):
                if att.held.data[row, side * heads + h] > 0:
                    # relative to the shift as it is written
                    factor = math.exp(_shift_of(att, z, row, h, side) - np.float64(out[i, at]))
                    _add_side(att, row, side * heads + h, factor, out, i, at + 1)


@kernel
def merge_partial_attention(
    index: np.ndarray, partial: np.ndarray, slots: np.ndarray, out: np.ndarray, shifts: tuple[int, int], heads: int
) -> None:
    """[m | D | N] of every head of each slot's partials, added in the order of the parts; 0 where there are none."""
    step = out.shape[1] // heads
    for i in range(len(slots)):
        base = np.int64(slots[i] >> shifts[0]) << shifts[1]
        for h in range(heads):
            first, most, some = h * step, np.float32(0), False
            for part in range(index.shape[1]):
                if index[slots[i], part] >= 0:
                    m = partial[base + index[slots[i], part], first]
                    if not some or m > most:
                        most = m
                    some = True
            out[i, first] = most
            for j in range(first + 1, first + step):
                total = np.float64(0)
                for part in range(index.shape[1]):
                    if index[slots[i], part] >= 0:
                        row = base + index[slots[i], part]
                        total += np.float64(partial[row, j]) * math.exp(
                            np.float64(partial[row, first]) - np.float64(most)
                        )
                out[i, j] = np.float32(total)
