"""Messages that a network makes of the ends of an edge and its attributes, and what a vertex keeps of them.

As with attention, what every part keeps of a vertex is all that anybody's message reads of it, as source and as target:
so a part can make any message of its edges by itself, also one of long ago.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.of_messages import Synopsis

EndsForm = Literal["sum", "difference", "beside"]


class MessageMaker(Protocol):
    """A message of edges as a function of what it reads of each; a row of the result depends on its own edge alone."""

    width: int
    """Width of a message."""

    def message(self, source: Rows, target: Rows, weight: Rows, attr: Rows) -> Rows:
        """Return the messages of n edges, (n, width) float32.

        Shapes: source and target (n, columns that are read of either end) float32, (n, 0) for none; weight (n, 1) or,
        where it is not read, (n, 0); attr (n, edge width) or (n, 0).
        """


class ApartMaker(MessageMaker, Protocol):
    """A maker of messages that takes longer where the ends of edges are columns of one array."""

    def message(self, source: Rows, target: Rows, weight: Rows, attr: Rows, out: Rows | None = None) -> Rows:
        """Return the messages of n edges; in `out`, (n, width) float32, if it is given."""


@dataclass(frozen=True, eq=False)
class EdgeNetwork:
    """The network that makes the message of an edge (u, v), and where in a row it finds what it reads of either end.

    ends: sum, where a linear layer of both ends is one of each end, added up, so that its two terms are made once per
    vertex and `rest` reads their sum; difference: `rest` reads [x_v | x_u - x_v]; beside: it reads [x_u | x_v | edge].
    Where `target` is -1 a message reads no target. `edge` makes a further term of the attributes of an edge, which is
    added, or stands beside.

    Shapes: of a source the columns `source` to `source + size` of a row, of a target those from `target` on, `size` or,
    beside, `target_size`; edge turns (n, edge width) float32 rows into (n, reads) ones, or (n, edge_size) beside; rest
    turns (n, reads) float32 C-contiguous rows, which it may overwrite, into (n, width) ones.
    Invariant: the bits of a message depend on the two rows and the attributes alone.
    """

    source: int
    target: int
    size: int
    ends: EndsForm
    width: int
    rest: Callable[[Rows], Rows]
    multiplications: int
    """Of the matrices in `rest` and `edge`, for each message."""
    edge: Callable[[Rows], Rows] | None = None
    target_size: int = 0
    """Columns that are read of a target which stands beside its source."""
    edge_size: int = 0
    """Columns of the edge's term where it stands beside its ends."""
    edge_names: Sequence[str] = ("attributes",)
    """Names for people of what `edge` reads, where there is one."""
    apart: Callable[[Rows, Rows, Rows, Rows | None], Rows] | None = None
    """Makes the same messages as `rest`, of source, target and edge in arrays of their own; in the fourth if given."""

    @property
    def reads(self) -> int:
        """Width of the rows that `rest` reads."""
        if self.ends == "beside":
            return self.size + self.target_size + self.edge_size
        return self.size if self.ends == "sum" else 2 * self.size

    @property
    def turning(self) -> int:
        """Columns of a target, from `target` on, a change of which changes its messages."""
        return self.target_size if self.ends == "beside" else self.size

    def of(self, sources: Rows, targets: Rows, attr: Rows | None = None) -> Rows:
        """Return the messages of edges, given the rows of their ends and their attributes; (n, width) float32."""
        u = sources[:, self.source : self.source + self.size]
        if self.ends == "beside":
            terms = np.empty((len(u), self.reads), np.float32)
            terms[:, : self.size] = u
            terms[:, self.size : self.size + self.target_size] = targets[:, self.target :][:, : self.target_size]
            return self.made(terms, attr)
        if self.target < 0:
            return self.made(u.copy(), attr)
        v = targets[:, self.target : self.target + self.size]
        with np.errstate(all="ignore"):  # infinities and NaN are results, as in PyG
            return self.made(u + v if self.ends == "sum" else np.concatenate([v, u - v], axis=1), attr)

    def made(self, terms: Rows, attr: Rows | None = None) -> Rows:
        """Return the messages of what `rest` reads but for the edge's term; `terms` may be overwritten."""
        terms = np.ascontiguousarray(terms, np.float32)
        with np.errstate(all="ignore"):
            if self.edge is not None and attr is not None:
                if self.ends == "beside":
                    terms[:, self.reads - self.edge_size :] = self.edge(attr)
                else:
                    terms += self.edge(attr)
            return np.ascontiguousarray(self.rest(terms))


