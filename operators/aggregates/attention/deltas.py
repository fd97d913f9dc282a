"""Changes of softmax sums by messages: added, taken back, replaced, or from one side to the other.

See kernels.py for what the sums are, and what of a loss of precision is noted.
"""

from __future__ import annotations

import math

import numpy as np

from freshet.kernels.kernel import apart, inner
from freshet.kernels.prefetch import prefetch, prefetch_row
from freshet.operators.aggregates.attention import lanes
from freshet.operators.aggregates.attention.kernels import (
    AHEAD,
    DELTAS,
    LINE_DOUBLES,
    Attention,
    InEdges,
    clear_side,
    edge_of,
    held_at,
    is_renewed,
    little_is_left,
    loops_at,
    mark,
    note_loss_of,
    places_of,
    prefetch_head,
    renew,
    score_on,
    shift_at,
    side_in,
    source_in,
    sums_terms,
    suspect_where,
    term_of,
)
from freshet.operators.aggregates.attention.lanes import LANES
from freshet.operators.aggregates.exact_sums import inexact
from freshet.operators.graph.edge_messages import Messages, Moves, Turns, differs_at

_HIGHEST = 30.0  # of a score above the shift


@inner
def _lossy_from(att: Attention, first: np.uint64, lossy: np.int64) -> np.int64:
    """Lossy channels that were counted from column `first` of `s` on, as those of the sums."""
    by = (np.int64(first) - np.int64(att.before)) & np.int64(31)
    return ((lossy << by) | (lossy >> (np.int64(32) - by))) & np.int64(0xFFFFFFFF)


@inner
def change(
    att: Attention, source: float, rows: np.ndarray, u: int, q: np.ndarray, v: int, h: int, side: int, sign: int,
    serial: int,
) -> None:  # fmt: skip
    """Add the message of row u of `rows` to one side of a head of v, or take it back where `sign` is -1."""
    k = side * att.terms.heads + h
    score = score_on(att, source, rows, u, q, v, h, side)
    if sign > 0 and att.note[v, held_at(att, k)] == 0:
        clear_side(att, v, k)
        att.reals[v, shift_at(att, k)] = np.float32(score)
    att.note[v, held_at(att, k)] += np.int32(sign)
    above = score - np.float64(att.reals[v, shift_at(att, k)])
    if not above <= _HIGHEST:
        renew(att, v, serial)
        return
    p = np.float32(math.exp(above))
    s, (first, value) = att.s.data, places_of(att, k, h)
    term, before = np.float64(p) * sign, s[v, first]
    after = before + term
    s[v, first] = after
    lossy, first, more = inexact(before, term, after), first + np.uint64(1), np.int64(0)
    to, place = np.int64(v) * s.shape[1] + np.int64(first), np.int64(u) * rows.shape[1] + np.int64(value)
    whole = att.terms.channels - att.terms.channels % LANES
    for j in range(0, whole, LANES):
        more |= lanes.add(s, to + j, rows, place + j, p, np.float64(sign)) << (j & np.int64(31))
    for c in range(np.uint64(whole), np.uint64(att.terms.channels)):
        term, before = np.float64(p * rows[u, value + c]) * sign, s[v, first + c]
        after = before + term
        s[v, first + c] = after
        more |= inexact(before, term, after) << (np.int64(c) & np.int64(31))
    if lossy | more:
        lossy = _lossy_from(att, first - np.uint64(1), lossy) | _lossy_from(att, first, more)
        note_loss_of(att, v, lossy, 0.0)
    # of a side whose last message goes nothing is left, or something was lost
    suspect_where(att, v, (lossy | more) != 0 or little_is_left(s[v, first - np.uint64(1)]), serial)


@apart
def change_sides(
    att: Attention, was: float, old: np.ndarray, u: int, source: float, new: np.ndarray, row: int, q: np.ndarray,
    v: int, h: int, serial: int,
) -> None:  # fmt: skip
    """Have one side of a head of v lose the message of `old[u]`, and the other one hold that of `new[row]`."""
    side = side_in(att, source, v, h)
    change(att, was, old, u, q, v, h, 1 - side, -1, serial)
    change(att, source, new, row, q, v, h, side, 1, serial)


