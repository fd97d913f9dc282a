"""Softmax sums that are made afresh from the in-edges of their part, and the end of an epoch, which finds them."""

from __future__ import annotations

import math

import numpy as np

from gnn.kernel import apart, inner
from operators.storage.aggregates.attention_kernels import (
    AFRESH,
    AHEAD,
    REREAD,
    SUSPECT,
    TOUCHED,
    Attention,
    InEdges,
    clear_side,
    little_is_left,
    places_of,
    score_on,
    side_in,
)
from operators.storage.exact_sums import (
    LOSSY,
    add_term_compensated,
    begin_afresh,
    clear_sum,
    compensate,
    forget_loss,
    is_worn,
    replace_sum,
)
from state.adjacency import base_of, place_of
from state.prefetch import prefetch, prefetch_row


@inner
def _little_is_left(att: Attention, row: int) -> bool:
    """Whether little is left of a side that has messages."""
    for k in range(att.held.data.shape[1]):
        if att.held.data[row, k] > 0 and little_is_left(att.s.data[row, k * (1 + att.terms.channels)]):
            return True
    return False


@inner
def _clear_sides(att: Attention, row: int) -> None:
    lossy = att.note.data[row, LOSSY] != 0
    for k in range(att.held.data.shape[1]):
        if att.held.data[row, k] == 0 and (lossy or att.s.data[row, k * (1 + att.terms.channels)] != 0):
            clear_side(att, row, k)


@apart
def _find_shifts(att: Attention, edges: InEdges, row: int, at: int, end: int) -> None:
    """Set the shifts to the largest scores, and count the messages of each side."""
    z, pool, base = edges.z.data, edges.inn.pool.data, base_of(edges.inn, row)
    for k in range(att.held.data.shape[1]):
        att.held.data[row, k] = 0
        att.shift.data[row, k] = np.float32(0)
    for i in range(at, end):
        if i + AHEAD < end:
            prefetch_row(z, np.int64(base + pool[i + AHEAD]))
        for h in range(att.terms.heads):
            side = side_in(att, z, base + pool[i], z, row, h)
            k = side * att.terms.heads + h
            score = np.float32(score_on(att, z, base + pool[i], z, row, h, side))
            if att.held.data[row, k] == 0 or score > att.shift.data[row, k]:
                att.shift.data[row, k] = score
            att.held.data[row, k] += 1


@apart
def _sum_afresh(att: Attention, edges: InEdges, row: int) -> None:
    """Make the sums of a row from its in-edges in this part."""
    z, pool, fresh = edges.z.data, edges.inn.pool.data, att.fresh
    base, at = base_of(edges.inn, row), place_of(edges.inn, row)
    end = at + edges.inn.head.data[row, 1]
    _find_shifts(att, edges, row, at, end)
    begin_afresh(fresh)
    for i in range(at, end):
        if i + AHEAD < end:
            prefetch_row(z, np.int64(base + pool[i + AHEAD]))
        u = base + pool[i]
        for h in range(att.terms.heads):
            side = side_in(att, z, u, z, row, h)
            k = side * att.terms.heads + h
            p = np.float32(math.exp(score_on(att, z, u, z, row, h, side) - np.float64(att.shift.data[row, k])))
            first, value = places_of(att, k, h)
            add_term_compensated(fresh, first, np.float64(p))
            for c in range(np.uint64(att.terms.channels)):
                add_term_compensated(fresh, first + np.uint64(1) + c, np.float64(p * z[u, value + c]))
    replace_sum(att.s.data, att.note.data, row, fresh, compensate(fresh))
    att.counts[AFRESH] += 1
    att.counts[REREAD] += end - at


@inner
def settle(att: Attention, edges: InEdges, serial: int) -> None:
    """At the end of an epoch, clear the sums of nothing and make those afresh that have to be.

    Of the touched rows only suspects need a look: those that are to be summed afresh, that have lost something, that
    had a side without messages in this epoch, or one with a small denominator.
    """
    n, note = att.counter[TOUCHED], att.note.data
    for i in range(n):
        if i + AHEAD < n:
            prefetch(note, np.int64(att.touched[i + AHEAD]) * 4)
        row = att.touched[i]
        if note[row, SUSPECT] != serial:
            continue
        if edges.in_edges[row] == 0:
            for k in range(att.held.data.shape[1]):
                att.held.data[row, k] = 0
            _clear_sides(att, row)
            clear_sum(att.s, row)
            forget_loss(note, row)
            continue
        if att.renew[row] != serial:
            _clear_sides(att, row)
        if att.renew[row] == serial or _little_is_left(att, row) or is_worn(att.s.data, note, row):
            _sum_afresh(att, edges, row)
