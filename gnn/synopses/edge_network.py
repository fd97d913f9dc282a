"""Messages that a network makes of both ends of an edge, and what a vertex keeps of them.

As with attention, what every part keeps of a vertex is all that anybody's message reads of it, as source and as target:
so a part can make any message of its edges by itself, also one of long ago.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.of_messages import Synopsis


@dataclass(frozen=True, eq=False)
class EdgeNetwork:
    """The network that makes the message of an edge (u, v), and where in a row it finds what it reads of either end.

    `added`: a linear layer of both ends is one of each end, added up, so its two terms are made once per vertex and
    `rest` reads their sum. Else `rest` reads [x_v | x_u - x_v].

    Shapes: of a source the columns `source` to `source + size` of a row, of a target those from `target` on; rest turns
    (n, reads) float32 C-contiguous rows, which it may overwrite, into (n, width) ones.
    Invariant: the bits of a message depend on the two rows alone.
    """

    source: int
    target: int
    size: int
    added: bool
    width: int
    rest: Callable[[Rows], Rows]
    multiplications: int
    """Of the matrices in `rest`, for each message."""

    @property
    def reads(self) -> int:
        """Width of the rows that `rest` reads."""
        return self.size if self.added else 2 * self.size

    def of(self, sources: Rows, targets: Rows) -> Rows:
        """Return the messages of edges, given the rows of their ends; (n, width) float32."""
        u, v = sources[:, self.source : self.source + self.size], targets[:, self.target : self.target + self.size]
        with np.errstate(all="ignore"):  # infinities and NaN are results, as in PyG
            return self.made(u + v if self.added else np.concatenate([v, u - v], axis=1))

    def made(self, terms: Rows) -> Rows:
        """Return the messages of what `rest` reads, which may be overwritten."""
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(self.rest(np.ascontiguousarray(terms, np.float32)))


@dataclass(frozen=True)
class NetworkSynopsis(Synopsis):
    """One or several synopses of messages that a network computes from both ends of an edge.

    When an edge or a source changes, its old messages are removed and new ones added. When the row of a target changes,
    all its messages do, and its state is recomputed from its in-edges.

    Shapes: messages (e, message width), the rows of sources; state (n, inner.width(network.width)).
    """

    inner: Synopsis
    network: EdgeNetwork
    reads_targets: ClassVar[bool] = True

    @property
    def algebra(self) -> str:  # type: ignore[override]
        """Name for people of what a deletion, and another row of a target, cost."""
        return f"{self.inner.algebra} + reading both ends"

    @property
    def name(self) -> str:
        """Name for people, e.g. max of a network's messages."""
        return f"{self.inner.name} of a network's messages"

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change, for people."""
        return (
            *self.inner.changes,
            "a network makes each message of both ends; of a changed target, or a row that is read anew, it makes all",
        )

    @property
    def needs_same_bits(self) -> bool:
        """True if the synopsis keeps extrema: a removed message is found by its value, which is computed again."""
        return self.inner.finds_by_value

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
            made[here] = self.network.of(messages[here], targets[dst[here]])
        return self.inner.whole(made, dst, np.empty((len(targets), self.network.width), np.float32))


_AT_ONCE = 1 << 16
