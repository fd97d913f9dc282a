"""Kernels of softmax sums: per row, side and head a shift, D = sum p and N = sum p * value; p = exp(score - shift).

p and p * value are rounded to float32 before they are added in float64, so that these are the exact sums of
operators/storage/exact_sums.py: what came and went leaves nothing, and a row that lost something knows it. The shift of
a head stays while its messages stay, as what is taken back must be what was added. It follows the scores where a row is
summed afresh: where a score is far above the shift, where little is left of the denominator, or where the target's
term changes and the score is not additive.

Of an additive score, LeakyReLU(s_u + t_v), a part sums e^(s_u) and e^(slope s_u) on either side of s_u + t_v = 0, and
the target's factor comes in when the sums are read. If t_v changes, the messages that change sides are moved.

Invariant: D and N of a side are the sums over the in-edges (u, v) of this part whose score is on that side.
Source: algebra.md 0.3 and 1.3; NeutronRT, algorithm 3, for deltas made of old source values.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gnn.kernel import inner, kernel
from gnn.scores import ADDITIVE, Terms, score_of, side_of
from operators.storage.edge_messages import Edges, Messages, Moves, turns
from operators.storage.exact_sums import (
    LAST_SERIAL,
    LOSSY,
    add_term,
    add_term_compensated,
    begin_afresh,
    clear_sum,
    compensate,
    forget_loss,
    is_worn,
    note_loss,
    prefetch_sum,
    replace_sum,
)
from state.adjacency import base_of, place_of
from state.prefetch import prefetch, prefetch_row
from state.table import View, touch

DELTAS, FLIPPED, SCANNED, AFRESH, REREAD = range(5)  # what is counted: messages, messages, rows, messages
_AHEAD = 8
_HIGHEST = 30.0  # of a score above the shift
_LEAST = 2.0**-80  # of a denominator: what has vanished from float32 beside the shift is nothing beside this


class Attention(NamedTuple):
    """What the kernels get of a fold of softmax sums."""

    s: View  # (rows, sides * heads * (1 + channels)) float64: per side and head D, then N
    note: View  # (rows, 4) int32, see operators/storage/exact_sums.py
    shift: View  # (rows, sides * heads) float32
    held: View  # (rows, sides * heads) int32: messages
    near: View  # (rows, heads) float32: of additive scores the source's terms once more, for scans of in-edges
    renew: np.ndarray  # (rows,) int32: the serial of the last epoch that has the row summed afresh
    touched: np.ndarray  # (rows,) int32
    counter: np.ndarray  # (1,) int64: how many rows are touched
    fresh: np.ndarray  # (2, sides * heads * (1 + channels)) float64
    counts: np.ndarray  # (5,) int64
    terms: Terms


@inner
def _score(att: Attention, z: np.ndarray, u: int, v: int, h: int, side: int) -> np.float64:
    """The score of an edge; of an additive one the source's part of it on that side."""
    if att.terms.kind == ADDITIVE:
        s = np.float64(z[u, att.terms.source + h])
        return s if side else np.float64(att.terms.slope) * s
    return score_of(att.terms, z, u, v, h)


@inner
def _side(att: Attention, z: np.ndarray, u: int, v: int, h: int) -> np.int64:
    if att.terms.kind != ADDITIVE:
        return np.int64(0)
    return side_of(att.terms, z[u, att.terms.source + h], z[v, att.terms.target + h])


@inner
def _mark(att: Attention, row: int, serial: int) -> None:
    """Note that the sums of `row` change in this epoch."""
    if att.note.data[row, LAST_SERIAL] != serial:
        touch(att.note, row)
        att.note.data[row, LAST_SERIAL] = serial
        att.touched[att.counter[0]] = row
        att.counter[0] += 1
        touch(att.s, row)
        touch(att.shift, row)
        touch(att.held, row)


@inner
def _clear_side(att: Attention, row: int, k: int) -> None:
    """Sums without messages are exactly 0."""
    first = k * (1 + att.terms.channels)
    for j in range(first, first + 1 + att.terms.channels):
        att.s.data[row, j] = 0.0
    att.shift.data[row, k] = np.float32(0)


