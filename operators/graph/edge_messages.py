"""The edges and source values of a Storage, and which messages an epoch takes back and brings.

This is for synopses that look at each message (aggregates/fold_store.py). What an epoch does to the messages of a
part falls into four lists, each message once in each list it belongs to:

- *gone*: of deleted edges, and of edges whose weight changes while their source does not, with the old weight;
- *kept before* and *kept after*: of edges that stay and whose source sends another value, with the old and the new
  weight, which differ only where the weight changes as well;
- *come*: of added edges, and of those with a new weight, with the new weight.

The synopses take back `gone` and `kept before` while the table has the old values, and get `kept after` and `come` once
it has the new ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.kernels.kernel import inner, kernel
from freshet.kernels.prefetch import prefetch, prefetch_row
from freshet.operators.graph.both_ends import lacks_index_of_edges, link, reweigh, tag_at, unlink
from freshet.operators.graph.edge_changes import Reweighted, SomeEdges
from freshet.state.adjacency import ListsView, base_of, place_of
from freshet.state.table import View, touch

OK, MISSING_EDGE, MISSING_INDEX = 0, 1, 2
_AHEAD = 12
_NEAR = 6


class EdgeMessage(NamedTuple):
    """The message of one edge, by the rows of its ends, with all that it may read of the edge."""

    src: int
    dst: int
    weight: np.float32


class Messages(NamedTuple):
    """Messages of edges, by the rows of their ends.

    Where the layer reads attributes, a weight is the number of the edge (edge_table.py).
    Shapes: src, dst (n,) int32; weight (n,) float32.
    """

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray

    def first(self, count: int) -> Messages:
        """The first of them."""
        return self.part(0, count)

    def part(self, first: int, last: int) -> Messages:
        """Messages `first` to `last`."""
        return Messages(self.src[first:last], self.dst[first:last], self.weight[first:last])


def room_for(count: int) -> Messages:
    """Return memory for this many messages."""
    return Messages(np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.float32))


class Edges(NamedTuple):
    """View of a Storage's edges and values for kernels."""

    z: View  # (rows of sources, message_width) float32: the replicated value of each source
    in_edges: View  # (rows of destinations,) int32: in-edges in this part that carry messages
    out: ListsView  # per source: destinations (and weights)
    inn: ListsView  # per destination: sources (and weights)
    skip_loops: bool


class Moves(NamedTuple):
    """The sources that send another value than before, in an epoch with the number `serial` - 1."""

    slots: np.ndarray  # (n,) int32
    places: np.ndarray  # (n,) int32, rows of the epoch's values
    stamp: np.ndarray  # (rows of sources,) int64: `serial` for those of this epoch
    serial: int


class Turns(NamedTuple):
    """The destinations of which messages read other values than before: `rows[places[i]]` is that of `slots[i]`.

    Where both ends are the same rows, these are the moves of sources.
    Shapes: slots, places (n,) int32; rows (m, width or more) float32.
    """

    slots: np.ndarray
    places: np.ndarray
    rows: np.ndarray


@inner
def message_at(messages: Messages, i: int) -> EdgeMessage:
    """Return one of the messages."""
    return EdgeMessage(messages.src[i], messages.dst[i], messages.weight[i])


@inner
def in_message(edges: Edges, base: int, row: int, k: int) -> EdgeMessage:
    """Return the message of the in-edge of `row` that stands at `k` in the pool of lists; `base` is that of the row."""
    inn = edges.inn
    return EdgeMessage(base + inn.pool.data[k], row, inn.weight.data[k] if inn.weighted else np.float32(1))


@inner
def _list(messages: Messages, at: int, src: int, dst: int, weight: float) -> int:
    """Put a message on a list; returns the place of the next one."""
    messages.src[at] = src
    messages.dst[at] = dst
    messages.weight[at] = weight
    return at + 1


@inner
def _differs(z: np.ndarray, u: int, rows: np.ndarray, row: int) -> bool:
    difference = np.int32(0)
    for j in range(z.shape[1]):
        difference |= z[u, j] ^ rows[row, j]
    return difference != 0


@inner
def differs_at(q: np.ndarray, turns: Turns, i: int, first: int, width: int) -> bool:
    """Return whether columns `first` to `first + width` of the i-th destination that turns get other values.

    Bits that differ alone, as 0 and -0, change nothing; NaN is not equal to itself.
    """
    differs, v, row = False, turns.slots[i], turns.places[i]
    for c in range(first, first + width):
        differs |= q[v, c] != turns.rows[row, c]
    return differs


@kernel
def find_turns(q: np.ndarray, turns: Turns, slots: np.ndarray, places: np.ndarray) -> int:
    """Find those that differ in any bit from what messages read before; returns how many."""
    bits, row_bits, count = q.view(np.int32), turns.rows.view(np.int32), 0
    for i in range(len(turns.slots)):
        if i + _AHEAD < len(turns.slots):
            prefetch_row(q, np.int64(turns.slots[i + _AHEAD]))
        if _differs(bits, turns.slots[i], row_bits, turns.places[i]):
            slots[count] = turns.slots[i]
            places[count] = turns.places[i]
            count += 1
    return count


@inner
def _find_moves(edges: Edges, slots: np.ndarray, places: np.ndarray, rows: np.ndarray, moves: Moves) -> int:
    """Find the epoch's values that differ in any bit from what their sources sent before; returns how many."""
    z, bits, count = edges.z.data.view(np.int32), rows.view(np.int32), 0
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_row(z, np.int64(slots[i + _AHEAD]))
        if _differs(z, slots[i], bits, places[i]):
            moves.slots[count] = slots[i]
            moves.places[count] = places[i]
            moves.stamp[slots[i]] = moves.serial
            count += 1
    return count


