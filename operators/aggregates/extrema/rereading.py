"""Rereading of channels of extrema without a holder, from the in-edges of their rows.

An exposed channel is one value of each in-edge, in a cache line of its own, and what that costs is waiting for memory.
So the cells of many rows are listed first, and asked for long before they are used. A line has 16 channels,
which are merged together, exposed or not (lanes.py); such a piece of a row is a *block* here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch
from freshet.operators.aggregates.extrema import channels, lanes
from freshet.operators.aggregates.extrema.channels import NOTHING
from freshet.operators.aggregates.extrema.kernels import (
    EXPOSED,
    EXPOSED_ROWS,
    REREAD,
    VALUES,
    Extrema,
    prefetch_holders,
)
from freshet.operators.aggregates.extrema.lanes import LANES
from freshet.operators.graph.edge_messages import Edges
from freshet.state.adjacency import base_of, place_of

ROWS_AT_ONCE, CELLS_AT_ONCE = 64, 4096
_AHEAD = 12
_FAR = 128  # cells between asking for one and using it
_SOURCES_OF_A_LINE = 16
_LIST_AHEAD = 128  # in-edges of a row that are asked for before the cells are listed
_FOUR = 4  # cells that `merge_four` takes


class RereadPlan(NamedTuple):
    """Memory for the exposed blocks of some rows at a time, and for *cells*: blocks of the values of in-edges."""

    rows: np.ndarray  # (ROWS_AT_ONCE,) int32: rows that have any
    first: np.ndarray  # (ROWS_AT_ONCE + 1,) int64: where the blocks of each begin
    columns: np.ndarray  # (ROWS_AT_ONCE * blocks of a row + 1,) int64: the first channel of each
    best: np.ndarray  # (ROWS_AT_ONCE * channels of all blocks of a row,) float32: what was found for each channel
    found: np.ndarray  # likewise, int32: and how many hold that
    cells: np.ndarray  # (CELLS_AT_ONCE + _FAR,) uint64: where their values begin
    factors: np.ndarray  # (CELLS_AT_ONCE,) float32: of those, or without weights the first ones for all
    ends: np.ndarray  # (CELLS_AT_ONCE,) int32: where the cells of each piece end
    blocks: np.ndarray  # likewise, int64: and which block it is of
    cursor: np.ndarray  # (3,) int64: the row, block and in-edge to go on from


def plan_for(width: int) -> RereadPlan:
    """Memory for rows of that width."""
    many = ROWS_AT_ONCE * -(-width // LANES)
    rows, first = np.empty(ROWS_AT_ONCE, np.int32), np.empty(ROWS_AT_ONCE + 1, np.int64)
    columns, cursor = np.empty(many + 1, np.int64), np.empty(3, np.int64)
    best, found = np.empty(many * LANES, np.float32), np.empty(many * LANES, np.int32)
    cells = np.zeros(CELLS_AT_ONCE + _FAR, np.uint64)
    factors, ends, blocks = (np.empty(CELLS_AT_ONCE, kind) for kind in ("f4", "i4", "i8"))
    return RereadPlan(rows, first, columns, best, found, cells, factors, ends, blocks, cursor)


@inner
def _list_blocks(ext: Extrema, plan: RereadPlan, row: int, at: np.int64) -> np.int64:
    """List the blocks of a row that have an exposed channel, from place `at` on; returns the place behind them."""
    holders, width = ext.holders.data, ext.s.data.shape[1]
    for j in range(0, width, LANES):
        exposed = np.int64(0)
        if j + LANES <= width:
            for i in range(LANES):  # a number of turns that is known makes vector instructions of it
                exposed += np.int64(holders[row, j + i] == 0)
        else:
            for i in range(width - j):
                exposed += np.int64(holders[row, j + i] == 0)
        plan.columns[at] = j
        at += np.int64(exposed > 0)
        ext.counts[EXPOSED] += exposed
    return at


@inner
def _find_exposed(ext: Extrema, plan: RereadPlan, edges: Edges, begin: int, end: int) -> int:
    """Plan the touched rows from `begin` to `end` that have exposed channels; returns how many those are."""
    s, holders, count, at = ext.s.data, ext.holders.data, 0, np.int64(0)
    for i in range(begin, end):
        if i + _AHEAD < ext.counter[0]:
            ahead = np.int64(ext.touched[i + _AHEAD])
            prefetch_holders(ext, ahead)
            prefetch(edges.in_edges.data, ahead)
            prefetch(edges.inn.head.data, 3 * ahead)
        row = ext.touched[i]
        if edges.in_edges.data[row] == 0:
            for j in range(s.shape[1]):
                s[row, j], holders[row, j] = NOTHING, 0
            ext.altered[row] = 1
            continue
        plan.first[count] = at
        before = ext.counts[EXPOSED]
        at = _list_blocks(ext, plan, row, at)
        if at > plan.first[count]:
            plan.rows[count] = row
            count += 1
            place, many = place_of(edges.inn, row), edges.inn.head.data[row, 1]
            for k in range(place, place + min(many, np.int32(_LIST_AHEAD)), _SOURCES_OF_A_LINE):
                prefetch(edges.inn.pool.data, k)
            ext.counts[REREAD] += edges.inn.head.data[row, 1]
            ext.counts[VALUES] += edges.inn.head.data[row, 1] * (ext.counts[EXPOSED] - before)
    plan.first[count] = at
    return count


@inner
def _list_cells(ext: Extrema, plan: RereadPlan, edges: Edges, planned: int) -> int:
    """List as many cells as there is memory for, from the cursor on; returns in how many pieces.

    A piece is of one block of one row: a hub's cells may be more than fit.
    """
    cursor, pool, cells, width = plan.cursor, edges.inn.pool.data, plan.cells, ext.s.data.shape[1]
    i, b, k, at, pieces = cursor[0], cursor[1], cursor[2], 0, 0
    while i < planned and at < CELLS_AT_ONCE:
        row = plan.rows[i]
        begin, left = place_of(edges.inn, row) + k, edges.inn.head.data[row, 1] - k
        here = min(left, CELLS_AT_ONCE - at)
        base, column = np.int64(base_of(edges.inn, row)), plan.columns[b]
        # unsigned, and factors of 32 bits, for vector instructions
        first, to, step = np.uint64(begin), np.uint64(at), np.uint64(np.uint32(width))
        for n in range(np.uint64(here)):
            cells[to + n] = np.uint64(np.uint32(base + pool[first + n])) * step + np.uint64(column)
        for n in range(here if edges.inn.weighted else 0):
            plan.factors[at + n] = ext.sign * edges.inn.weight.data[begin + n]
        at += here
        plan.ends[pieces], plan.blocks[pieces] = at, b
        pieces += 1
        k += here
        if here == left:
            b, k = b + 1, np.int64(0)
            i += np.int64(b == plan.first[i + 1])
    cursor[0], cursor[1], cursor[2] = i, b, k
    return pieces


@inner
def _merge_cells(plan: RereadPlan, z: np.ndarray, weighted: bool, pieces: int) -> None:
    """Merge the listed cells into what was found so far."""
    cells, factors, best, found, width, n = plan.cells, plan.factors, plan.best, plan.found, z.shape[1], np.int64(0)
    asked = min(np.int64(plan.ends[pieces - 1]), np.int64(_FAR))
    for i in range(asked):
        prefetch(z, np.int64(cells[i]))
    for p in range(pieces):
        end, b = np.int64(plan.ends[p]), plan.blocks[p]
        j, to = plan.columns[b], b * LANES
        if j + LANES <= width:
            while n + _FOUR <= end:
                for i in range(_FOUR):  # what lies behind the last cell has been listed before, and does no harm
                    prefetch(z, np.int64(cells[n + i + _FAR]))
                lanes.merge_four(z, cells, n, factors, n if weighted else np.int64(0), best, found, to)
                n += _FOUR
        while n < end:
            prefetch(z, np.int64(cells[n + _FAR]))
            at, factor = np.int64(cells[n]), factors[n if weighted else np.int64(0)]
            if j + LANES <= width:
                lanes.merge(z, at, factor, best, found, to)
            else:
                channels.merge(z, at, factor, best, found, to, width - j)
            n += 1


@inner
def _put(ext: Extrema, plan: RereadPlan, planned: int) -> None:
    """Give the exposed channels what was found for them."""
    s, holders, width = ext.s.data, ext.holders.data, ext.s.data.shape[1]
    for i in range(planned):
        altered, row = np.int32(0), plan.rows[i]
        for b in range(plan.first[i], plan.first[i + 1]):
            j, at = plan.columns[b], b * LANES
            to = np.int64(row) * width + j
            if j + LANES <= width:
                altered |= np.int32(lanes.put(plan.best, plan.found, at, s, holders, to))
            else:
                altered |= np.int32(channels.put(plan.best, plan.found, at, s, holders, to, width - j))
        ext.altered[row] |= np.uint8(altered)


@kernel
def settle(ext: Extrema, plan: RereadPlan, edges: Edges) -> int:
    """Reread exposed channels; the altered rows are then the first of `touched`. Returns how many."""
    count = 0
    for i in range(_FOUR):
        plan.factors[i] = ext.sign
    for begin in range(0, ext.counter[0], ROWS_AT_ONCE):
        end = min(begin + ROWS_AT_ONCE, ext.counter[0])
        planned = _find_exposed(ext, plan, edges, begin, end)
        for c in range(plan.first[planned] * LANES):
            plan.best[c], plan.found[c] = NOTHING, 0
        plan.cursor[0], plan.cursor[1], plan.cursor[2] = 0, 0, 0
        while plan.cursor[0] < planned:
            _merge_cells(plan, edges.z.data, edges.inn.weighted, _list_cells(ext, plan, edges, planned))
        _put(ext, plan, planned)
        ext.counts[EXPOSED_ROWS] += planned
        for i in range(begin, end):
            row = ext.touched[i]
            if ext.altered[row]:
                ext.touched[count] = row
                count += 1
    return count