def network_of(
    message: MessageMaker,
    source: tuple[int, int],
    target: tuple[int, int] | None,
    multiplications: int,
    reads: EdgeReads,
    maker: ApartMaker | None = None,
) -> EdgeNetwork:
    """Return the network of a message that reads these columns of a row of its source, and of one of its target.

    `maker`: the same message where its ends are arrays of their own, if that takes less time.
    """
    size, (first, end) = source[1] - source[0], (-1, -1) if target is None else target
    to, attr = size + end - first, size + end - first + reads.columns - reads.attributes

    def rest(terms: Rows) -> Rows:
        return message.message(terms[:, :size], terms[:, size:to], terms[:, to:attr], terms[:, attr:])

    def apart(source: Rows, target: Rows, of_edge: Rows, out: Rows | None) -> Rows:
        assert maker is not None
        return maker.message(source, target, of_edge[:, : attr - to], of_edge[:, attr - to : reads.columns], out)

    edge = _as_it_is if reads.columns else None
    more = end - first, reads.columns, reads.names, None if maker is None else apart
    return EdgeNetwork(source[0], first, size, "beside", message.width, rest, multiplications, edge, *more)


def _as_it_is(of_edge: Rows) -> Rows:
    return of_edge


@dataclass(frozen=True)
class NetworkSynopsis(Synopsis):
    """One or several synopses of messages that a network computes from the ends of an edge, and its attributes.

    When an edge or a source changes, its old messages are removed and new ones added. When the row of a target changes,
    all its messages do where they read it, and its state is recomputed from its in-edges.

    Shapes: messages (e, message width [+ edge width]), the rows of sources [and the attributes of edges]; state
    (n, inner.width(network.width)).
    """

    inner: Synopsis
    network: EdgeNetwork
    sent: int | None = None
    """Width of the rows of sources; None: that of the rows of targets."""

    @property
    def reads_targets(self) -> bool:  # type: ignore[override]
        """A message reads a row of its target, too."""
        return self.network.target >= 0

    @property
    def algebra(self) -> str:  # type: ignore[override]
        """Name for people of what a deletion, and another row of a target, cost."""
        read = [] if not self.reads_targets else ["both ends"]
        read += [] if self.network.edge is None else self.network.edge_names
        what = " and ".join(read).replace("weight", "weights")
        return f"{self.inner.algebra} + reading {what}" if read else self.inner.algebra

    @property
    def name(self) -> str:
        """Name for people, e.g. max of a network's messages."""
        return f"{self.inner.name} of a network's messages"

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change, for people."""
        if self.reads_targets:
            made = "of both ends; of a changed target, or a row that is read anew, it makes all"
        elif self.network.edge is None:
            made = "of its source; of a recomputed row it makes all"
        else:
            names = " and ".join(self.network.edge_names)
            made = f"of its source and its edge's {names}; of a recomputed row it makes all"
        return *self.inner.changes, f"a network makes each message {made}"

    @property
    def merges(self) -> bool:
        """True if the synopses inside can be merged."""
        return self.inner.merges

    @property
    def needs_all(self) -> bool:
        """True if the synopses inside are made of all messages at once."""
        return self.inner.needs_all

    @property
    def needs_same_bits(self) -> bool:
        """True if the synopsis keeps extrema: a removed message is found by its value, which is computed again."""
        return self.inner.finds_by_value

    def with_sent(self, width: int) -> NetworkSynopsis:
        """Return the synopsis where sources send rows of that width."""
        return replace(self, sent=width)

    def width(self, message_width: int) -> int:
        """Return the width of a state."""
        return self.inner.width(self.network.width)

    def state_bytes(self, message_width: int) -> int:
        """Return those of the synopses inside."""
        return self.inner.state_bytes(self.network.width)

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the aggregates that the state stands for."""
        return self.inner.read(state, count)

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the state of each vertex from all its messages at once, in pieces of edges."""
        made = np.empty((len(dst), self.network.width), np.float32)
        for first in range(0, len(dst), _AT_ONCE):
            here = slice(first, first + _AT_ONCE)
            sent = targets.shape[1] if self.sent is None else self.sent
            attr = np.ascontiguousarray(messages[here, sent:])
            made[here] = self.network.of(messages[here, :sent], targets[dst[here]], attr)
        return self.inner.whole(made, dst, np.empty((len(targets), self.network.width), np.float32))


_AT_ONCE = 1 << 16
