"""Reading of softmax sums (kernels.py), and merging of the readings of several parts in a Tail."""

from __future__ import annotations

import math

import numpy as np

from freshet.gnn.synopses.attend import AttentionEpilogue, exp_of, put_head, weights_of_head
from freshet.gnn.synopses.scores import ADDITIVE
from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch_wide_row
from freshet.operators.aggregates.attention import lanes
from freshet.operators.aggregates.attention.kernels import (
    Attention,
    denominator_of,
    held_at,
    loops_at,
    places_of,
    shift_at,
    sums_of,
    sums_terms,
    target_at,
)
from freshet.operators.aggregates.attention.lanes import LANES
from freshet.operators.aggregates.finishing import ask_for_rows, end_row, store_row
from freshet.state.table import View

_AHEAD = 8


@inner
def _shift_of(att: Attention, row: int, h: int, side: int) -> np.float64:
    """Return the shift of a side's sums, the target's part of an additive score included."""
    shift = np.float64(att.reals[row, shift_at(att, side * att.terms.heads + h)])
    if att.terms.kind == ADDITIVE:
        target = np.float64(att.reals[row, target_at(att, h)])
        shift += target if side else np.float64(att.terms.slope) * target
    return shift


@inner
def _has_messages(att: Attention, row: int, k: int) -> bool:
    """Return whether a side has messages: between epochs its denominator is 0 without, and at least 2^-80 or NaN with.

    So it says what `held` does, in a line of memory that is read anyway.
    """
    return denominator_of(att, row, k) != 0


