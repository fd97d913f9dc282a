"""Messages of additive scores that change sides when the term of their target changes.

LeakyReLU(s_u + t_v) is linear on either side of s_u = -t_v. If the term of a target goes from t to t', its messages
with s_u between -t and -t' change sides. They are few. A scan of one number for each in-edge finds them.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import apart, inner
from freshet.kernels.prefetch import prefetch, prefetch_row
from freshet.operators.aggregates.attention.deltas import change, prefetch_side
from freshet.operators.aggregates.attention.kernels import (
    AHEAD,
    FLIPPED,
    SCANNED,
    Attention,
    InEdges,
    edges_before,
    is_renewed,
    mark,
    prefetch_head,
    side_in,
    source_in,
    target_at,
    term_of,
)
from freshet.operators.graph.edge_messages import Moves, Turns
from freshet.state.adjacency import base_of, place_of
from freshet.state.table import touch

FLIPS_AT_ONCE = 8192
_SOURCES_OF_A_LINE = 16
_STRIDE = 32
_FAR = 512  # in-edges between asking for a long list and reading it


@inner
def _prefetch_scan(att: Attention, edges: InEdges, turns: Turns, i: int) -> None:
    """Ask for what says whether a target's term changes and, of a nearer one, for the list of its in-edges."""
    rows = turns.rows
    if i + 2 * AHEAD < len(turns.slots):
        v = np.int64(turns.slots[i + 2 * AHEAD])
        prefetch(edges.in_edges, v)
        prefetch(edges.inn.head.data, 3 * v)
        prefetch_head(att, v)
        prefetch(rows, np.int64(turns.places[i + 2 * AHEAD]) * rows.shape[1] + att.terms.target)
    if i + AHEAD < len(turns.slots):
        v = np.int64(turns.slots[i + AHEAD])
        at = place_of(edges.inn, v)
        for k in range(at, at + min(edges.inn.head.data[v, 1], np.int32(4 * _SOURCES_OF_A_LINE)), _SOURCES_OF_A_LINE):
            prefetch(edges.inn.pool.data, k)


@inner
def _turns(att: Attention, v: int, rows: np.ndarray, row: int) -> bool:
    """Return whether the terms of a target change to others in `rows[row]`; like `edge_messages.differs_at`."""
    differs = False
    for h in range(att.terms.heads):
        differs |= att.reals[v, target_at(att, h)] != rows[row, att.terms.target + h]
    return differs


@inner
def _changes_side(near: np.ndarray, first: np.uint64, source: int, heads: np.uint64, old: float, new: float) -> bool:
    """Return whether the term of a source is above only one of two numbers; s > -t if s + t > 0, in float32 too."""
    # unsigned, as Python's meaning of negative places would be half of the work
    term = near[first + np.uint64(np.uint32(source)) * heads]
    return (term > old) != (term > new)


@apart
def _flip(att: Attention, edges: InEdges, count: int, serial: int) -> None:
    """Have the listed messages change sides; the table has the old terms of their targets."""
    z, q = edges.z, edges.q
    for i in range(count):
        if i + 2 * AHEAD < count:
            prefetch_row(z, np.int64(att.flips[i + 2 * AHEAD, 0]))
        if i + AHEAD < count:
            v, h = att.flips[i + AHEAD, 1], np.int64(att.flips[i + AHEAD, 2])
            prefetch_side(att, v, h)
            prefetch_side(att, v, att.terms.heads + h)
            prefetch_head(att, v)
        u, v, h, e = att.flips[i, 0], att.flips[i, 1], np.int64(att.flips[i, 2]), np.int64(att.flips[i, 3])
        if not is_renewed(att, v, serial):
            att.counts[FLIPPED] += 1
            source = source_in(att, edges, z, u, e, h)
            side = side_in(att, source, v, h)
            change(att, source, z, u, q, v, h, side, -1, serial)
            change(att, source, z, u, q, v, h, 1 - side, 1, serial)


