"""Kernels of softmax sums: per row, side and head a shift, D = sum p and N = sum p * value; p = exp(score - shift).

p and p * value are rounded to float32 before they are added in float64, so that these are the exact sums of
aggregates/exact_sums.py: removed messages leave no error, and a row records a loss of precision. The shift of a head is
constant while its messages stay, since the same terms must be added and subtracted. It is set again when a row is
summed again: when a score is far above the shift, when little of the denominator is left, or when the target's term
changes and the score is not additive (recomputed.py).

Of an additive score, LeakyReLU(s_u + t_v), a part sums e^(s_u) and e^(slope s_u) on either side of s_u + t_v = 0, and
the target's factor comes in when the sums are read. If t_v changes, the messages that change sides are moved
(sides.py).

Invariant: D and N of a side are the sums over the in-edges (u, v) of this part whose score is on that side.
Source: docs/design/aggregates.md, Attention; NeutronRT, algorithm 3, for deltas made of old source values.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshet.gnn.synopses.scores import ADDITIVE, Terms, score_of, side_of
from freshet.kernels.kernel import apart, inner
from freshet.kernels.prefetch import prefetch, prefetch_row
from freshet.operators.aggregates.attention import lanes
from freshet.operators.aggregates.attention.lanes import LANES
from freshet.operators.aggregates.exact_sums import IN_EDGES, LAST_SERIAL, LOSSY, inexact, note_loss
from freshet.operators.graph.edge_messages import Messages, Moves, Turns, differs_at
from freshet.operators.graph.edge_table import FIRST_NUMBER
from freshet.state.adjacency import ListsRead
from freshet.state.table import View, touch

DELTAS, FLIPPED, SCANNED, AFRESH, REREAD = range(5)  # what is counted: messages, messages, messages, rows, messages
TOUCHED, RENEWED = range(2)  # of the counter
SUSPECT = IN_EDGES  # of a note, which has no use for their number: the last epoch that has the row looked at in its end
AHEAD = 8
_SHIFT = 4  # where shifts begin in the head of a row, in int32: behind the note
_LINE = 8  # float64 of a cache line
_HIGHEST = 30.0  # of a score above the shift
_LEAST = 2.0**-80  # of a denominator: what has vanished from float32 beside the shift is nothing beside this


class Attention(NamedTuple):
    """View of a fold of softmax sums for kernels."""

    # (rows of targets, width_of) float64: of a row its head, then its sums: per side and head D, then N; and where they
    # are summed, the edges' terms of each head
    s: View
    note: np.ndarray  # (rows, 2 * width_of) int32: `s` once more, of which every row begins with its head
    reals: np.ndarray  # (rows, 2 * width_of) float32: likewise
    before: int  # columns of `s` before the sums
    near: View  # (rows of sources, heads) float32: of additive scores their terms once more, for scans of in-edges
    renew: np.ndarray  # (rows of targets,) int32: the serial of the last epoch that has the row summed afresh
    touched: np.ndarray  # (rows of targets,) int32
    counter: np.ndarray  # (2,) int64: how many rows are touched, and of them summed afresh
    fresh: np.ndarray  # (2, sums of a row) float64
    flips: np.ndarray  # (n, 4) int32: source, destination, head and edge of messages that are about to change sides
    counts: np.ndarray  # (5,) int64
    terms: Terms


def width_of(sums: int, heads: int, channels: int, more: int, *, additive: bool) -> tuple[int, int]:
    """Return how many float64 a row of `s` has before its sums, of which there are `sums` a channel, and in all.

    `more` are further sums behind those. A row is whole cache lines, and its head lies in the first one where there are
    few heads.
    """
    before = -(-(_SHIFT + 2 * sums + (heads if additive else 0)) // 2)
    return before, -(-(before + sums * (1 + channels) + more) // _LINE) * _LINE


@inner
def sums_of(att: Attention) -> np.int64:
    """Return the number of sums D of a row: one for each side and head."""
    return np.int64(2 * att.terms.heads if att.terms.kind == ADDITIVE else att.terms.heads)


@inner
def loops_at(att: Attention) -> np.int64:
    """Return the place, among the sums of a row, of those of the edges' terms; behind all others."""
    return sums_of(att) * np.int64(1 + att.terms.channels)


@inner
def sums_terms(att: Attention) -> bool:
    """Return whether a row has sums of the edges' terms, of each head."""
    return att.fresh.shape[1] > loops_at(att)


@inner
def note_loss_of(att: Attention, row: int, lossy: int, size: float) -> None:
    """Note what an addition to the sums of a row may have lost (see `exact_sums.note_loss`).

    The sums are cut out here, since a part of columns may not be handed over (see `Direct`).
    """
    sums = att.s.data[:, att.before : att.before + att.fresh.shape[1]]
    note_loss(sums, att.note, row, lossy, size)


@inner
def denominator_of(att: Attention, row: int, k: int) -> np.float64:
    """D of side and head `k`."""
    return att.s.data[row, att.before + k * (1 + att.terms.channels)]


@inner
def shift_at(att: Attention, k: int) -> np.int64:
    """Return the place, in a row of `reals`, of the shift of side and head `k`."""
    return np.int64(_SHIFT + k)


@inner
def held_at(att: Attention, k: int) -> np.int64:
    """Return the place, in a row of `note`, of the number of messages of side and head `k`."""
    return np.int64(_SHIFT + sums_of(att) + k)


@inner
def target_at(att: Attention, h: int) -> np.int64:
    """Return the place, in a row of `reals`, of the target's term of head `h`, for additive scores."""
    return np.int64(_SHIFT + 2 * sums_of(att) + h)


