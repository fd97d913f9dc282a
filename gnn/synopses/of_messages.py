"""Synopses: numbers that a vertex keeps of its messages, typed by their capabilities.

A synopsis is a row of numbers. What is stored is un-normalised; the context (how many, how heavy) is combined on
reading, so that a changed degree costs a read and not a rewrite of old messages. How a synopsis is kept up to date is
up to the Storage: operators/aggregates/registry.py has the room of each type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from freshet.gnn.numerics.dense import Rows

LEAST_VARIANCE = 1e-5
"""What a standard deviation is the root of at the least; up to there it is 0, as in PyG."""
# Words for people of what a change does to several kinds of synopses.
ADDS_DIFFERENCE = "a changed edge or source adds its difference"
MAKES_TARGETS_AFRESH = f"{ADDS_DIFFERENCE}, the sums of a changed target are made afresh from its in-edges"


@dataclass(frozen=True)
class Synopsis:
    """Base of all synopses: messages merge into a row, from an identity element, and the row is read with the context.

    Shapes: state (n, width) float32; messages (n, width) float32; count (n,) number of in-edges.
    Invariant: merging is associative and commutative (up to rounding), and merging the identity changes nothing.
    """

    algebra: ClassVar[str]
    """Name for people of what a deletion costs."""
    is_linear: ClassVar[bool] = False
    """A linear layer of the aggregate is the aggregate of that layer's rows, so it may be applied before sending."""
    reads_targets: ClassVar[bool] = False
    """A message reads a row of its target, too."""

    @property
    def multiplications(self) -> int:
        """Number of those that make what a message reads of its edge's attributes."""
        return 0

    @property
    def name(self) -> str:
        """Name for people, e.g. weighted sum."""
        raise NotImplementedError

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change, for people."""
        raise NotImplementedError

    @property
    def finds_by_value(self) -> bool:
        """True if a removed message is found by its value among the merged ones."""
        return False

    @property
    def merges(self) -> bool:
        """True if the states that several parts have of a vertex can be made one."""
        return True

    @property
    def needs_all(self) -> bool:
        """True if a state is made of all messages of a vertex at once."""
        return False

    @property
    def needs_same_bits(self) -> bool:
        """True if a message computed on another processor may not be found among the merged ones."""
        return False

    def with_sent(self, width: int) -> Synopsis:
        """Return the synopsis where sources send rows of that width, which rows of targets do not say."""
        return self

    def width(self, message_width: int) -> int:
        """Return the width of the aggregated rows for messages of this width."""
        return message_width

    def state_bytes(self, message_width: int) -> int:
        """Return the bytes that a Storage keeps for each vertex, without the values of sources."""
        raise NotImplementedError

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the aggregate that the state stands for; 0 where the neighbourhood is empty."""
        raise NotImplementedError

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the state of each vertex from all its messages at once, slowly: the definition of the synopsis.

        Shapes: messages (e, message width); dst (e,) vertex numbers; targets (vertices, message width), what each
        vertex sends, for what a message may read of its target; result (vertices, width) float32.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class InvertibleSynopsis(Synopsis):
    """A synopsis that can take back what it was given, so that a change is a delta (an Abelian group).

    Contract:
    - taking back a message that was merged leaves what was there before, wherever sums are exact;
    - a message that changed from m to m' is merged as m' - m.
    Source: RIPPLE++ section 3.3.3; sum and count are kept and divided on reading, against its printed mean rule.
    """

    algebra: ClassVar[str] = "invertible"
    is_linear: ClassVar[bool] = True
    kind: Literal["sum", "mean"] = "sum"
    weighted: bool = False

    @property
    def name(self) -> str:
        """Name for people: sum, mean, weighted sum, weighted mean."""
        return f"weighted {self.kind}" if self.weighted else self.kind

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change, for people."""
        return (ADDS_DIFFERENCE,)

    def state_bytes(self, message_width: int) -> int:
        """Sums are float64, with a note of 16 bytes."""
        return 8 * message_width + 16

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return sum, or sum / count with 0 without messages (any rest of a sum there is rounding)."""
        if self.kind == "sum":
            return state
        out = state / np.maximum(count, 1).astype(np.float32)[:, None]
        if not count.all():
            out[count == 0] = 0
        return out

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the sum of each vertex's messages."""
        out = np.zeros((len(targets), messages.shape[1]), np.float32)
        np.add.at(out, dst, messages)
        return out


