"""Synopses of messages that a network computes from both ends of an edge (gnn/synopses/edge_network.py).

Messages are computed in blocks, so that matrix products do the work, and passed to the fold that keeps other messages:
it gets a matrix with a row per message instead of the table of values. An old message is computed again from the old
rows of its ends. When the row of a target changes, or its state has to be recomputed for another reason, all messages
of its in-edges in this part are computed. Memory is bounded by a number of edges, and by the in-degree of one vertex.

Invariant: every synopsis is that of the network's messages for the rows in the table; the bits of a message depend on
two rows and the attributes of an edge, never on the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.kernels.kernel import kernel
from freshet.kernels.prefetch import prefetch_row
from freshet.operators.aggregates.accumulator import MADE_AT_ONCE, Accumulator
from freshet.operators.aggregates.aggregate import Aggregate, Lookup
from freshet.operators.aggregates.fold import MessageFold, StepwiseFold
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.graph.edge_messages import Edges, Messages, Moves, Turns, differs_at, room_for
from freshet.operators.graph.edge_table import EdgeTable
from freshet.operators.graph.row_kernels import gather
from freshet.state.adjacency import base_of, place_of
from freshet.state.table import Table, TableSet

# What is counted: messages of edges that change; rows that are made anew, and messages for that.
MADE, AFRESH, REREAD = range(3)
_BLOCK = 4096  # messages that are made at a time: 64 blocks of a matrix product
_APART = 512  # the same of ends that are arrays of their own, which then are in a cache still when they are read
_AT_ONCE = 4 * _BLOCK  # messages at a time of rows that are made anew, unless one row has more
_AHEAD = 8
_ONE_PART = 31  # what a row is shifted by, where all rows are of one part


@kernel
def gather_terms(
    z: np.ndarray, q: np.ndarray, src: np.ndarray, dst: np.ndarray, source: int, target: int, added: bool,
    out: np.ndarray,
) -> None:  # fmt: skip
    """Write the network's input for each edge: the sum of both ends' terms, or [target's row | source's - target's].

    Rows of sources are in `z`, those of targets in `q`. `source` and `target` are the first columns of the ends'
    inputs; without a target (-1) the source's terms are all.
    Shapes: out (n, size or 2 * size) float32.
    """
    size = out.shape[1] if added else out.shape[1] // 2
    for i in range(len(src)):
        if i + _AHEAD < len(src):
            prefetch_row(z, np.int64(src[i + _AHEAD]))
            prefetch_row(q, np.int64(dst[i + _AHEAD]))
        u, v = src[i], dst[i]
        for c in range(size):
            if target < 0:
                out[i, c] = z[u, source + c]
            elif added:
                out[i, c] = z[u, source + c] + q[v, target + c]
            else:
                out[i, c] = q[v, target + c]
                out[i, size + c] = z[u, source + c] - q[v, target + c]


@kernel
def gather_beside(
    z: np.ndarray, q: np.ndarray, src: np.ndarray, dst: np.ndarray, source: int, size: int, target: int,
    target_size: int, out: np.ndarray,
) -> None:  # fmt: skip
    """Write what a network reads of both ends beside each other: [source's columns | target's | the edge's, left out].

    Shapes: out (n, at least size + target_size) float32.
    """
    for i in range(len(src)):
        if i + _AHEAD < len(src):
            prefetch_row(z, np.int64(src[i + _AHEAD]))
            prefetch_row(q, np.int64(dst[i + _AHEAD]))
        u, v = src[i], dst[i]
        for c in range(size):
            out[i, c] = z[u, source + c]
        for c in range(target_size):
            out[i, size + c] = q[v, target + c]


def messages_of(
    network: EdgeNetwork, z: np.ndarray, q: np.ndarray, src: np.ndarray, dst: np.ndarray, of_edge: np.ndarray,
    out: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Return the messages of edges, (n, network.width) float32, given what is read of each but for its ends.

    Rows of sources are in `z`, those of targets in `q`; messages go to `out` if it is given.
    """
    if network.apart is None:
        made = network.made(gather_ends(network, z, q, src, dst), of_edge)
        if out is None:
            return made
        out[:] = made
        return out
    source = gather(z, src, network.size, network.source)
    if not network.target_size:
        return network.apart(source, source[:, :0], of_edge, out)
    return network.apart(source, gather(q, dst, network.target_size, network.target), of_edge, out)


def gather_ends(network: EdgeNetwork, z: np.ndarray, q: np.ndarray, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Return what a network reads of the ends of edges, (n, network.reads) float32; the edges' terms are to come.

    Rows of sources are in `z`, those of targets in `q`.
    """
    terms = np.empty((src.size, network.reads), np.float32)
    if network.ends == "beside":
        places = network.source, network.size, network.target, network.target_size
        gather_beside(z, q, src, dst, *places, terms)
    else:
        gather_terms(z, q, src, dst, network.source, network.target, network.ends == "sum", terms)
    return terms


@kernel
def find_turned(
    in_edges: np.ndarray, q: np.ndarray, turns: Turns, target: int, size: int, serial: int, renew: np.ndarray,
    found: np.ndarray,
) -> int:  # fmt: skip
    """List and stamp the targets with in-edges whose terms change; returns how many."""
    count = 0
    for i in range(len(turns.slots)):
        v = turns.slots[i]
        if in_edges[v] > 0 and differs_at(q, turns, i, target, size):
            renew[v] = serial
            found[count] = v
            count += 1
    return count


@kernel
def pick_messages(messages: Messages, renew: np.ndarray, serial: int, picked: Messages) -> int:
    """Pick the messages to rows that will not be recomputed anyway; returns how many."""
    count = 0
    for i in range(len(messages.src)):
        if renew[messages.dst[i]] != serial:
            picked.src[count], picked.dst[count] = messages.src[i], messages.dst[i]
            picked.weight[count] = messages.weight[i]
            count += 1
    return count


@kernel
def list_in_edges(edges: Edges, rows: np.ndarray, head: np.ndarray, messages: Messages) -> None:
    """List the messages of all in-edges of these rows; `head` gets the place and number of each row's."""
    at = 0
    for i in range(len(rows)):
        row = rows[i]
        base, first, many = base_of(edges.inn, row), place_of(edges.inn, row), edges.inn.head.data[row, 1]
        head[row, 0], head[row, 1] = at, many
        for k in range(first, first + many):
            messages.src[at], messages.dst[at] = base + edges.inn.pool.data[k], row
            if edges.inn.weighted:
                messages.weight[at] = edges.inn.weight.data[k]
            at += 1


class NetworkFold(StepwiseFold):
    """The synopses of a network's messages, which another fold keeps; the tables are that one's."""

    def __init__(self, synopsis: NetworkSynopsis, inner: MessageFold) -> None:
        """`inner` gets what the network makes."""
        super().__init__(*inner.tables)
        self._inner, self._network = inner, synopsis.network
        self._attributes: EdgeTable | None = None
        self._at_once = _BLOCK if self._network.apart is None else _APART
        self.counts = np.zeros(3, np.int64)
        self._renew, self._head = np.zeros(0, np.int64), np.zeros((0, 3), np.int32)
        self._turned = np.empty(0, np.int32)
        self._q = Table("", "f4", 1)
        self._turns = Turns(self._turned, self._turned, np.empty((0, 1), np.float32))
        self._order, self._weights = np.arange(_BLOCK, dtype=np.int32), np.ones(_BLOCK, np.float32)

    def read_attributes(self, attributes: EdgeTable) -> None:
        """Have messages whose weights are the numbers of edges in this table."""
        self._attributes = attributes

    def read_targets(self, q: Table, turns: Turns) -> None:
        """Have messages read these rows, and other ones of the destinations that turn in the epoch that begins."""
        self._q, self._turns = q, turns

    def begin(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Begin an epoch that moves these sources to these values."""
        slots, network, q, turns = len(edges.in_edges.data), self._network, self._q.data, self._turns
        if self._renew.size < slots:
            self._renew, self._head = np.zeros(slots, np.int64), np.zeros((slots, 3), np.int32)
        self._inner.begin(edges, moves, rows)
        found = np.empty(turns.slots.size if network.target >= 0 else 0, np.int32)
        if found.size:
            columns = network.target, network.turning
            found = found[: find_turned(edges.in_edges.data, q, turns, *columns, moves.serial, self._renew, found)]
        self._turned = found

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Unmake messages."""
        for made, here in self._blocks(edges, messages, serial):
            self._inner.take_back(made, here, serial)

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Merge messages."""
        for made, here in self._blocks(edges, messages, serial):
            self._inner.bring(made, here, serial)

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """Recompute rows where needed; returns the rows whose synopses may have changed."""
        rows = np.unique(np.concatenate([self._turned, self._inner.worn(edges)]))
        ends = np.cumsum(edges.in_edges.data[rows], dtype=np.int64)
        first = 0
        while first < rows.size:
            behind = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, behind + _AT_ONCE, side="right")))
            self._remake(edges, rows[first:last], int(ends[last - 1] - behind), serial)
            first = last
        return self._inner.finish(edges, serial)

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`."""
        self._inner.read(edges, slots, out, first)

    def _blocks(self, edges: Edges, messages: Messages, serial: int) -> Iterator[tuple[Edges, Messages]]:
        """The messages in blocks: what has them in the place of values, and which of them go where."""
        picked = room_for(messages.src.size)
        picked = picked.first(pick_messages(messages, self._renew, serial, picked))
        if not self._inner.reads_changes:
            yield edges, picked
            return
        self.counts[MADE] += picked.src.size
        for first in range(0, picked.src.size, self._at_once):
            here = picked.part(first, first + self._at_once)
            made = edges._replace(z=edges.z._replace(data=self._made(edges, here)))
            yield made, Messages(self._order[: here.src.size], here.dst, self._weights[: here.src.size])

    def _made(self, edges: Edges, messages: Messages, out: np.ndarray | None = None) -> np.ndarray:
        """The messages of these edges, (n, network.width) float32."""
        src, dst, numbers = messages
        of_edge = numbers[:, None] if self._attributes is None else self._attributes.of(dst, numbers)
        return messages_of(self._network, edges.z.data, self._q.data, src, dst, of_edge, out)

    def _remake(self, edges: Edges, rows: np.ndarray, count: int, serial: int) -> None:
        """Recompute these rows from their in-edges in this part, `count` in all."""
        listed = room_for(count)
        list_in_edges(edges, rows, self._head, listed)
        made = np.empty((count, self._network.width), np.float32)
        for first in range(0, count, self._at_once):
            last = first + self._at_once
            self._made(edges, listed.part(first, last), made[first:last])
        inn = edges.inn._replace(
            head=edges.inn.head._replace(data=self._head),
            pool=edges.inn.pool._replace(data=np.arange(count, dtype=np.int32)),
            shift=_ONE_PART,
            far=_ONE_PART,
            weighted=False,  # numbers of edges are none of messages
        )
        of_messages = edges._replace(z=edges.z._replace(data=made), inn=inn)
        self._inner.remake(of_messages, rows, serial)
        self.counts[AFRESH] += rows.size
        self.counts[REREAD] += count


class NetworkAccumulator:
    """Synopses of messages that are made in blocks, on which the bits do not depend."""

    def __init__(self, synopsis: NetworkSynopsis, inner: Accumulator) -> None:
        """`inner` gets what the network makes."""
        self._network, self._inner = synopsis.network, inner
        self._order, self._weights = np.arange(MADE_AT_ONCE, dtype=np.int32), np.ones(MADE_AT_ONCE, np.float32)

    def merge(self, z: np.ndarray, messages: Messages) -> None:
        """Make messages, and merge them."""
        network = self._network
        for first in range(0, len(messages.src), MADE_AT_ONCE):
            src, dst, weight = (of[first : first + MADE_AT_ONCE] for of in messages)
            made = Messages(self._order[: len(src)], dst, self._weights[: len(src)])
            self._inner.merge(messages_of(network, z, z, src, dst, weight[:, None]), made)

    def read(self, got: np.ndarray, rows: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`."""
        self._inner.read(got, rows, out, first)


def edge_networks_of(of: Lookup) -> Aggregate[NetworkSynopsis]:
    """Return how they are kept, where `of` says how the synopses are kept that they are made of."""

    def fold(tables: TableSet, name: str, width: int, synopsis: NetworkSynopsis) -> NetworkFold:
        inner = of(synopsis.inner).fold_of(tables, name, synopsis.network.width, synopsis.inner)
        return NetworkFold(synopsis, inner)

    def accumulator(synopsis: NetworkSynopsis, width: int, rows: int) -> NetworkAccumulator:
        inner = of(synopsis.inner).accumulator(synopsis.inner, synopsis.network.width, rows)
        return NetworkAccumulator(synopsis, inner)

    return Aggregate(
        store=partial(FoldStore, fold),
        merger=lambda synopsis: of(synopsis.inner).merger(synopsis.inner),
        accumulator=accumulator,
        accumulator_bytes=lambda synopsis, _: of(synopsis.inner).accumulator_bytes(
            synopsis.inner, synopsis.network.width
        ),
        made_bytes=lambda synopsis: 4 * (synopsis.network.reads + 2 * synopsis.network.width),
    )
