"""Extrema whose rows are made anew by others: which rows that must be, and making them from all their messages.

The rows are those of an ExtremaFold, with its invariant. Where a network makes the messages
(operators/storage/aggregates/edge_networks.py), reading an exposed channel means making them, so a row has all of its
channels read at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gnn.kernel import inner, kernel
from operators.storage.edge_messages import Edges
from state.adjacency import base_of, place_of
from state.table import View, touch

_MOST_HOLDERS = 65535
_NOTHING = np.float32(-np.inf)


class Remaking(NamedTuple):
    """What the kernels get of a fold of extrema; by row as the fold has it."""

    s: View  # (rows, width) float32: sign * the extremum, -inf where there are no messages
    holders: View  # (rows, width) uint16
    stamp: np.ndarray  # (rows,) int64: the serial of the last epoch that touched the row
    altered: np.ndarray  # (rows,) uint8: whether a touched row has other bits than before the epoch
    touched: np.ndarray  # (rows,) int32
    counter: np.ndarray  # (1,) int64: how many rows are touched
    sign: np.float32
    fresh: np.ndarray  # (width,) float32: memory for the extrema of a row
    found: np.ndarray  # (width,) int32: and for how many hold them


@kernel
def list_exposed(ext: Remaking, edges: Edges, found: np.ndarray) -> int:
    """List the touched rows with a channel that nobody holds; returns how many."""
    count = 0
    for i in range(ext.counter[0]):
        row, exposed = ext.touched[i], False
        for j in range(ext.s.data.shape[1]):
            exposed |= ext.holders.data[row, j] == 0
        if exposed and edges.in_edges.data[row] > 0:
            found[count] = row
            count += 1
    return count


@inner
def _find(ext: Remaking, edges: Edges, row: int) -> None:
    """Find the extrema of the messages of a row, which carry no weights."""
    z, fresh, found, pool = edges.z.data, ext.fresh, ext.found, edges.inn.pool.data
    base, at = base_of(edges.inn, row), place_of(edges.inn, row)
    for j in range(z.shape[1]):
        fresh[j], found[j] = _NOTHING, 0
    for k in range(at, at + edges.inn.head.data[row, 1]):
        u = base + pool[k]
        for j in range(z.shape[1]):
            m, best, many = ext.sign * z[u, j] + np.float32(0), fresh[j], found[j]
            better = (m > best) | ((m != m) & (best == best))
            fresh[j] = m if better else best
            found[j] = np.int32(1) if better else many + np.int32(m == best)


@kernel
def remake_extrema(ext: Remaking, edges: Edges, rows: np.ndarray, serial: int) -> None:
    """Make these rows from the messages of their in-edges; those of the same bits as before are not altered by it."""
    s, holders = ext.s.data, ext.holders.data
    for i in range(len(rows)):
        row = rows[i]
        if ext.stamp[row] != serial:
            ext.stamp[row] = serial
            ext.altered[row] = 0
            ext.touched[ext.counter[0]] = row
            ext.counter[0] += 1
        touch(ext.s, row)
        touch(ext.holders, row)
        _find(ext, edges, row)
        for j in range(s.shape[1]):
            new, old = ext.fresh[j], s[row, j]
            if not (new == old or (new != new and old != old)):
                ext.altered[row] = 1
            s[row, j], holders[row, j] = new, min(ext.found[j], _MOST_HOLDERS)


@kernel
def finish_extrema(ext: Remaking, edges: Edges) -> int:
    """Empty the touched rows without messages; the altered rows are the first of `touched` then. Returns how many."""
    count = 0
    for i in range(ext.counter[0]):
        row = ext.touched[i]
        if edges.in_edges.data[row] == 0:
            for j in range(ext.s.data.shape[1]):
                ext.s.data[row, j], ext.holders.data[row, j] = _NOTHING, 0
            ext.altered[row] = 1
        if ext.altered[row]:
            ext.touched[count] = row
            count += 1
    return count