@dataclass(frozen=True)
class MonotonicSynopsis(Synopsis):
    """The largest or smallest message, channel by channel: a semilattice, from which messages cannot be subtracted.

    Contract:
    - a message that does not reach the extremum changes nothing, neither when it is added nor when it is removed;
    - an extremum whose last holder is removed, with no message as good added, is *exposed*: that channel is recomputed
      from the in-edges. The number of holders is kept beside it, so that ties cost nothing.
    NaN exceeds everything, as in torch. The state is 0 where there are no messages.
    Source: InkStream section II-C1 and algorithm 1 (there the reset is by vertex, and a tie is recomputed).
    """

    algebra: ClassVar[str] = "monotonic"
    kind: Literal["max", "min"] = "max"
    weighted: bool = False

    @property
    def name(self) -> str:
        """Name for people: max, min, or of weighted messages."""
        return f"{self.kind} of weighted messages" if self.weighted else self.kind

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change, for people."""
        return (
            "a message that does not pass the extremum changes nothing, "
            "a channel whose last holder goes is read anew from its in-edges",
        )

    @property
    def finds_by_value(self) -> bool:
        """True: a removed message is found by its value among the merged ones."""
        return True

    def state_bytes(self, message_width: int) -> int:
        """A float32 and a count of two bytes for each channel."""
        return 6 * message_width

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the state as it is."""
        return state

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the extrema of each vertex's messages, 0 where there are none."""
        merge, worst = (np.maximum, -np.inf) if self.kind == "max" else (np.minimum, np.inf)
        out = np.full((len(targets), messages.shape[1]), worst, np.float32)
        merge.at(out, dst, messages + np.float32(0))
        out[np.bincount(dst, minlength=len(targets)) == 0] = 0
        return out


