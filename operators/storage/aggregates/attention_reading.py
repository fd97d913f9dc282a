"""What is read of softmax sums (attention_kernels.py), and how a tail puts what several parts have read together."""

from __future__ import annotations

import math

import numpy as np

from gnn.attend import AttentionEpilogue, attend_head, exp_of
from gnn.kernel import inner, kernel
from gnn.scores import ADDITIVE
from operators.storage.aggregates.attention_kernels import Attention, places_of, shift_at, sums_of, target_at
from operators.storage.exact_sums import prefetch_sum
from operators.storage.row_kernels import replace_row
from state.prefetch import prefetch_row
from state.table import View

_AHEAD = 8


@inner
def _shift_of(att: Attention, row: int, h: int, side: int) -> np.float64:
    """What a side's sums are relative to, the target's part of an additive score included."""
    shift = np.float64(att.reals[row, shift_at(att, side * att.terms.heads + h)])
    if att.terms.kind == ADDITIVE:
        target = np.float64(att.reals[row, target_at(att, h)])
        shift += target if side else np.float64(att.terms.slope) * target
    return shift


@inner
def _has_messages(att: Attention, row: int, k: int) -> bool:
    """Whether a side has any: between epochs its denominator is 0 without them, and 2^-80 at least, or NaN, with them.

    So it says what `held` does, in a line of memory that is read anyway.
    """
    return att.sums[row, k * (1 + att.terms.channels)] != 0


@inner
def _read_head(att: Attention, row: int, h: int, out: np.ndarray, at: int) -> None:
    """Write [m | D | N] of a head of a row to the flat `out`, from `at` on, the sides put together."""
    heads, most, some = att.terms.heads, np.float64(0), False
    sides = sums_of(att) // heads
    for side in range(sides):
        if _has_messages(att, row, side * heads + h):
            shift = _shift_of(att, row, h, side)
            most = max(most, shift) if some else shift
            some = True
    out[at] = np.float32(most)
    behind, many = np.uint64(at + 1), np.uint64(1 + att.terms.channels)
    for c in range(many):
        out[behind + c] = np.float32(0)
    for side in range(sides):
        k = side * heads + h
        if _has_messages(att, row, k):
            first, _ = places_of(att, k, np.int64(0))
            # relative to the shift as it is written
            factor = exp_of(_shift_of(att, row, h, side) - np.float64(out[at]))
            for c in range(many):
                out[behind + c] += np.float32(att.s.data[row, first + c] * factor)


@kernel
def read_attention(att: Attention, slots: np.ndarray, out: np.ndarray, first: int) -> None:
    """Write [m | D | N] of every head of these rows to `out`, from column `first` on."""
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_sum(att.s.data, np.int64(slots[i + _AHEAD]))
        for h in range(att.terms.heads):
            _read_head(att, slots[i], h, out[i], first + h * (att.terms.channels + 2))


@inner
def _end_row(out: np.ndarray, own: np.ndarray, row: int, end: AttentionEpilogue) -> None:
    """Add the residual and the bias, and apply ReLU."""
    width = len(out)
    for c in range(width if end.residual else 0):
        out[c] += own[row, own.shape[1] - width + c]
    for c in range(len(end.bias)):
        out[c] += end.bias[c]
    for c in range(width if end.relu else 0):
        out[c] = np.float32(0) if out[c] <= 0 else out[c]


@kernel
def finish_attention(
    att: Attention,
    own: np.ndarray,
    end: AttentionEpilogue,
    scratch: np.ndarray,
    slots: np.ndarray,
    forced: np.ndarray,
    group: np.ndarray,
    at: np.ndarray,
    table: View,
    out_slots: np.ndarray,
    out: np.ndarray,
) -> None:
    """UPDATE by an epilogue for these rows, and `store`, as `row_kernels.finish` has it.

    Shapes: own (rows of the table, its width) float32; scratch (channels + 2,) float32; the others as there.
    """
    n, bits, out_bits = len(slots), table.data.view(np.int32), out.view(np.int32)
    for i in range(n):
        if i + _AHEAD < n:
            ahead = np.int64(slots[i + _AHEAD])
            prefetch_sum(att.s.data, ahead)
            prefetch_row(own, ahead)
            prefetch_row(table.data, ahead)
        row, count = slots[i], at[group[i]]
        for c in range(0 if end.concat else out.shape[1]):
            out[count, c] = np.float32(0)
        for h in range(att.terms.heads):
            _read_head(att, row, h, scratch, 0)
            attend_head(scratch, 0, own, row, h, end.loops, att.terms, end.concat, out[count])
        _end_row(out[count], own, row, end)
        if replace_row(table, bits, row, out_bits, count) or forced[i]:
            out_slots[count] = row
            at[group[i]] += 1


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
