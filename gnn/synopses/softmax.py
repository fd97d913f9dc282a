"""Attention as a synopsis: per head, a sum of source values weighted by the softmax of scores over the in-edges.

A message here is what a vertex keeps in every part that knows it: the value that it sends, what the score reads of a
source, and what it reads of a target. So a part can make any message of its edges by itself, also one of long ago.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.of_messages import ADDS_DIFFERENCE, MAKES_TARGETS_AFRESH, Synopsis

ScoreKind = Literal["additive", "joint", "dot", "leaky_dot", "mixed", "given"]


@dataclass(frozen=True, eq=False)
class Score:
    """The score of an edge (u, v) for each head, and where in a row its terms are.

    additive: LeakyReLU(s_u + t_v), one number per head of source and target (GAT). joint: a . LeakyReLU(l_u + r_v), a
    row per head (GATv2). dot: factor * (k_u . q_v) (TransformerConv, AGNN). leaky_dot: LeakyReLU of that (SuperGAT's
    SD). mixed: LeakyReLU((s_u + t_v) sigmoid(k_u . k_v)), k being the values (SuperGAT's MX). given: the row has it,
    one number per head, since a network has made the row of an edge (edge_network.py).

    Shapes: a (heads, channels) float32, joint alone; value, source, target: the first column of each in a row. The
    value of head h are the `channels` columns from value + h * channels on; so are its terms, or column + h where there
    is one number per head. What is read of a target stands side by side, in mixed scores from the values on.
    """

    kind: ScoreKind
    heads: int
    channels: int
    source: int
    target: int
    width: int
    """Of a row, all in all."""
    slope: float = 0.2
    """Of the LeakyReLU."""
    factor: float = 1.0
    """Of a dot product."""
    a: np.ndarray | None = None

    @property
    def sides(self) -> int:
        """Number of sums for a head's messages, by the sign of the LeakyReLU's argument.

        On either side of it an additive score is linear, so e^score is a factor of the source times one of the target,
        and a target that changes moves only those messages whose side changes (docs/design/aggregates.md).
        """
        return 2 if self.kind == "additive" else 1

    @property
    def reads(self) -> tuple[int, int]:
        """The columns of a row that are read of a target: the first, and how many."""
        if self.kind == "given":
            return 0, 0
        if self.kind == "additive":
            return self.target, self.heads
        size = self.heads * self.channels
        return (0, size + self.heads) if self.kind == "mixed" else (self.target, size)

    def of(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the scores of edges, given the rows of their ends; (e, heads) in the rows' dtype."""
        if self.kind == "given":
            return sources[:, self.source : self.source + self.heads]
        shape = len(sources), self.heads, self.channels
        if self.kind in ("additive", "mixed"):
            at, to = (slice(first, first + self.heads) for first in (self.source, self.target))
            both = sources[:, at] + targets[:, to]
            if self.kind == "mixed":
                size = self.heads * self.channels
                dots = (sources[:, :size].reshape(shape) * targets[:, :size].reshape(shape)).sum(axis=2)
                both = both / (1 + np.exp(-dots))
            return _leaky(both, self.slope)
        size = self.heads * self.channels
        u = sources[:, self.source : self.source + size].reshape(shape)
        v = targets[:, self.target : self.target + size].reshape(shape)
        if self.kind == "joint":
            assert self.a is not None
            return (_leaky(u + v, self.slope) * self.a.astype(u.dtype)).sum(axis=2)
        dots = self.factor * (u * v).sum(axis=2)
        return dots if self.kind == "dot" else _leaky(dots, self.slope)


def _leaky(x: np.ndarray, slope: float) -> np.ndarray:
    return np.where(x > 0, x, slope * x)


@dataclass(frozen=True)
class SoftmaxSynopsis(Synopsis):
    """Per head a shift m, the denominator D = sum exp(score - m), and N = sum exp(score - m) value.

    Both are sums, so messages are added and subtracted; the shift of the job's sums may differ from that of a full
    pass, with the same N / D. When a target's term changes, additive scores are moved; others are summed again.

    Shapes: state (n, heads * (channels + 2)): [m | D | N] per head; 0 for D and N without messages.
    Source: NeutronRT algorithm 3 and table II for deltas of inputs of constrained operators; there GAT is recomputed.
    """

    score: Score
    reads_targets: ClassVar[bool] = True

    @property
    def algebra(self) -> str:  # type: ignore[override]
        """Name for people of what a deletion, and another term of a target, cost."""
        if self.score.kind == "given":
            return "invertible"
        return "invertible, in two sides" if self.score.sides > 1 else "invertible, reading its target"

    @property
    def name(self) -> str:
        """Name for people."""
        heads = f" of {self.score.heads} heads" if self.score.heads > 1 else ""
        return f"softmax{heads}, {self.score.kind} score"

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change, for people."""
        if self.score.kind == "given":
            return (ADDS_DIFFERENCE,)
        if self.score.sides > 1:
            return (f"{ADDS_DIFFERENCE}, a changed target moves the messages whose score changes sides",)
        return (MAKES_TARGETS_AFRESH,)

    @property
    def sums_of_terms(self) -> int:
        """Number of further sums in a state, of the edges' terms of each head; none here."""
        return 0

    def width(self, message_width: int) -> int:
        """Return the width of a state."""
        return self.score.heads * (self.score.channels + 2)

    def state_bytes(self, message_width: int) -> int:
        """A note of 16 bytes, a shift and a count of each side and head, of GAT the target's terms; sums in float64.

        All that in whole cache lines; and of GAT the source's terms once more.
        """
        score = self.score
        sums, terms = score.sides * score.heads, 4 * score.heads if score.sides > 1 else 0
        row = 8 * (sums * (1 + score.channels) + self.sums_of_terms) + -(-(8 * sums + 16 + terms) // 8) * 8
        return -(-row // 64) * 64 + terms

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return N / D per head, (n, heads * channels) float32; 0 where there are no messages."""
        by_head = state.reshape(len(state), self.score.heads, self.score.channels + 2)
        bottom = by_head[:, :, 1:2]
        read = np.divide(by_head[:, :, 2:], bottom, out=np.zeros_like(by_head[:, :, 2:]), where=bottom != 0)
        return np.ascontiguousarray(read.reshape(len(state), self.score.heads * self.score.channels))

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the state of each vertex from all its messages at once, in float64, rounded at the end.

        Shapes: messages (e, score.width), rows of sources; targets (vertices, score.width).
        """
        return self._whole(messages.astype(np.float64), dst, targets)

    def _whole(self, rows: np.ndarray, dst: np.ndarray, targets: Rows) -> Rows:
        """Like `whole`, of rows in float64."""
        score, vertices = self.score, len(targets)
        read = targets[:, :0] if score.kind == "given" else targets[dst].astype(np.float64)
        logits = score.of(rows, read)
        shift = np.full((vertices, score.heads), -np.inf)
        np.maximum.at(shift, dst, logits)
        # as a float32 is read: what the sums are relative to must be what is written
        shift = shift.astype(np.float32).astype(np.float64)
        weights = np.exp(logits - shift[dst])[:, :, None]
        values = rows[:, : score.heads * score.channels].reshape(len(rows), score.heads, score.channels)
        out = np.zeros((vertices, score.heads, score.channels + 2))
        np.add.at(out[:, :, 1:], dst, np.concatenate([weights, weights * values], axis=2))
        out[:, :, 0] = shift
        return out.reshape(vertices, -1).astype(np.float32)


@dataclass(frozen=True, eq=False)
class EdgeSoftmaxSynopsis(SoftmaxSynopsis):
    """Softmax sums of additive scores LeakyReLU((s_u + e_uv) + t_v); e_uv is a linear function of an edge's attributes.

    A term of the edge joins that of its source, and all else is as without: messages move from side to side when
    their target changes. For self-loops with the mean of the in-edges' attributes, whose terms are the mean of theirs,
    the terms and the messages are summed as well.

    Shapes: edge (edge width, heads) float32; messages (e, score.width + edge width), rows of sources and attributes;
    state (n, heads * (channels + 2) [+ heads + 1]): [m | D | N] per head [| sum of e | number of messages].
    """

    edge: np.ndarray
    means: bool
    """The edges' terms are summed."""

    @property
    def algebra(self) -> str:  # type: ignore[override]
        """Name for people of what a deletion, and another term of a target, cost."""
        return f"{super().algebra} + reading attributes"

    @property
    def name(self) -> str:
        """Name for people."""
        return f"{super().name} with a term of the edge"

    @property
    def sums_of_terms(self) -> int:
        """Number of further sums in a state, of the edges' terms of each head."""
        return self.score.heads if self.means else 0

    @property
    def softmax_width(self) -> int:
        """Columns of a state without further sums."""
        return super().width(0)

    @property
    def multiplications(self) -> int:
        """Number of those that make the term of an edge."""
        return int(self.edge.size)

    def width(self, message_width: int) -> int:
        """Return the width of a state."""
        return self.softmax_width + (self.sums_of_terms + 1 if self.means else 0)

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return N / D per head, (n, heads * channels) float32; 0 where there are no messages."""
        return super().read(np.ascontiguousarray(state[:, : self.softmax_width]), count)

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the state of each vertex from all its messages at once, in float64, rounded at the end."""
        score = self.score
        terms = messages[:, score.width :].astype(np.float64) @ self.edge.astype(np.float64)
        rows = messages[:, : score.width].astype(np.float64)
        rows[:, score.source : score.source + score.heads] += terms
        state = self._whole(rows, dst, targets)
        if not self.means:
            return state
        sums = np.zeros((len(targets), score.heads + 1))
        np.add.at(sums, dst, np.concatenate([terms, np.ones((len(dst), 1))], axis=1))
        return np.concatenate([state, sums.astype(np.float32)], axis=1)