@inner
def prefetch_head(att: Attention, row: int) -> None:
    """Ask for what a row has before its sums, and for the first of them."""
    prefetch(att.s.data, np.int64(row) * att.s.data.shape[1])
    for j in range(_LINE, att.before, _LINE):
        prefetch(att.s.data, np.int64(row) * att.s.data.shape[1] + j)


class EdgeTerms(NamedTuple):
    """What additive scores read of attributes of edges: a term of each head, which joins that of the source."""

    read: bool  # whether they do
    attr: np.ndarray  # (rows of edges, width) float32
    w: np.ndarray  # (heads, width) float64
    numbers: np.ndarray  # (entries of the lists of in-edges,) int32: bits of the edges' numbers (graph/edge_table.py)
    stride: int  # rows of edges in a part
    away: np.ndarray  # (rows of edges,) uint8: 1 for those whose attributes change in the epoch; (0,) if none do


class InEdges(NamedTuple):
    """View of a Storage's edges and values for kernels."""

    z: np.ndarray  # (rows of sources, message_width) float32
    q: np.ndarray  # (rows of targets, width) float32: what scores read of targets
    in_edges: np.ndarray  # (rows of targets,) int32
    inn: ListsRead
    terms: EdgeTerms


@inner
def edges_before(edges: InEdges, v: int) -> np.int64:
    """Return what is added to the bits of a number, of an edge to v, to have its row."""
    return np.int64(v >> edges.inn.shift) * edges.terms.stride - FIRST_NUMBER


@inner
def edge_of(edges: InEdges, numbers: np.ndarray, i: int, v: int) -> np.int64:
    """Return the row of the edge to v of which `numbers[i]` are the bits of its number; 0 where none is read."""
    return edges_before(edges, v) + np.int64(numbers[i]) if edges.terms.read else np.int64(0)


@inner
def term_of(edges: InEdges, e: int, h: int) -> np.float64:
    """Return the term of an edge in a head. Unsigned: see `exact_sums.add_term`."""
    attr, w, total, row, head = edges.terms.attr, edges.terms.w, np.float64(0), np.uint64(e), np.uint64(h)
    for c in range(np.uint64(w.shape[1])):
        total += np.float64(attr[row, c]) * w[head, c]
    return total


@inner
def source_in(att: Attention, edges: InEdges, rows: np.ndarray, u: int, e: int, h: int) -> np.float32:
    """Return the term that an additive score has of row u of `rows`, and of the edge."""
    term = rows[u, att.terms.source + h]
    return np.float32(np.float64(term) + term_of(edges, e, h)) if edges.terms.read else term


@inner
def score_on(
    att: Attention, source: float, rows: np.ndarray, u: int, q: np.ndarray, v: int, h: int, side: int
) -> np.float64:
    """The score of an edge from row u of `rows` to v; of an additive one the source's part of it on that side.

    `source` is what `source_in` returns.
    """
    if att.terms.kind == ADDITIVE:
        # a factor of 1 and no branch, which would be guessed wrong every other time
        return np.float64(source) * (np.float64(1) if side else np.float64(att.terms.slope))
    return score_of(att.terms, rows, u, q, v, h)


@inner
def side_in(att: Attention, source: float, v: int, h: int) -> np.int64:
    """Return the side of a message to v, with the source's term."""
    if att.terms.kind != ADDITIVE:
        return np.int64(0)
    return side_of(att.terms, source, att.reals[v, target_at(att, h)])


@inner
def suspect_where(att: Attention, row: int, condition: bool, serial: int) -> None:
    """Mark the row, under a condition, for the end of the epoch: its sums may have to be cleared or summed again.

    The mark is written in either case, to a cache line that is loaded already: a call for the few rows, or a branch,
    takes a tenth longer for all of them.
    """
    att.note[row, SUSPECT] = np.int32(serial) if condition else att.note[row, SUSPECT]


@inner
def renew(att: Attention, row: int, serial: int) -> None:
    """Mark the row to be summed again at the end of the epoch."""
    if att.renew[row] != serial:
        att.renew[row] = serial
        att.counter[RENEWED] += 1
        suspect_where(att, row, True, serial)


@inner
def is_renewed(att: Attention, row: int, serial: int) -> bool:
    """Return whether the row will be summed again; in most epochs none is, so that nothing has to be read."""
    return att.counter[RENEWED] > 0 and att.renew[row] == serial


@inner
def little_is_left(denominator: float) -> bool:
    """Return whether the denominator of messages is small relative to its shift, or not finite."""
    return not denominator >= _LEAST


@inner
def mark(att: Attention, row: int, serial: int) -> None:
    """Note that the sums of `row` change in this epoch."""
    if att.note[row, LAST_SERIAL] != serial:
        touch(att.s, row)
        att.note[row, LAST_SERIAL] = serial
        att.touched[att.counter[TOUCHED]] = row
        att.counter[TOUCHED] += 1
        suspect_where(att, row, att.note[row, LOSSY] != 0, serial)


@inner
def places_of(att: Attention, k: int, h: int) -> tuple[np.uint64, np.uint64]:
    """Return where the sums of a side begin in a row of `s`, and the values of a head in a row of z.

    Unsigned: see `exact_sums.add_term`.
    """
    return np.uint64(att.before + k * (1 + att.terms.channels)), np.uint64(h * att.terms.channels)


@apart
def clear_side(att: Attention, row: int, k: int) -> None:
    """Sums without messages are exactly 0."""
    first, _ = places_of(att, k, np.int64(0))
    for c in range(np.uint64(1 + att.terms.channels)):
        att.s.data[row, first + c] = 0.0
    att.reals[row, shift_at(att, k)] = np.float32(0)


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
    for j in range(first & ~np.int64(_LINE - 1), first + step, _LINE):
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
