"""Extrema of rows that other code recomputes: finding these rows, and recomputing them from all their messages.

The rows are those of an ExtremaFold, with its invariant. Where a network makes the messages
(operators/aggregates/edge_networks.py), reading an exposed channel means making them, so a row has all of its
channels read at once.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.operators.aggregates.extrema.channels import MOST_HOLDERS, NOTHING
from freshet.operators.aggregates.extrema.kernels import Extrema, mark
from freshet.operators.graph.edge_messages import Edges
from freshet.state.adjacency import base_of, place_of


@kernel
def list_exposed(ext: Extrema, edges: Edges, found: np.ndarray) -> int:
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
def _find(ext: Extrema, edges: Edges, row: int, best: np.ndarray, found: np.ndarray) -> None:
    """Find the extrema of the messages of a row, which carry no weights, and how many hold them.

    Messages stand one behind the other, so all channels of one are read, and not cell by cell as in kernels.py.
    """
    z, pool = edges.z.data, edges.inn.pool.data
    base, at = base_of(edges.inn, row), place_of(edges.inn, row)
    for j in range(z.shape[1]):
        best[j], found[j] = NOTHING, 0
    for k in range(at, at + edges.inn.head.data[row, 1]):
        u = base + pool[k]
        for j in range(z.shape[1]):
            m, most, many = ext.sign * z[u, j] + np.float32(0), best[j], found[j]
            better = (m > most) | ((m != m) & (most == most))
            best[j] = m if better else most
            found[j] = np.int32(1) if better else many + np.int32(m == most)


@inner
def _put_extremum(ext: Extrema, row: int, j: int, new: float, many: int) -> None:
    """Set a channel's extremum, and its number of holders; the row is altered if the extremum is another."""
    old = ext.s.data[row, j]
    if not (new == old or (new != new and old != old)):
        ext.altered[row] = 1
    ext.s.data[row, j], ext.holders.data[row, j] = new, min(many, MOST_HOLDERS)


@kernel
def remake_extrema(
    ext: Extrema, edges: Edges, rows: np.ndarray, serial: int, best: np.ndarray, found: np.ndarray
) -> None:
    """Make these rows from the messages of their in-edges; those of the same bits as before are not altered by it.

    Shapes: best and found, memory for a row, (width or more,) float32 and int32.
    """
    for i in range(len(rows)):
        mark(ext, rows[i], serial)
        _find(ext, edges, rows[i], best, found)
        for j in range(ext.s.data.shape[1]):
            _put_extremum(ext, rows[i], np.int64(j), best[j], found[j])


@kernel
def finish_extrema(ext: Extrema, edges: Edges) -> int:
    """Empty the touched rows without messages; the altered rows are the first of `touched` then. Returns how many."""
    count = 0
    for i in range(ext.counter[0]):
        row = ext.touched[i]
        if edges.in_edges.data[row] == 0:
            for j in range(ext.s.data.shape[1]):
                ext.s.data[row, j], ext.holders.data[row, j] = NOTHING, 0
            ext.altered[row] = 1
        if ext.altered[row]:
            ext.touched[count] = row
            count += 1
    return count
