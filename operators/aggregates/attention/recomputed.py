"""Softmax sums recomputed from the in-edges of their part, and the end of an epoch, which finds these rows."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import apart, exp, inner
from freshet.kernels.prefetch import prefetch_row
from freshet.operators.aggregates.attention.kernels import (
    AFRESH,
    AHEAD,
    REREAD,
    SUSPECT,
    TOUCHED,
    Attention,
    InEdges,
    clear_side,
    denominator_of,
    edge_of,
    held_at,
    little_is_left,
    loops_at,
    prefetch_head,
    score_on,
    shift_at,
    side_in,
    source_in,
    sums_of,
    sums_terms,
    term_of,
)
from freshet.operators.aggregates.exact_sums import (
    LOSSY,
    add_term_compensated,
    begin_afresh,
    compensate,
    forget_loss,
    is_worn,
    replace_sum,
)
from freshet.state.adjacency import base_of, place_of


@inner
def _little_is_left(att: Attention, row: int) -> bool:
    """Return whether little is left of a side that has messages."""
    for k in range(sums_of(att)):
        if att.note[row, held_at(att, k)] > 0 and little_is_left(denominator_of(att, row, k)):
            return True
    return False


@inner
def _is_worn(att: Attention, row: int) -> bool:
    return is_worn(att.s.data[:, att.before : att.before + att.fresh.shape[1]], att.note, row)


@inner
def _clear_sides(att: Attention, row: int) -> None:
    lossy = att.note[row, LOSSY] != 0
    for k in range(sums_of(att)):
        left = denominator_of(att, row, k) != 0
        if att.note[row, held_at(att, k)] == 0 and (lossy or left):
            clear_side(att, row, k)


@apart
def _find_shifts(att: Attention, edges: InEdges, row: int, at: int, end: int) -> None:
    """Set the shifts to the largest scores, and count the messages of each side."""
    z, q, pool, base, numbers = edges.z, edges.q, edges.inn.pool.data, base_of(edges.inn, row), edges.terms.numbers
    for k in range(sums_of(att)):
        att.note[row, held_at(att, k)] = 0
        att.reals[row, shift_at(att, k)] = np.float32(0)
    for i in range(at, end):
        if i + AHEAD < end:
            prefetch_row(z, np.int64(base + pool[i + AHEAD]))
        e = edge_of(edges, numbers, i, row)
        for h in range(att.terms.heads):
            source = source_in(att, edges, z, base + pool[i], e, h)
            side = side_in(att, source, row, h)
            k = side * att.terms.heads + h
            score = np.float32(score_on(att, source, z, base + pool[i], q, row, h, side))
            held, shift = held_at(att, k), shift_at(att, k)
            if att.note[row, held] == 0 or score > att.reals[row, shift]:
                att.reals[row, shift] = score
            att.note[row, held] += 1


@apart
def sum_afresh(att: Attention, edges: InEdges, row: int) -> None:
    """Make the sums of a row from its in-edges in this part."""
    z, q, pool, fresh = edges.z, edges.q, edges.inn.pool.data, att.fresh
    base, at, loops = base_of(edges.inn, row), place_of(edges.inn, row), np.uint64(loops_at(att))
    end = at + edges.inn.head.data[row, 1]
    _find_shifts(att, edges, row, at, end)
    begin_afresh(fresh)
    for i in range(at, end):
        if i + AHEAD < end:
            prefetch_row(z, np.int64(base + pool[i + AHEAD]))
        u, e = base + pool[i], edge_of(edges, edges.terms.numbers, i, row)
        for h in range(att.terms.heads if sums_terms(att) else 0):
            add_term_compensated(fresh, loops + np.uint64(h), np.float64(np.float32(term_of(edges, e, h))))
        for h in range(att.terms.heads):
            source = source_in(att, edges, z, u, e, h)
            side = side_in(att, source, row, h)
            k = side * att.terms.heads + h
            shift = np.float64(att.reals[row, shift_at(att, k)])
            p = np.float32(exp(score_on(att, source, z, u, q, row, h, side) - shift))
            first, value = np.uint64(k * (1 + att.terms.channels)), np.uint64(h * att.terms.channels)
            add_term_compensated(fresh, first, np.float64(p))
            for c in range(np.uint64(att.terms.channels)):
                add_term_compensated(fresh, first + np.uint64(1) + c, np.float64(p * z[u, value + c]))
    replace_sum(att.s.data[:, att.before : att.before + fresh.shape[1]], att.note, row, fresh, compensate(fresh))
    att.counts[AFRESH] += 1
    att.counts[REREAD] += end - at


@inner
def clear_row(att: Attention, row: int) -> None:
    """Have no messages in a row."""
    for k in range(sums_of(att)):
        att.note[row, held_at(att, k)] = 0
        clear_side(att, row, k)
    for j in range(att.before + loops_at(att), att.before + att.fresh.shape[1]):
        att.s.data[row, j] = 0.0
    forget_loss(att.note, row)


@inner
def wants_sums(att: Attention, row: int, serial: int) -> bool:
    """Return whether a row that has messages has to be summed again; sides of it without any are cleared."""
    if att.renew[row] == serial:
        return True
    _clear_sides(att, row)
    return _little_is_left(att, row) or _is_worn(att, row)


@inner
def settle(att: Attention, edges: InEdges, serial: int) -> None:
    """At the end of an epoch, clear sums without messages and sum marked rows again.

    Of the touched rows only marked ones need a check: those to be summed again, those that lost precision, and those
    that had a side without messages or with a small denominator in this epoch.
    """
    n, note = att.counter[TOUCHED], att.note
    for i in range(n):
        if i + AHEAD < n:
            prefetch_head(att, att.touched[i + AHEAD])
        row = att.touched[i]
        if note[row, SUSPECT] != serial:
            continue
        if edges.in_edges[row] == 0:
            clear_row(att, row)
        elif wants_sums(att, row, serial):
            sum_afresh(att, edges, row)