@inner
def _read_head(att: Attention, row: int, h: int, out: np.ndarray, at: int) -> None:
    """Write [m | D | N] of a head of a row to the flat `out`, from `at` on, the sides put together."""
    heads, most, many, one, other = att.terms.heads, np.float64(0), 0, 0, 0
    for side in range(sums_of(att) // heads):
        if _has_messages(att, row, side * heads + h):
            shift = _shift_of(att, row, h, side)
            most = max(most, shift) if many else shift
            one, other, many = one if many else side, side, many + 1
    out[at] = np.float32(most)
    # relative to the shift as it is written; where there are no messages at all sums are 0
    factor = exp_of(_shift_of(att, row, h, one) - np.float64(out[at])) if many else np.float64(0)
    first, _ = places_of(att, one * heads + h, np.int64(0))
    if many > 1:
        more = exp_of(_shift_of(att, row, h, other) - np.float64(out[at]))
        second, _ = places_of(att, other * heads + h, np.int64(0))
        _read_two(att, row, first, factor, second, more, out, at + 1)
    else:
        _read_one(att, row, first, factor, out, at + 1)


@inner
def _read_one(att: Attention, row: int, first: np.uint64, factor: np.float64, out: np.ndarray, at: int) -> None:
    """Write [D | N] of a side to the flat `out`, from `at` on."""
    s, channels, to = att.s.data, att.terms.channels, np.uint64(at + 1)
    place, whole = np.int64(row) * s.shape[1] + np.int64(first) + 1, channels - channels % LANES
    out[at] = np.float32(0) + np.float32(s[row, first] * factor)
    for j in range(0, whole, LANES):
        lanes.read_one(s, place + j, factor, out, np.int64(at + 1 + j))
    for c in range(np.uint64(whole), np.uint64(channels)):
        out[to + c] = np.float32(0) + np.float32(s[row, first + np.uint64(1) + c] * factor)


@inner
def _read_two(
    att: Attention,
    row: int,
    first: np.uint64,
    factor: np.float64,
    second: np.uint64,
    more: np.float64,
    out: np.ndarray,
    at: int,
) -> None:
    """Write the sum of [D | N] of both sides to the flat `out`, from `at` on."""
    s, channels, to = att.s.data, att.terms.channels, np.uint64(at + 1)
    place, whole = np.int64(row) * s.shape[1] + 1, channels - channels % LANES
    out[at] = np.float32(0) + np.float32(s[row, first] * factor) + np.float32(s[row, second] * more)
    for j in range(0, whole, LANES):
        one, other = place + np.int64(first) + j, place + np.int64(second) + j
        lanes.read_two(s, one, factor, other, more, out, np.int64(at + 1 + j))
    for c in range(np.uint64(whole), np.uint64(channels)):
        one, other = s[row, first + np.uint64(1) + c], s[row, second + np.uint64(1) + c]
        out[to + c] = np.float32(0) + np.float32(one * factor) + np.float32(other * more)


@inner
def _count_of(att: Attention, row: int) -> np.float32:
    """Return the number of messages of a row."""
    return np.float32(att.note[row, held_at(att, 0)] + att.note[row, held_at(att, att.terms.heads)])


@inner
def _read_terms(att: Attention, row: int, out: np.ndarray, at: int) -> None:
    """Write the sums of the edges' terms, and the number of edges, to the flat `out`, from `at` on."""
    for h in range(att.terms.heads):
        out[at + h] = np.float32(att.s.data[row, att.before + loops_at(att) + h])
    out[at + att.terms.heads] = _count_of(att, row)


@inner
def _loop_term(att: Attention, row: int, h: int, end: AttentionEpilogue) -> np.float32:
    """Return the term of the self-loop of a row."""
    if sums_terms(att):
        count = max(_count_of(att, row), np.float32(1))
        return np.float32(np.float32(att.s.data[row, att.before + loops_at(att) + h]) / count)
    return end.fill[h] if len(end.fill) else np.float32(0)


@inner
def _attend_head(
    att: Attention, agg: np.ndarray, own: np.ndarray, row: int, h: int, end: AttentionEpilogue, out: np.ndarray
) -> None:
    """Write what a row makes of one head, [m | D | N] at the beginning of `agg`, to `out`, as gnn.attend does."""
    theirs, ours = weights_of_head(agg, 0, own, row, h, _loop_term(att, row, h, end), end.loops, att.terms, end.concat)
    channels = att.terms.channels
    whole = channels - channels % LANES if end.loops and end.concat else 0
    at, to = np.int64(row) * own.shape[1] + h * channels, np.int64(h * channels)
    for j in range(0, whole, LANES):
        lanes.blend(agg, np.int64(2 + j), theirs, own, at + j, ours, out, to + j)
    put_head(agg, 0, theirs, own, row, h, ours, end.loops, att.terms, end.concat, whole, out)


@kernel
def read_attention(att: Attention, slots: np.ndarray, out: np.ndarray, first: int) -> None:
    """Write [m | D | N] of every head of these rows to `out`, from column `first` on."""
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_wide_row(att.s.data, np.int64(slots[i + _AHEAD]))
        for h in range(att.terms.heads):
            _read_head(att, slots[i], h, out[i], first + h * (att.terms.channels + 2))
        if sums_terms(att):
            _read_terms(att, slots[i], out[i], first + att.terms.heads * (att.terms.channels + 2))


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
    """UPDATE by an `AttentionEpilogue`, as `finishing.Finish` has it.

    Shapes: own (rows of the table, its width) float32; scratch (channels + 2,) float32; the others as there.
    """
    n, width, bits, out_bits = len(slots), out.shape[1], table.data.view(np.int32), out.view(np.int32)
    for i in range(n):
        ask_for_rows(att.s.data, own, table.data, slots, i)
        row, count = slots[i], at[group[i]]
        for c in range(0 if end.concat else width):
            out[count, c] = np.float32(0)
        for h in range(att.terms.heads):
            _read_head(att, row, h, scratch, 0)
            _attend_head(att, scratch, own, row, h, end, out[count])
        for c in range(width if end.residual else 0):
            out[count, c] += own[row, own.shape[1] - width + c]
        end_row(out, count, end.bias, end.relu)
        store_row(table, bits, row, out_bits, forced[i], at, group[i], out_slots)


@kernel
def merge_partial_attention(
    index: np.ndarray,
    partial: np.ndarray,
    slots: np.ndarray,
    out: np.ndarray,
    shifts: tuple[int, int],
    columns: tuple[int, int],
    heads: int,
) -> None:
    """[m | D | N] of every head of each slot's partials, added in the order of the parts; 0 where there are none."""
    step = (columns[1] - columns[0]) // heads
    for i in range(len(slots)):
        base = np.int64(slots[i] >> shifts[0]) << shifts[1]
        for h in range(heads):
            first, most, some = columns[0] + h * step, np.float32(0), False
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