@apart
def _bound_of_terms(rows: np.ndarray, u: int, p: np.float32, first: int, channels: int) -> np.float64:
    """A bound of what a message adds to any channel of a head."""
    largest = np.float64(p)
    for c in range(first, first + channels):
        size = abs(np.float64(p * rows[u, c]))
        largest = max(largest, size) if size == size else np.float64(np.inf)
    return largest


@inner
def _replace(
    att: Attention, edges: InEdges, u: int, new: np.ndarray, row: int, v: int, e: int, h: int, serial: int
) -> None:
    """Have a head of v hold the message of `new[row]` instead of that of u."""
    old, q = edges.z, edges.q
    was, source = source_in(att, edges, old, u, e, h), source_in(att, edges, new, row, e, h)
    side = side_in(att, was, v, h)
    if side != side_in(att, source, v, h):
        change_sides(att, was, old, u, source, new, row, q, v, h, serial)
        return
    k = side * att.terms.heads + h
    shift = np.float64(att.reals[v, shift_at(att, k)])
    above = score_on(att, was, old, u, q, v, h, side) - shift
    now = score_on(att, source, new, row, q, v, h, side) - shift
    if not (above <= _HIGHEST and now <= _HIGHEST):
        renew(att, v, serial)
        return
    p, then = np.float32(math.exp(above)), np.float32(math.exp(now))
    s, (first, value) = att.s.data, places_of(att, k, h)
    gone, come, before = np.float64(p), np.float64(then), s[v, first]
    term = come - gone
    after = before + term
    s[v, first] = after
    lossy = inexact(before, term, after) | inexact(come, -gone, term)
    first, more = first + np.uint64(1), np.int64(0)
    to, whole = np.int64(v) * s.shape[1] + np.int64(first), att.terms.channels - att.terms.channels % LANES
    at, place = np.int64(u) * old.shape[1] + np.int64(value), np.int64(row) * new.shape[1] + np.int64(value)
    for j in range(0, whole, LANES):
        more |= lanes.replace(s, to + j, old, at + j, p, new, place + j, then) << (j & np.int64(31))
    for c in range(np.uint64(whole), np.uint64(att.terms.channels)):
        gone, come = np.float64(p * old[u, value + c]), np.float64(then * new[row, value + c])
        term, before = come - gone, s[v, first + c]
        after = before + term
        s[v, first + c] = after
        # by c and not by the place in the row, from which the compiler makes each shift of a vector by itself
        more |= (inexact(before, term, after) | inexact(come, -gone, term)) << (np.int64(c) & np.int64(31))
    if lossy | more:
        begin, many = np.int64(value), att.terms.channels
        size = _bound_of_terms(old, u, p, begin, many) + _bound_of_terms(new, row, then, begin, many)
        lossy = _lossy_from(att, first - np.uint64(1), lossy) | _lossy_from(att, first, more)
        note_loss_of(att, v, lossy, size)
    suspect_where(att, v, (lossy | more) != 0 or little_is_left(s[v, first - np.uint64(1)]), serial)


@inner
def prefetch_side(att: Attention, v: int, k: int) -> None:
    """Ask for the sums of one side of one head."""
    step, at = np.int64(1 + att.terms.channels), np.int64(v) * att.s.data.shape[1]
    first = np.int64(att.before) + k * step
    # from the beginning of a cache line on, so that none is asked for twice or left out
    for j in range(first & ~np.int64(LINE_DOUBLES - 1), first + step, LINE_DOUBLES):
        prefetch(att.s.data, at + j)


@inner
def _prefetch_sums(att: Attention, edges: InEdges, u: int, v: int, e: int) -> None:
    """Ask for the sums that a message from u to v changes; the head of the row is there by now."""
    for h in range(att.terms.heads):
        prefetch_side(att, v, side_in(att, source_in(att, edges, edges.z, u, e, h), v, h) * att.terms.heads + h)


@inner
def _prefetch_edge(edges: InEdges, numbers: np.ndarray, i: int, v: int) -> None:
    """Ask for the attributes of an edge to v, if they are read."""
    if edges.terms.read:
        prefetch_row(edges.terms.attr, edge_of(edges, numbers, i, v))


@inner
def _change_terms(att: Attention, edges: InEdges, v: int, e: int, sign: int, serial: int) -> None:
    """Add the terms of an edge to the sums of them, or subtract them."""
    first, lossy = np.int64(att.before) + loops_at(att), np.int64(0)
    for h in range(att.terms.heads):
        term, before = np.float64(np.float32(term_of(edges, e, h))) * sign, att.s.data[v, first + h]
        after = before + term
        att.s.data[v, first + h] = after
        lossy |= inexact(before, term, after) << (np.int64(h) & np.int64(31))
    if lossy:
        note_loss_of(att, v, _lossy_from(att, np.uint64(first), lossy), 0.0)
        suspect_where(att, v, True, serial)