@inner
def _change(att: Attention, z: np.ndarray, u: int, v: int, h: int, side: int, sign: int, serial: int) -> None:
    """Add the message of u to one side of a head of v, or take it back where `sign` is -1."""
    k = side * att.terms.heads + h
    score = _score(att, z, u, v, h, side)
    if sign > 0 and att.held.data[v, k] == 0:
        _clear_side(att, v, k)
        att.shift.data[v, k] = np.float32(score)
    att.held.data[v, k] += np.int32(sign)
    above = score - np.float64(att.shift.data[v, k])
    if not above <= _HIGHEST:
        att.renew[v] = serial
        return
    p = np.float32(math.exp(above))
    first = k * (1 + att.terms.channels)
    lossy = add_term(att.s.data, v, first, np.float64(p) * sign)
    for c in range(att.terms.channels):
        term = np.float64(p * z[u, h * att.terms.channels + c])
        lossy |= add_term(att.s.data, v, first + 1 + c, term * sign)
    if lossy:
        note_loss(att.s.data, att.note.data, v, lossy, 0.0)


@inner
def _prefetch_sums(att: Attention, z: np.ndarray, u: int, v: int) -> None:
    """Ask for the sums that a message from u to v changes."""
    step = 1 + att.terms.channels
    prefetch(att.note.data, np.int64(v) * 4)
    prefetch(att.held.data, np.int64(v) * att.held.data.shape[1])
    prefetch(att.shift.data, np.int64(v) * att.held.data.shape[1])
    for h in range(att.terms.heads):
        first = (_side(att, z, u, v, h) * att.terms.heads + h) * step
        for j in range(first, first + step, 8):
            prefetch(att.s.data, np.int64(v) * att.s.data.shape[1] + j)


@kernel
def add_messages(att: Attention, edges: Edges, messages: Messages, sign: int, serial: int) -> None:
    """Add these messages to the sums of their destinations, or take them back where `sign` is -1.

    Rows that are to be summed afresh are left alone.
    """
    z, n = edges.z.data, len(messages.src)
    for i in range(n):
        if i + 2 * _AHEAD < n:
            prefetch_row(z, np.int64(messages.src[i + 2 * _AHEAD]))
            prefetch(z, np.int64(messages.dst[i + 2 * _AHEAD]) * z.shape[1] + att.terms.target)
        if i + _AHEAD < n:
            _prefetch_sums(att, z, messages.src[i + _AHEAD], messages.dst[i + _AHEAD])
        u, v = messages.src[i], messages.dst[i]
        _mark(att, v, serial)
        if att.renew[v] == serial:
            continue
        att.counts[DELTAS] += 1
        for h in range(att.terms.heads):
            _change(att, z, u, v, h, _side(att, z, u, v, h), sign, serial)


@kernel
def turn_targets(att: Attention, edges: Edges, moves: Moves, rows: np.ndarray, serial: int) -> None:
    """Have the rows summed afresh whose targets' terms change to those of `rows`, in the same places as the moves."""
    first, width = att.terms.reads
    for i in range(len(moves.slots)):
        v = moves.slots[i]
        if edges.in_edges.data[v] > 0 and turns(edges.z.data, v, rows, moves.places[i], first, width):
            _mark(att, v, serial)
            att.renew[v] = serial


@kernel
def move_sides(att: Attention, edges: Edges, moves: Moves, rows: np.ndarray, serial: int) -> None:
    """Of targets whose terms change to those of `rows`, move the messages whose side changes.

    The table has the old values yet, and the lists the edges of the epoch before that stay; messages of sources that
    change as well have been taken back, and come again by their new values.
    """
    z, pool = edges.z.data, edges.inn.pool.data
    near, heads = att.near.data, att.terms.heads
    for i in range(len(moves.slots)):
        v, row = moves.slots[i], moves.places[i]
        if edges.in_edges.data[v] == 0 or not turns(z, v, rows, row, att.terms.target, heads):
            continue
        _mark(att, v, serial)
        base, at = base_of(edges.inn, v), place_of(edges.inn, v)
        end = at + edges.inn.head.data[v, 1]
        for k in range(at, end):
            if k + _AHEAD < end:
                prefetch(near, np.int64(base + pool[k + _AHEAD]) * heads)
            u = base + pool[k]
            if moves.stamp[u] == moves.serial or att.renew[v] == serial:
                continue
            att.counts[SCANNED] += 1
            for h in range(heads):
                source, target = near[u, h], att.terms.target + h
                before, after = side_of(att.terms, source, z[v, target]), side_of(att.terms, source, rows[row, target])
                if before != after:
                    att.counts[FLIPPED] += 1
                    _change(att, z, u, v, h, before, -1, serial)
                    _change(att, z, u, v, h, after, 1, serial)
    for i in range(len(moves.slots)):
        touch(att.near, moves.slots[i])
        for h in range(heads):
            near[moves.slots[i], h] = rows[moves.places[i], att.terms.source + h]