@inner
def _prefetch_lists(edges: Edges, src: np.ndarray, dst: np.ndarray, i: int, at_end: int) -> None:
    """Ask for the lists of both ends of an edge, of nearer ones for where they begin or, with 1, for where they end."""
    if i + _AHEAD < len(src):
        prefetch(edges.out.head.data, np.int64(src[i + _AHEAD]) * 3)
        prefetch(edges.inn.head.data, np.int64(dst[i + _AHEAD]) * 3)
        prefetch(edges.in_edges.data, np.int64(dst[i + _AHEAD]))
    if i + _NEAR < len(src):
        u, v = src[i + _NEAR], dst[i + _NEAR]
        prefetch(edges.out.pool.data, place_of(edges.out, u) + at_end * edges.out.head.data[u, 1])
        prefetch(edges.inn.pool.data, place_of(edges.inn, v) + at_end * edges.inn.head.data[v, 1])


@kernel
def take_out(
    edges: Edges,
    deleted: SomeEdges,
    reweighted: Reweighted,
    sources: tuple[np.ndarray, np.ndarray, np.ndarray],
    moves: Moves,
    gone: Messages,
    kept: Messages,
    result: np.ndarray,
) -> None:
    """Forget deleted edges, find the moves, and list what they keep where there is room for it.

    `result`: status, messages gone, moves, out-edges of those. MISSING_INDEX, with nothing changed: of a long list.
    """
    if lacks_index_of_edges(edges.out, edges.inn, deleted, reweighted):
        result[0] = MISSING_INDEX
        return
    src, dst, weight, tags = deleted
    at = 0
    for i in range(len(src)):
        _prefetch_lists(edges, src, dst, i, np.int64(0))
        u, v = src[i], dst[i]
        if edges.skip_loops and u == v:
            continue
        w = weight[i] if edges.out.weighted else np.float32(1)
        if not unlink(edges.out, edges.inn, u, v, w, tag_at(edges.out, tags, i)):
            result[0] = MISSING_EDGE
            return
        touch(edges.in_edges, v)
        edges.in_edges.data[v] -= 1
        at = _list(gone, at, u, v, w)
    count = _find_moves(edges, sources[0], sources[1], sources[2], moves)
    total = 0
    for i in range(count):
        total += edges.out.head.data[moves.slots[i], 1]
    for i in range(len(reweighted[0]) if edges.out.weighted else 0):
        u, v = reweighted[0][i], reweighted[1][i]
        if moves.stamp[u] != moves.serial and not (edges.skip_loops and u == v):
            at = _list(gone, at, u, v, reweighted[2][i])
    result[0], result[1], result[2], result[3] = OK, at, count, total
    if total <= len(kept.src):
        _list_kept(edges, moves.slots, count, kept)


@kernel
def list_kept(edges: Edges, slots: np.ndarray, messages: Messages) -> None:
    """List the messages of all out-edges of these sources."""
    _list_kept(edges, slots, len(slots), messages)


@inner
def _list_kept(edges: Edges, slots: np.ndarray, n: int, messages: Messages) -> None:
    """Like `list_kept`, for the first `n` sources."""
    at = 0
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(edges.out.head.data, np.int64(slots[i + _AHEAD]) * 3)
        if i + _NEAR < n:
            prefetch(edges.out.pool.data, place_of(edges.out, slots[i + _NEAR]))
        u = slots[i]
        base, first = base_of(edges.out, u), place_of(edges.out, u)
        for k in range(first, first + edges.out.head.data[u, 1]):
            w = edges.out.weight.data[k] if edges.out.weighted else np.float32(1)
            at = _list(messages, at, u, base + edges.out.pool.data[k], w)


@kernel
def store_values(z: View, slots: np.ndarray, places: np.ndarray, rows: np.ndarray) -> None:
    """Have the sources send the new values from now on."""
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_row(z.data, np.int64(slots[i + _AHEAD]))
        touch(z, slots[i])
        for j in range(z.data.shape[1]):
            z.data[slots[i], j] = rows[places[i], j]


@kernel
def set_weights(
    edges: Edges,
    reweighted: Reweighted,
    moves: Moves,
    come: Messages,
    result: np.ndarray,
) -> None:
    """Give edges their new weights. `result`: status, messages come."""
    src, dst, old, new, tags = reweighted
    at = 0
    result[0] = OK
    for i in range(len(src)):
        u, v = src[i], dst[i]
        if edges.skip_loops and u == v:
            continue
        if not reweigh(edges.out, edges.inn, u, v, old[i], new[i], tag_at(edges.out, tags, i)):
            result[0] = MISSING_EDGE
            return
        if moves.stamp[u] != moves.serial:
            at = _list(come, at, u, v, new[i])
    result[1] = at


@kernel
def put_in(
    edges: Edges,
    added: SomeEdges,
    start: int,
    come: Messages,
    result: np.ndarray,
) -> None:
    """Add edges from index `start` on, behind the `result[1]` messages that have come; `result[2]`: where it stopped.

    It stops early where a pool has to grow.
    """
    src, dst, weight, tags = added
    at = result[1]
    result[2] = len(src)
    for i in range(start, len(src)):
        _prefetch_lists(edges, src, dst, i, np.int64(1))
        u, v = src[i], dst[i]
        if edges.skip_loops and u == v:
            continue
        w = weight[i] if edges.out.weighted else np.float32(1)
        if not link(edges.out, edges.inn, u, v, w, tag_at(edges.out, tags, i)):
            result[2] = i
            break
        touch(edges.in_edges, v)
        edges.in_edges.data[v] += 1
        at = _list(come, at, u, v, w)
    result[1] = at
