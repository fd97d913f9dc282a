"""Maxima and minima that are kept in place: which messages matter, and which channels have to be read anew.

A row has, by channel, the extremum and how many messages hold it. A message that does not pass the extremum is only
compared with it. One that goes and holds it is counted off; one that comes and passes it takes its place. A channel
that nobody holds at the end of an epoch is *exposed*, and read anew from the in-edges of the vertex in this part.
Minima are maxima of negated messages, so there is one set of kernels.

Invariant: where a channel has holders, its extremum is that of the row's messages, and holders is at least 1 and at
most the number of messages that are equal to it (it stops at 65,535). A channel with a NaN among its messages is NaN.
Source: algebra of InkStream, section II-C1, per channel; a count of holders in place of its covered and exposed resets
by vertex, since ties are the rule after a ReLU.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnn.kernel import inner, kernel
from operators.storage.edge_messages import Edges, Messages
from state.adjacency import base_of, place_of
from state.prefetch import prefetch, prefetch_row
from state.table import View, touch

_AHEAD = 12
_MOST_HOLDERS = 65535
ROWS_AT_ONCE, CELLS_AT_ONCE = 64, 4096  # of exposed channels that are read anew
_KINDS = ("u8", "f4", "f4", "i4", "i4", "i4")  # of what is kept by cell
_FAR = 128  # of those cells, between asking for one and using it
_SHORT = 24  # pieces that are over before vector instructions gain anything
_NAN = np.int32(0x7FFFFFFF)
_HOLDERS_OF_A_LINE = 32
NOTHING = np.float32(-np.inf)
# What is counted: messages, channels that they held, exposed channels, their rows, in-edges of those, values read.
COMPARED, HELD, EXPOSED, EXPOSED_ROWS, REREAD, VALUES = range(6)


class Plan(NamedTuple):
    """Memory for the exposed channels of some rows at a time, and for values of those."""

    rows: np.ndarray  # (ROWS_AT_ONCE,) int32: rows that have any
    first: np.ndarray  # (ROWS_AT_ONCE + 1,) int64: where the channels of each begin
    columns: np.ndarray  # (ROWS_AT_ONCE * width + 1,) int32: which they are
    best: np.ndarray  # likewise, int32: what was found for each, as a key
    found: np.ndarray  # likewise, int32: and how many hold that
    cells: np.ndarray  # (CELLS_AT_ONCE,) uint64: places of values
    values: np.ndarray  # likewise, float32
    factors: np.ndarray  # likewise, float32: where edges have weights
    keys: np.ndarray  # likewise, int32: messages, as keys
    ends: np.ndarray  # likewise, int32: where the cells of each piece end
    channels: np.ndarray  # likewise, int32: and which channel it is of
    cursor: np.ndarray  # (3,) int64: the row, channel and in-edge to go on from


def plan_for(width: int) -> Plan:
    """Memory for rows of that width."""
    columns, best, found = (np.empty(ROWS_AT_ONCE * width + 1, np.int32) for _ in range(3))
    rows, first, cursor = np.empty(ROWS_AT_ONCE, np.int32), np.empty(ROWS_AT_ONCE + 1, np.int64), np.empty(3, np.int64)
    cells, values, factors, keys, ends, channels = (np.empty(CELLS_AT_ONCE, kind) for kind in _KINDS)
    return Plan(rows, first, columns, best, found, cells, values, factors, keys, ends, channels, cursor)


class Extrema(NamedTuple):
    """What the kernels get of a fold of extrema."""

    s: View  # (rows, width) float32: sign * the extremum, -inf where there are no messages
    holders: View  # (rows, width) uint16
    stamp: np.ndarray  # (rows,) int64: the serial of the last epoch that touched the row
    altered: np.ndarray  # (rows,) uint8: whether a touched row has other bits than before the epoch
    touched: np.ndarray  # (rows,) int32
    counter: np.ndarray  # (1,) int64: how many rows are touched
    plan: Plan
    counts: np.ndarray  # (6,) int64
    sign: np.float32  # 1 for maxima, -1 for minima


@inner
def _passes(s: np.ndarray, row: int, z: np.ndarray, src: int, factor: float) -> bool:
    """Whether a message is as good as the extremum in any channel, or NaN."""
    passing = np.int32(0)
    for j in range(s.shape[1]):
        passing |= np.int32(not (factor * z[src, j] + np.float32(0) < s[row, j]))
    return passing != 0


@inner
def mark(ext: Extrema, row: int, serial: int) -> None:
    """Note that `row` changes in this epoch."""
    if ext.stamp[row] != serial:
        ext.stamp[row] = serial
        ext.altered[row] = 0
        ext.touched[ext.counter[0]] = row
        ext.counter[0] += 1
    touch(ext.s, row)
    touch(ext.holders, row)


@inner
def _prefetch_holders(ext: Extrema, row: int) -> None:
    width = ext.holders.data.shape[1]
    for column in range(0, width, _HOLDERS_OF_A_LINE):
        prefetch(ext.holders.data, np.int64(row) * width + column)


@inner
def _prefetch(ext: Extrema, edges: Edges, messages: Messages, i: int) -> None:
    if i + _AHEAD < len(messages.src):
        v = np.int64(messages.dst[i + _AHEAD])
        prefetch_row(ext.s.data, v)
        _prefetch_holders(ext, v)
        if messages.src[i + _AHEAD] != messages.src[i + _AHEAD - 1]:
            prefetch_row(edges.z.data, np.int64(messages.src[i + _AHEAD]))


@inner
def _count_off(ext: Extrema, row: int, z: np.ndarray, u: int, factor: float) -> np.int64:
    """Count off what a message holds; returns how many channels that is. No branches: all channels side by side."""
    s, holders, held = ext.s.data, ext.holders.data, np.int32(0)
    for j in range(s.shape[1]):
        m, many = factor * z[u, j] + np.float32(0), np.int32(holders[row, j])
        equal = np.int32(m == s[row, j])
        held += equal
        left = many - (equal & np.int32(many > 0))
        holders[row, j] = np.uint16(left if m == m else np.int32(0))
    return np.int64(held)


@kernel
def take_back(ext: Extrema, edges: Edges, messages: Messages, serial: int) -> None:
    """Count off what these messages hold; the table has the values that they were made of."""
    s, z = ext.s.data, edges.z.data
    ext.counts[COMPARED] += len(messages.src)
    for i in range(len(messages.src)):
        _prefetch(ext, edges, messages, i)
        u, v, factor = messages.src[i], messages.dst[i], ext.sign * messages.weight[i]
        if _passes(s, v, z, u, factor):
            mark(ext, v, serial)
            ext.counts[HELD] += _count_off(ext, v, z, u, factor)


@inner
def _count_on(ext: Extrema, row: int, z: np.ndarray, u: int, factor: float) -> bool:
    """Merge a message; whether the extremum has other bits, or may have come to be. No branches here either."""
    s, holders, altered = ext.s.data, ext.holders.data, np.int32(0)
    for j in range(s.shape[1]):
        m, best, many = factor * z[u, j] + np.float32(0), s[row, j], np.int32(holders[row, j])
        better, equal = np.int32((m > best) | (m != m)), np.int32(m == best)
        altered |= better | (equal & np.int32(m == NOTHING))  # -inf may be the first message
        s[row, j] = m if better else best
        more = min(many + equal, np.int32(_MOST_HOLDERS))
        alone = np.int32(m == m)
        holders[row, j] = np.uint16(alone if better else more)
    return altered != 0


@kernel
def bring(ext: Extrema, edges: Edges, messages: Messages, serial: int) -> None:
    """Merge new messages."""
    s, z = ext.s.data, edges.z.data
    ext.counts[COMPARED] += len(messages.src)
    for i in range(len(messages.src)):
        _prefetch(ext, edges, messages, i)
        u, v, factor = messages.src[i], messages.dst[i], ext.sign * messages.weight[i]
        if _passes(s, v, z, u, factor):
            mark(ext, v, serial)
            if _count_on(ext, v, z, u, factor):
                ext.altered[v] = 1


@inner
def _find_exposed(ext: Extrema, edges: Edges, begin: int, end: int) -> int:
    """Plan the touched rows from `begin` to `end` that have exposed channels; returns how many those are."""
    s, holders, plan, width = ext.s.data, ext.holders.data, ext.plan, ext.s.data.shape[1]
    count, at = 0, np.int64(0)
    for i in range(begin, end):
        if i + _AHEAD < ext.counter[0]:
            ahead = np.int64(ext.touched[i + _AHEAD])
            _prefetch_holders(ext, ahead)
            prefetch(edges.in_edges.data, ahead)
            prefetch(edges.inn.head.data, 3 * ahead)
        row = ext.touched[i]
        if edges.in_edges.data[row] == 0:
            for j in range(width):
                s[row, j], holders[row, j] = NOTHING, 0
            ext.altered[row] = 1
            continue
        plan.first[count] = at
        for j in range(width):
            plan.columns[at] = j
            at += np.int64(holders[row, j] == 0)
        if at > plan.first[count]:
            plan.rows[count] = row
            count += 1
            prefetch(edges.inn.pool.data, place_of(edges.inn, row))
    plan.first[count] = at
    return count


@inner
def _key_of(m: float) -> np.int32:
    """An integer that is the larger the larger the message is; NaN passes everything."""
    bits = np.float32(m).view(np.int32)
    return bits ^ ((bits >> np.int32(31)) & _NAN) if m == m else _NAN


@inner
def _message_of(key: int) -> np.float32:
    return np.int32(key ^ ((key >> np.int32(31)) & _NAN)).view(np.float32)


@inner
def put_extremum(ext: Extrema, row: int, j: int, new: float, many: int) -> None:
    """Give a channel this extremum, which so many messages hold; the row is altered if that is another."""
    old = ext.s.data[row, j]
    if not (new == old or (new != new and old != old)):
        ext.altered[row] = 1
    ext.s.data[row, j], ext.holders.data[row, j] = new, min(many, _MOST_HOLDERS)


@inner
def _list_cells(ext: Extrema, edges: Edges, planned: int) -> int:
    """List as many values as there is memory for, from the cursor on; returns in how many pieces.

    A piece is of one exposed channel of one row: a hub's values may be more than fit.
    """
    plan, cursor, pool, width = ext.plan, ext.plan.cursor, edges.inn.pool.data, ext.s.data.shape[1]
    i, c, k, at, pieces = cursor[0], cursor[1], cursor[2], 0, 0
    while i < planned and at < CELLS_AT_ONCE:
        row = plan.rows[i]
        begin, left = place_of(edges.inn, row) + k, edges.inn.head.data[row, 1] - k
        here = min(left, CELLS_AT_ONCE - at)
        base, column = np.int64(base_of(edges.inn, row)), np.int64(plan.columns[c])
        for n in range(here):
            plan.cells[at + n] = np.uint64((base + pool[begin + n]) * width + column)
        for n in range(here if edges.inn.weighted else 0):
            plan.factors[at + n] = ext.sign * edges.inn.weight.data[begin + n]
        at += here
        plan.ends[pieces], plan.channels[pieces] = at, c
        pieces += 1
        k += here
        if here == left:
            c, k = c + 1, 0
            i += np.int64(c == plan.first[i + 1])
    cursor[0], cursor[1], cursor[2] = i, c, k
    return pieces


@inner
def _read_cells(ext: Extrema, z: np.ndarray, weighted: bool, cells: int) -> None:
    """Read the listed values. Most are in cache lines of their own, so many are asked for before the first is used."""
    plan, flat = ext.plan, z.reshape(-1)
    for i in range(min(cells, _FAR)):
        prefetch(flat, np.int64(plan.cells[i]))
    for i in range(cells - _FAR):
        prefetch(flat, np.int64(plan.cells[i + _FAR]))
        plan.values[i] = flat[plan.cells[i]]
    for i in range(max(cells - _FAR, 0), cells):
        plan.values[i] = flat[plan.cells[i]]
    for i in range(cells):
        plan.keys[i] = _key_of((plan.factors[i] if weighted else ext.sign) * plan.values[i] + np.float32(0))


@inner
def _find_extrema(ext: Extrema, edges: Edges, planned: int) -> None:
    """Find the extrema of all exposed channels of the planned rows, and how many hold them."""
    plan, keys, nothing = ext.plan, ext.plan.keys, _key_of(NOTHING)
    plan.cursor[0], plan.cursor[1], plan.cursor[2] = 0, 0, 0
    for c in range(plan.first[planned]):
        plan.best[c], plan.found[c] = nothing, 0
    while plan.cursor[0] < planned:
        pieces, begin = _list_cells(ext, edges, planned), 0
        _read_cells(ext, edges.z.data, edges.inn.weighted, plan.ends[pieces - 1])
        for p in range(pieces):
            end, c, most, many = plan.ends[p], plan.channels[p], nothing, np.int32(0)
            if end - begin <= _SHORT:
                for n in range(begin, end):
                    many = np.int32(1) if keys[n] > most else np.int32(many + (keys[n] == most))
                    most = max(most, keys[n])
            else:
                for n in range(begin, end):
                    most = max(most, keys[n])
                for n in range(begin, end):
                    many += np.int32(keys[n] == most)
            if most > plan.best[c]:
                plan.best[c], plan.found[c] = most, many
            elif most == plan.best[c]:
                plan.found[c] += many
            begin = end


@inner
def _read_anew(ext: Extrema, edges: Edges, planned: int) -> None:
    """Make the exposed channels of the planned rows from their in-edges in this part."""
    plan = ext.plan
    _find_extrema(ext, edges, planned)
    ext.counts[EXPOSED] += plan.first[planned]
    ext.counts[EXPOSED_ROWS] += planned
    for i in range(planned):
        row = plan.rows[i]
        ext.counts[REREAD] += edges.inn.head.data[row, 1]
        ext.counts[VALUES] += edges.inn.head.data[row, 1] * (plan.first[i + 1] - plan.first[i])
        for c in range(plan.first[i], plan.first[i + 1]):
            put_extremum(ext, row, np.int64(plan.columns[c]), _message_of(plan.best[c]), plan.found[c])


@kernel
def settle(ext: Extrema, edges: Edges) -> int:
    """Read exposed channels anew; the altered rows are the first of `touched` then. Returns how many."""
    count = 0
    for begin in range(0, ext.counter[0], ROWS_AT_ONCE):
        end = min(begin + ROWS_AT_ONCE, ext.counter[0])
        _read_anew(ext, edges, _find_exposed(ext, edges, begin, end))
        for i in range(begin, end):
            row = ext.touched[i]
            if ext.altered[row]:
                ext.touched[count] = row
                count += 1
    return count


@kernel
def read_extrema(s: np.ndarray, sign: float, count: np.ndarray, slots: np.ndarray, out: np.ndarray, first: int) -> None:
    """Write the extrema of these rows to `out`, from column `first` on; 0 where there are no messages."""
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_row(s, np.int64(slots[i + _AHEAD]))
            prefetch(count, np.int64(slots[i + _AHEAD]))
        row = slots[i]
        if count[row] > 0:
            for j in range(s.shape[1]):
                out[i, first + j] = sign * s[row, j] + np.float32(0)
        else:
            for j in range(s.shape[1]):
                out[i, first + j] = np.float32(0)


@kernel
def merge_partial_extrema(
    index: np.ndarray,
    partial: np.ndarray,
    slots: np.ndarray,
    out: np.ndarray,
    shifts: tuple[int, int],
    columns: tuple[int, int],
    sign: float,
) -> None:
    """The extremum of each slot's partials in these columns, 0 where there are none."""
    for i in range(len(slots)):
        base, some = np.int64(slots[i] >> shifts[0]) << shifts[1], False
        for j in range(columns[0], columns[1]):
            out[i, j] = 0
        for part in range(index.shape[1]):
            row = base + index[slots[i], part]
            if index[slots[i], part] < 0:
                continue
            for j in range(columns[0], columns[1]):
                new, best = sign * partial[row, j], sign * out[i, j]
                if not some or new > best or (new != new and best == best):
                    out[i, j] = partial[row, j]
            some = True