@inner
def _add_message(att: Attention, edges: InEdges, u: int, v: int, e: int, sign: int, serial: int) -> None:
    """Add a message to the sums of v, or subtract it if `sign` is -1, unless they will be summed again."""
    mark(att, v, serial)
    if is_renewed(att, v, serial):
        return
    att.counts[DELTAS] += 1
    for h in range(att.terms.heads):
        source = source_in(att, edges, edges.z, u, e, h)
        change(att, source, edges.z, u, edges.q, v, h, side_in(att, source, v, h), sign, serial)
    if sums_terms(att):
        _change_terms(att, edges, v, e, sign, serial)


@inner
def add_messages(att: Attention, edges: InEdges, messages: Messages, sign: int, serial: int) -> None:
    """Add these messages to the sums of their destinations, or subtract them if `sign` is -1.

    Rows that will be summed again are skipped.
    """
    z, n, numbers = edges.z, len(messages.src), messages.weight.view(np.int32)
    for i in range(n):
        if i + 2 * AHEAD < n:
            prefetch_row(z, np.int64(messages.src[i + 2 * AHEAD]))
            prefetch_head(att, messages.dst[i + 2 * AHEAD])
            _prefetch_edge(edges, numbers, i + 2 * AHEAD, messages.dst[i + 2 * AHEAD])
        if i + AHEAD < n:
            near = edge_of(edges, numbers, i + AHEAD, messages.dst[i + AHEAD])
            _prefetch_sums(att, edges, messages.src[i + AHEAD], messages.dst[i + AHEAD], near)
        u, v = messages.src[i], messages.dst[i]
        _add_message(att, edges, u, v, edge_of(edges, numbers, i, v), sign, serial)


@apart
def add_away(att: Attention, edges: InEdges, messages: Messages, sign: int, serial: int) -> None:
    """Add those of the messages, or subtract them, whose edges change as well; there may be none of these."""
    numbers = messages.weight.view(np.int32)
    for i in range(len(messages.src) if len(edges.terms.away) else 0):
        e = edge_of(edges, numbers, i, messages.dst[i])
        if edges.terms.away[e]:
            _add_message(att, edges, messages.src[i], messages.dst[i], e, sign, serial)


@inner
def replace_messages(
    att: Attention, edges: InEdges, messages: Messages, moves: Moves, rows: np.ndarray, serial: int
) -> None:
    """Replace the messages of the moved sources, in the order of the moves, by those of their new values in `rows`.

    The table still has the old values of the sources, but the new terms of targets. The old and the new message are one
    difference: the sums are read and written once.
    """
    n, at, numbers = len(messages.src), 0, messages.weight.view(np.int32)
    for i in range(n):
        if i + 2 * AHEAD < n:
            prefetch_head(att, messages.dst[i + 2 * AHEAD])
            _prefetch_edge(edges, numbers, i + 2 * AHEAD, messages.dst[i + 2 * AHEAD])
        if i + AHEAD < n:
            near = edge_of(edges, numbers, i + AHEAD, messages.dst[i + AHEAD])
            _prefetch_sums(att, edges, messages.src[i + AHEAD], messages.dst[i + AHEAD], near)
        u, v = messages.src[i], messages.dst[i]
        while moves.slots[at] != u:
            at += 1
        mark(att, v, serial)
        if is_renewed(att, v, serial):
            continue
        e = edge_of(edges, numbers, i, v)
        if len(edges.terms.away) and edges.terms.away[e]:
            continue
        att.counts[DELTAS] += 1
        for h in range(att.terms.heads):
            _replace(att, edges, u, rows, moves.places[at], v, e, h, serial)


@inner
def turn_targets(att: Attention, edges: InEdges, turns: Turns, serial: int) -> None:
    """Mark rows to be summed again whose targets' terms change."""
    first, width = att.terms.reads
    for i in range(len(turns.slots)):
        v = turns.slots[i]
        if edges.in_edges[v] > 0 and differs_at(edges.q, turns, i, first, width):
            mark(att, v, serial)
            renew(att, v, serial)
