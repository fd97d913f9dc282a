"""What a vertex keeps of the messages it got: synopses, typed by what they can do.

A synopsis is a row of numbers. What is stored is un-normalised; the context (how many, how heavy) is combined on
reading, so that a changed degree costs a read and not a rewrite of old messages. How a synopsis is kept up to date is
up to the Storage: operators/storage/capability.py has the kernels of each type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from gnn.dense import Rows

Kind = Literal["sum", "mean", "max", "min"]


@dataclass(frozen=True)
class Synopsis:
    """Base of all synopses: messages merge into a row, from an identity element, and the row is read with the context.

    Shapes: state (n, width) float32; messages (n, width) float32; count (n,) number of in-edges.
    Invariant: merging is associative and commutative (up to rounding), and merging the identity changes nothing.
    """

    algebra: ClassVar[str]
    """Name for people of what a deletion costs."""

    @property
    def name(self) -> str:
        """Name for people, e.g. weighted sum."""
        raise NotImplementedError

    def width(self, message_width: int) -> int:
        """How wide the rows are that are made of messages of that width."""
        return message_width

    def state_bytes(self, message_width: int) -> int:
        """How many bytes a Storage keeps of it for each vertex, the values of sources apart."""
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
    kind: Literal["sum", "mean"] = "sum"
    weighted: bool = False

    @property
    def name(self) -> str:
        """Name for people: sum, mean, weighted sum, weighted mean."""
        return f"weighted {self.kind}" if self.weighted else self.kind

    def state_bytes(self, message_width: int) -> int:
        """Sums are float64, with a note of 16 bytes."""
        return 8 * message_width + 16

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return sum, or sum / count with 0 where there is none (what is left of a sum there is rounding)."""
        if self.kind == "sum":
            return state
        out = np.zeros_like(state)
        np.divide(state, count[:, None].astype(np.float32), out=out, where=(count > 0)[:, None])
        return out

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the sum of each vertex's messages."""
        out = np.zeros((len(targets), messages.shape[1]), np.float32)
        np.add.at(out, dst, messages)
        return out


@dataclass(frozen=True)
class MonotonicSynopsis(Synopsis):
    """The largest or smallest message, channel by channel: a semilattice, which cannot take back what it was given.

    Contract:
    - a message that does not pass the extremum changes nothing, neither when it comes nor when it goes;
    - an extremum whose last holder goes, with nothing at least as good coming, is *exposed*: that channel is made anew
      from the in-edges. How many messages hold it is kept beside it, so that ties cost nothing.
    NaN passes everything, as in torch. The state is 0 where there are no messages.
    Source: InkStream section II-C1 and algorithm 1 (there the reset is by vertex, and a tie is read anew).
    """

    algebra: ClassVar[str] = "monotonic"
    kind: Literal["max", "min"] = "max"
    weighted: bool = False

    @property
    def name(self) -> str:
        """Name for people: max, min, or of weighted messages."""
        return f"{self.kind} of weighted messages" if self.weighted else self.kind

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
class ProductSynopsis(Synopsis):
    """Several synopses of the same messages, side by side in one row (PyG's `aggr=[...]`)."""

    factors: tuple[InvertibleSynopsis | MonotonicSynopsis, ...]

    @property
    def algebra(self) -> str:  # type: ignore[override]
        """Name for people of what a deletion costs."""
        return " + ".join(dict.fromkeys(factor.algebra for factor in self.factors))

    @property
    def name(self) -> str:
        """Name for people, e.g. mean, max."""
        return ", ".join(factor.name for factor in self.factors)

    def width(self, message_width: int) -> int:
        """How wide the rows are that are made of messages of that width."""
        return sum(factor.width(message_width) for factor in self.factors)

    def state_bytes(self, message_width: int) -> int:
        """Those of all factors."""
        return sum(factor.state_bytes(message_width) for factor in self.factors)

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the aggregates beside each other, in the order of the factors."""
        parts = np.split(state, len(self.factors), axis=1)
        return np.concatenate([f.read(part, count) for f, part in zip(self.factors, parts, strict=True)], axis=1)

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the states of the factors beside each other."""
        return np.concatenate([factor.whole(messages, dst, targets) for factor in self.factors], axis=1)


def synopsis_of(kinds: Kind | tuple[Kind, ...], weighted: bool) -> Synopsis:
    """Return the synopsis of an aggregator's name, or of several names."""
    names = (kinds,) if isinstance(kinds, str) else kinds
    factors = tuple(_one(kind, weighted) for kind in names)
    return factors[0] if isinstance(kinds, str) else ProductSynopsis(factors)


def _one(kind: Kind, weighted: bool) -> InvertibleSynopsis | MonotonicSynopsis:
    if kind == "sum" or kind == "mean":
        return InvertibleSynopsis(kind, weighted)
    return MonotonicSynopsis(kind, weighted)