@inner
def _little_is_left(att: Attention, row: int) -> bool:
    """Whether a denominator is small beside its shift, or not finite, though there are messages."""
    for k in range(att.held.data.shape[1]):
        if att.held.data[row, k] > 0 and not att.s.data[row, k * (1 + att.terms.channels)] >= _LEAST:
            return True
    return False


@inner
def _clear_sides(att: Attention, row: int) -> None:
    lossy = att.note.data[row, LOSSY] != 0
    for k in range(att.held.data.shape[1]):
        if att.held.data[row, k] == 0 and (lossy or att.s.data[row, k * (1 + att.terms.channels)] != 0):
            _clear_side(att, row, k)


@inner
def _find_shifts(att: Attention, edges: Edges, row: int, at: int, end: int) -> None:
    """Set the shifts to the largest scores, and count the messages of each side."""
    z, pool, base = edges.z.data, edges.inn.pool.data, base_of(edges.inn, row)
    for k in range(att.held.data.shape[1]):
        att.held.data[row, k] = 0
        att.shift.data[row, k] = np.float32(0)
    for i in range(at, end):
        if i + _AHEAD < end:
            prefetch_row(z, np.int64(base + pool[i + _AHEAD]))
        for h in range(att.terms.heads):
            side = _side(att, z, base + pool[i], row, h)
            k = side * att.terms.heads + h
            score = np.float32(_score(att, z, base + pool[i], row, h, side))
            if att.held.data[row, k] == 0 or score > att.shift.data[row, k]:
                att.shift.data[row, k] = score
            att.held.data[row, k] += 1


@inner
def _sum_afresh(att: Attention, edges: Edges, row: int) -> None:
    """Make the sums of a row from its in-edges in this part."""
    z, pool, fresh = edges.z.data, edges.inn.pool.data, att.fresh
    base, at = base_of(edges.inn, row), place_of(edges.inn, row)
    end = at + edges.inn.head.data[row, 1]
    _find_shifts(att, edges, row, at, end)
    begin_afresh(fresh)
    for i in range(at, end):
        if i + _AHEAD < end:
            prefetch_row(z, np.int64(base + pool[i + _AHEAD]))
        u = base + pool[i]
        for h in range(att.terms.heads):
            side = _side(att, z, u, row, h)
            k = side * att.terms.heads + h
            p = np.float32(math.exp(_score(att, z, u, row, h, side) - np.float64(att.shift.data[row, k])))
            first = k * (1 + att.terms.channels)
            add_term_compensated(fresh, first, np.float64(p))
            for c in range(att.terms.channels):
                add_term_compensated(fresh, first + 1 + c, np.float64(p * z[u, h * att.terms.channels + c]))
    replace_sum(att.s.data, att.note.data, row, fresh, compensate(fresh))
    att.counts[AFRESH] += 1
    att.counts[REREAD] += end - at


@kernel
def settle(att: Attention, edges: Edges, serial: int) -> None:
    """At the end of an epoch, clear the sums of nothing and make those afresh that have to be."""
    for i in range(att.counter[0]):
        row = att.touched[i]
        if edges.in_edges.data[row] == 0:
            for k in range(att.held.data.shape[1]):
                att.held.data[row, k] = 0
            _clear_sides(att, row)
            clear_sum(att.s, row)
            forget_loss(att.note.data, row)
            continue
        if att.renew[row] != serial:
            _clear_sides(att, row)
        if att.renew[row] == serial or _little_is_left(att, row) or is_worn(att.s.data, att.note.data, row):
            _sum_afresh(att, edges, row)


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
    first = k * (1 + att.terms.channels)
    for c in range(1 + att.terms.channels):
        out[i, at + c] += np.float32(att.s.data[row, first + c] * factor)


@kernel
def read_attention(att: Attention, z: np.ndarray, slots: np.ndarray, out: np.ndarray, first: int) -> None:
    """Write [m | D | N] of every head of these rows to `out`, from column `first` on, the sides put together."""
    sides, heads, channels = att.held.data.shape[1] // att.terms.heads, att.terms.heads, att.terms.channels
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_sum(att.s.data, np.int64(slots[i + _AHEAD]))
            prefetch(z, np.int64(slots[i + _AHEAD]) * z.shape[1] + att.terms.target)
        row = slots[i]
        for h in range(heads):
            at, most, some = first + h * (channels + 2), np.float64(0), False
            for side in range(sides):
                if att.held.data[row, side * heads + h] > 0:
                    shift = _shift_of(att, z, row, h, side)
                    most = max(most, shift) if some else shift
                    some = True
            out[i, at] = np.float32(most)
            for c in range(1 + channels):
                out[i, at + 1 + c] = np.float32(0)
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
