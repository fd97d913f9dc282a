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
    replace_sum,
)
from state.adjacency import base_of, place_of
from state.prefetch import prefetch, prefetch_row
from state.table import View, touch

DELTAS, FLIPPED, SCANNED, AFRESH, REREAD = range(5)  # what is counted: messages, messages, rows, messages
_AHEAD = 8
_FAR = 32  # for single values, each in a cache line of its own
_SOURCES_OF_A_LINE = 16
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
def places_of(att: Attention, k: int, h: int) -> tuple[np.uint64, np.uint64]:
    """Where the sums of a side begin in a row, and the values of a head in one of z; see `exact_sums.add_term`."""
    return np.uint64(k * (1 + att.terms.channels)), np.uint64(h * att.terms.channels)


@inner
def _clear_side(att: Attention, row: int, k: int) -> None:
    """Sums without messages are exactly 0."""
    first, _ = places_of(att, k, np.int64(0))
    for c in range(np.uint64(1 + att.terms.channels)):
        att.s.data[row, first + c] = 0.0
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
    first, value = places_of(att, k, h)
    lossy = add_term(att.s.data, v, first, np.float64(p) * sign)
    for c in range(np.uint64(att.terms.channels)):
        term = np.float64(p * z[u, value + c])
        lossy |= add_term(att.s.data, v, first + np.uint64(1) + c, term * sign)
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


@inner
def _prefetch_scan(att: Attention, edges: Edges, moves: Moves, rows: np.ndarray, i: int) -> None:
    """Ask for what says whether a target's term changes and, of a nearer one, for the list of its in-edges."""
    if i + 2 * _AHEAD < len(moves.slots):
        v = np.int64(moves.slots[i + 2 * _AHEAD])
        prefetch(edges.in_edges.data, v)
        prefetch(edges.inn.head.data, 3 * v)
        prefetch(edges.z.data, v * edges.z.data.shape[1] + att.terms.target)
        prefetch(att.note.data, 4 * v)
        prefetch(rows, np.int64(moves.places[i + 2 * _AHEAD]) * rows.shape[1] + att.terms.target)
    if i + _AHEAD < len(moves.slots):
        v = np.int64(moves.slots[i + _AHEAD])
        at = place_of(edges.inn, v)
        for k in range(at, at + min(edges.inn.head.data[v, 1], np.int32(4 * _SOURCES_OF_A_LINE)), _SOURCES_OF_A_LINE):
            prefetch(edges.inn.pool.data, k)


@inner
def _scan_in_edges(att: Attention, edges: Edges, moves: Moves, rows: np.ndarray, i: int, serial: int) -> None:
    """Move those messages of a target whose side changes, which few do."""
    z, near, pool, heads = edges.z.data, att.near.data, edges.inn.pool.data, att.terms.heads
    v, row = moves.slots[i], moves.places[i]
    base, at = base_of(edges.inn, v), place_of(edges.inn, v)
    end = at + edges.inn.head.data[v, 1]
    att.counts[SCANNED] += end - at
    for h in range(heads):
        target, then = z[v, att.terms.target + h], rows[row, att.terms.target + h]
        for k in range(at, end):
            if k + _FAR < end:
                prefetch(near, np.int64(base + pool[k + _FAR]) * heads + h)
            source = near[base + pool[k], h]
            before, after = side_of(att.terms, source, target), side_of(att.terms, source, then)
            if before != after:
                u = base + pool[k]
                # sources that move as well are out, and come again on the side that they are on then
                if moves.stamp[u] != moves.serial and att.renew[v] != serial:
                    att.counts[FLIPPED] += 1
                    _change(att, z, u, v, h, before, -1, serial)
                    _change(att, z, u, v, h, after, 1, serial)


@kernel
def move_sides(att: Attention, edges: Edges, moves: Moves, rows: np.ndarray, serial: int) -> None:
    """Of targets whose terms change to those of `rows`, move the messages whose side changes.

    The table has the old values yet, and the lists the edges of the epoch before that stay; messages of sources that
    change as well have been taken back, and come again by their new values.
    """
    for i in range(len(moves.slots)):
        _prefetch_scan(att, edges, moves, rows, i)
        v, row = moves.slots[i], moves.places[i]
        if edges.in_edges.data[v] > 0 and turns(edges.z.data, v, rows, row, att.terms.target, att.terms.heads):
            _mark(att, v, serial)
            _scan_in_edges(att, edges, moves, rows, i, serial)
    for i in range(len(moves.slots)):
        touch(att.near, moves.slots[i])
        for h in range(att.terms.heads):
            att.near.data[moves.slots[i], h] = rows[moves.places[i], att.terms.source + h]


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
            first, value = places_of(att, k, h)
            add_term_compensated(fresh, first, np.float64(p))
            for c in range(np.uint64(att.terms.channels)):
                add_term_compensated(fresh, first + np.uint64(1) + c, np.float64(p * z[u, value + c]))
    replace_sum(att.s.data, att.note.data, row, fresh, compensate(fresh))
    att.counts[AFRESH] += 1
    att.counts[REREAD] += end - at


@inner
def _prefetch_denominators(att: Attention, edges: Edges, row: int) -> None:
    sums = att.held.data.shape[1]
    prefetch(edges.in_edges.data, row)
    prefetch(att.note.data, row * 4)
    prefetch(att.held.data, row * sums)
    for k in range(sums):
        prefetch(att.s.data, row * att.s.data.shape[1] + k * (1 + att.terms.channels))


@kernel
def settle(att: Attention, edges: Edges, serial: int) -> None:
    """At the end of an epoch, clear the sums of nothing and make those afresh that have to be."""
    for i in range(att.counter[0]):
        if i + _AHEAD < att.counter[0]:
            _prefetch_denominators(att, edges, np.int64(att.touched[i + _AHEAD]))
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