@inner
def _list_flips(
    att: Attention, pool: np.ndarray, base: int, at: int, end: int, v: int, h: int, old: float, new: float, count: int
) -> tuple[int, int]:
    """List the messages among the in-edges from `at` to `end` whose terms are above one of two numbers alone.

    Returns where it stopped, as the list may be full, and how many are listed.
    """
    near, heads = att.near.data.reshape(-1), np.uint64(att.terms.heads)
    first = np.uint64(base) * heads + np.uint64(h)
    while at < end and count + _STRIDE <= FLIPS_AT_ONCE:
        if at + np.uint64(_FAR + _STRIDE) < end:
            prefetch(pool, np.int64(at) + _FAR)
            prefetch(pool, np.int64(at) + _FAR + _SOURCES_OF_A_LINE)
        stop, hit = min(at + np.uint64(_STRIDE), end), False
        for j in range(at, stop):
            hit |= _changes_side(near, first, pool[j], heads, old, new)
        for j in range(at, stop if hit else at):  # nearly always none
            if _changes_side(near, first, pool[j], heads, old, new):
                att.flips[count, 0], att.flips[count, 1], att.flips[count, 2] = base + pool[j], v, h
                att.flips[count, 3] = 0
                count += 1
        at = stop
    return at, count


@apart
def _list_flips_by_edge(
    att: Attention, edges: InEdges, at: int, end: int, v: int, h: int, old: float, new: float, count: int
) -> tuple[int, int]:
    """Like `_list_flips`, where edges have terms; those whose attributes change are taken back already."""
    pool, base, numbers, terms = edges.inn.pool.data, np.int64(base_of(edges.inn, v)), edges.terms.numbers, edges.terms
    first, near = edges_before(edges, v), att.near.data
    while at < end and count < FLIPS_AT_ONCE:
        if at + np.uint64(_SOURCES_OF_A_LINE) < end:
            prefetch_row(terms.attr, first + np.int64(numbers[at + np.uint64(_SOURCES_OF_A_LINE)]))
        u, e = base + np.int64(pool[at]), first + np.int64(numbers[at])
        term = np.float32(np.float64(near[u, h]) + term_of(edges, e, h))
        if (term > old) != (term > new) and not (len(terms.away) and terms.away[e]):
            att.flips[count, 0], att.flips[count, 1], att.flips[count, 2], att.flips[count, 3] = u, v, h, e
            count += 1
        at += np.uint64(1)
    return at, count


@inner
def _scan_in_edges(att: Attention, edges: InEdges, v: int, then: np.ndarray, row: int, count: int, serial: int) -> int:
    """List the messages of a target that change sides when its terms become those of `then[row]`."""
    pool, base, begin = edges.inn.pool.data, np.int64(base_of(edges.inn, v)), np.uint64(place_of(edges.inn, v))
    end = begin + np.uint64(edges.inn.head.data[v, 1])
    att.counts[SCANNED] += edges.inn.head.data[v, 1]
    for h in range(att.terms.heads):
        old, new = -att.reals[v, target_at(att, h)], -then[row, att.terms.target + h]
        at = begin
        while at < end:
            if edges.terms.read:
                at, count = _list_flips_by_edge(att, edges, at, end, v, h, old, new, count)
            else:
                at, count = _list_flips(att, pool, base, at, end, v, h, old, new, count)
            if at < end:
                _flip(att, edges, count, serial)
                count = 0
    return count


@inner
def move_sides(att: Attention, edges: InEdges, moves: Moves, rows: np.ndarray, turns: Turns, serial: int) -> None:
    """Move the messages that change sides, for targets whose terms change; then store the terms of both ends.

    The lists have the edges of the epoch before without the deleted ones. The table has the old values of all sources;
    the differences to their new values are added later.
    """
    count = np.int64(0)
    for i in range(len(turns.slots)):
        _prefetch_scan(att, edges, turns, i)
        v, row = turns.slots[i], turns.places[i]
        if edges.in_edges[v] > 0 and _turns(att, v, turns.rows, row):
            mark(att, v, serial)
            count = _scan_in_edges(att, edges, v, turns.rows, row, count, serial)
    _flip(att, edges, count, serial)
    for i in range(len(moves.slots)):
        u, row = moves.slots[i], moves.places[i]
        touch(att.near, u)
        for h in range(att.terms.heads):
            att.near.data[u, h] = rows[row, att.terms.source + h]
    for i in range(len(turns.slots)):
        v, row = turns.slots[i], turns.places[i]
        touch(att.s, v)
        for h in range(att.terms.heads):
            att.reals[v, target_at(att, h)] = turns.rows[row, att.terms.target + h]