@dataclass(frozen=True)
class MomentsSynopsis(Synopsis):
    """The variance of the messages, or its root: mean(m^2) - mean(m)^2, channel by channel.

    Sums and sums of squares are updated by deltas. To merge partial states of several parts without the loss of float32
    sums, a state has the mean in two float32 and the variance about it.

    Shapes: state (n, 1 + 3 * width): [count | mean | rest of the mean | variance]; all 0 without messages.
    Source: PyG's VarAggregation and StdAggregation; Chan, Golub and LeVeque (1979) for merging.
    """

    algebra: ClassVar[str] = "invertible"
    kind: Literal["std", "var"] = "std"
    weighted: bool = False

    @property
    def name(self) -> str:
        """Name for people: std, var, or of weighted messages."""
        return f"{self.kind} of weighted messages" if self.weighted else self.kind

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change, for people."""
        return (ADDS_DIFFERENCE,)

    def width(self, message_width: int) -> int:
        """Return the width of a state."""
        return 1 + 3 * message_width

    def state_bytes(self, message_width: int) -> int:
        """Two sums in float64, with a bound of four bytes of what each has lost."""
        return 24 * message_width

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return variance or standard deviation; that of a variance up to LEAST_VARIANCE is 0."""
        variance = state[:, 1 + 2 * (state.shape[1] // 3) :]
        if self.kind == "var":
            return np.ascontiguousarray(variance)
        least = np.float32(LEAST_VARIANCE)
        return np.where(variance <= least, np.float32(0), np.sqrt(np.maximum(variance, least)))

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the state of each vertex from all its messages at once, in float64, rounded at the end."""
        vertices, wide = len(targets), messages.astype(np.float64)
        count = np.bincount(dst, minlength=vertices)[:, None]
        sums, squares = np.zeros((2, vertices, messages.shape[1]))
        np.add.at(sums, dst, wide)
        np.add.at(squares, dst, wide * wide)
        mean, of_squares = (total / np.maximum(count, 1) for total in (sums, squares))
        variance = of_squares - mean * mean
        variance[variance < 0] = 0
        rounded = mean.astype(np.float32)
        rest = np.where(np.isfinite(rounded), mean - rounded, 0)
        return np.concatenate([count, rounded, rest, variance], axis=1).astype(np.float32)


@dataclass(frozen=True)
class GatedSynopsis(Synopsis):
    """The sum of sigmoid(k_v + q_u) v_u over the in-edges (u, v), channel by channel.

    As with attention a message is the whole row that every part keeps of a vertex, here [v | q | k]: value, the gate's
    term of a source, and that of a target. Gates are rounded to float32, and so are their products with values.

    Shapes: messages (e, 3 * channels); state (n, channels).
    """

    channels: int
    algebra: ClassVar[str] = "invertible, reading its target"
    reads_targets: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name for people."""
        return "gated sum"

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change, for people."""
        return (MAKES_TARGETS_AFRESH,)

    def width(self, message_width: int) -> int:
        """Return the width of a state."""
        return self.channels

    def state_bytes(self, message_width: int) -> int:
        """Sums are float64, with a note of 16 bytes."""
        return 8 * self.channels + 16

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the state as it is."""
        return state

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the sum of each vertex's gated messages, added in float64."""
        value, source, _ = np.split(messages, 3, axis=1)
        score = source.astype(np.float64) + targets[dst, 2 * self.channels :]
        gate = (1 / (1 + np.exp(-score))).astype(np.float32)
        out = np.zeros((len(targets), self.channels))
        np.add.at(out, dst, gate * value)
        return out.astype(np.float32)


@dataclass(frozen=True)
class ProductSynopsis(Synopsis):
    """Several synopses of the same messages, side by side in one row (PyG's `aggr=[...]`)."""

    factors: tuple[Synopsis, ...]

    @property
    def algebra(self) -> str:  # type: ignore[override]
        """Name for people of what a deletion costs."""
        return " + ".join(dict.fromkeys(factor.algebra for factor in self.factors))

    @property
    def name(self) -> str:
        """Name for people, e.g. mean, max."""
        return ", ".join(factor.name for factor in self.factors)

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change on the factors, for people."""
        return tuple(dict.fromkeys(words for factor in self.factors for words in factor.changes))

    @property
    def finds_by_value(self) -> bool:
        """True if a removed message is found by its value among those merged into any factor."""
        return any(factor.finds_by_value for factor in self.factors)

    @property
    def merges(self) -> bool:
        """True if the states of all factors can be merged."""
        return all(factor.merges for factor in self.factors)

    @property
    def needs_all(self) -> bool:
        """True if a factor is made of all messages at once."""
        return any(factor.needs_all for factor in self.factors)

    def width(self, message_width: int) -> int:
        """Return the width of the aggregated rows for messages of this width."""
        return sum(factor.width(message_width) for factor in self.factors)

    def state_bytes(self, message_width: int) -> int:
        """Return those of all factors."""
        return sum(factor.state_bytes(message_width) for factor in self.factors)

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the aggregates beside each other, in the order of the factors."""
        parts = zip(self.factors, self.places(state.shape[1]), strict=True)
        return np.concatenate([factor.read(state[:, first:end], count) for factor, (first, end) in parts], axis=1)

    def places(self, width: int) -> list[tuple[int, int]]:
        """Return of each factor the first column of its state in a row of that width, and the one behind its last."""
        fixed = self.width(0)
        message_width = (width - fixed) // max(1, self.width(1) - fixed)
        ends = np.cumsum([factor.width(message_width) for factor in self.factors]).tolist()
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the states of the factors beside each other."""
        return np.concatenate([factor.whole(messages, dst, targets) for factor in self.factors], axis=1)


@dataclass(frozen=True)
class ColumnsSynopsis(Synopsis):
    """A synopsis of some columns of the messages, `first` to `end`, beside others of the same messages."""

    inner: Synopsis
    first: int
    end: int

    @property
    def algebra(self) -> str:  # type: ignore[override]
        """Name for people of what a deletion costs."""
        return self.inner.algebra

    @property
    def name(self) -> str:
        """Name for people, e.g. sum of 3 columns."""
        return f"{self.inner.name} of {self.end - self.first} columns"

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change, for people."""
        return self.inner.changes

    @property
    def finds_by_value(self) -> bool:
        """True if a removed message is found by its value among the merged ones."""
        return self.inner.finds_by_value

    def width(self, message_width: int) -> int:
        """Return the width of the aggregated rows, whatever that of the messages is."""
        return self.inner.width(self.end - self.first)

    def state_bytes(self, message_width: int) -> int:
        """Return those of the synopsis of the columns."""
        return self.inner.state_bytes(self.end - self.first)

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the aggregates that the state stands for."""
        return self.inner.read(state, count)

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the state of each vertex from these columns of all its messages."""
        return self.inner.whole(messages[:, self.first : self.end], dst, targets[:, self.first : self.end])
