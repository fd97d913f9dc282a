"""Products and quantiles of messages as synopses, which no sum of what comes and goes keeps up to date."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.redone import OfAllMessages, in_order

_AT_ONCE = 512  # mantissas of at least 1/2 each, whose product float64 has


class Quantile(BaseModel):
    """The q-quantile of messages, channel by channel: what stands at q (n - 1) of n messages that are sorted.

    Args:
        q: From 0, the smallest message, to 1, the largest; 0.5 and lower is the median. Rounded to float32, as
            in PyG.
        interpolation: What is taken between two messages: the lower or the higher one, the mean of both (midpoint), or
            as much of either as q says (linear).
        fill_value: The quantile of no messages.

    Source: PyG's QuantileAggregation and MedianAggregation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    q: Annotated[float, Field(ge=0, le=1)]
    interpolation: Literal["linear", "lower", "higher", "midpoint"] = "linear"
    fill_value: float = 0.0

    @property
    def name(self) -> str:
        """Name for people, e.g. median, 0.25-quantile."""
        return "median" if (self.q, self.interpolation) == (0.5, "lower") else f"{self.q:g}-quantile"


@dataclass(frozen=True)
class MulSynopsis(OfAllMessages):
    """The product of the messages, channel by channel; 1 without messages.

    Mantissas and exponents are multiplied apart, so that no part of a product leaves float32's range before the whole
    one does.

    Shapes: state (n, 1 + 2 * width): [1 | mantissa | exponent], all 0 without messages.
    Source: PyG's MulAggregation.
    """

    @property
    def name(self) -> str:
        """Name for people."""
        return "product"

    def width(self, message_width: int) -> int:
        """Return the width of a state."""
        return 1 + 2 * message_width

    def fold(self, messages: Rows) -> Rows:
        """Return the state of all messages of one vertex, (1 + 2 * width,) float32."""
        return _product(*np.frexp(in_order(messages).astype(np.float64)))

    def merge(self, one: Rows, other: Rows) -> Rows:
        """Return the state of the messages of two states."""
        if not one[0] or not other[0]:
            return one if one[0] else other
        mantissas, exponents = np.split(np.stack([one, other])[:, 1:].astype(np.float64), 2, axis=1)
        return _product(mantissas, exponents)

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the products, (n, width) float32."""
        return self.read_with(state, None)

    def read_with(self, state: Rows, mine: Rows | None) -> Rows:
        """Return the products of the messages and of one more each, (n, width) float32."""
        mantissa, exponent = np.split(state[:, 1:].astype(np.float64), 2, axis=1)
        mantissa = np.where(state[:, :1] > 0, mantissa, 1)
        with np.errstate(all="ignore"):  # infinities and NaN are results
            times = mantissa if mine is None else mantissa * mine
            return np.ldexp(times, exponent.astype(np.int32)).astype(np.float32)


def _product(mantissas: np.ndarray, exponents: np.ndarray) -> Rows:
    """Return the state of a product. Shapes: both (n, width), n at least 1."""
    total, exponent = np.ones(mantissas.shape[1]), exponents.sum(axis=0)
    with np.errstate(all="ignore"):
        for first in range(0, len(mantissas), _AT_ONCE):
            total, more = np.frexp(total * np.multiply.reduce(mantissas[first : first + _AT_ONCE], axis=0))
            exponent = exponent + more
    return np.concatenate([[1], total, exponent]).astype(np.float32)


@dataclass(frozen=True)
class QuantileSynopsis(OfAllMessages):
    """A quantile of the messages, channel by channel; a number of its own without messages.

    A state has the three sorted messages around the place of the quantile, so that one message more, that of an added
    self-loop, may be put among them. NaN is behind all others, as torch sorts.

    Shapes: state (n, 1 + 3 * width): [number of messages | three of them], all 0 without messages.
    Source: PyG's QuantileAggregation.
    """

    of: Quantile

    @property
    def name(self) -> str:
        """Name for people."""
        return self.of.name

    @property
    def merges(self) -> bool:
        """False: the quantiles of some of the messages do not say that of all."""
        return False

    def width(self, message_width: int) -> int:
        """Return the width of a state."""
        return 1 + 3 * message_width

    def fold(self, messages: Rows) -> Rows:
        """Return the state of all messages of one vertex, (1 + 3 * width,) float32."""
        sorted_ = np.sort(messages + np.float32(0), axis=0)  # zeros of either sign are equal
        ends = [np.full((1, messages.shape[1]), of, np.float32) for of in (-np.inf, np.nan)]
        padded = np.concatenate([ends[0], sorted_, ends[1], ends[1]])
        first = int(self._middle(len(messages)))
        return np.concatenate([[np.float32(len(messages))], padded[first : first + 3].ravel()])

    def merge(self, one: Rows, other: Rows) -> Rows:
        """Return the state of two states, one of which has no messages.

        Raises: ValueError where both have some.
        """
        if one[0] and other[0]:
            msg = f"{self.name} of a vertex whose in-edges lie in several parts, expected all in one"
            raise ValueError(msg)
        return one if one[0] else other

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the quantiles, (n, width) float32."""
        many = state[:, 0].astype(np.int64)
        found = self._between(state, self._three(state), np.maximum(many, 1))
        found[many == 0] = self.of.fill_value
        return found

    def read_with(self, state: Rows, mine: Rows) -> Rows:
        """Return the quantiles of the messages and of one more each, (n, width) float32."""
        low, middle, high = self._three(state)
        first = state[:, :1] == 0
        # of sorted messages and one more, one at a place is that one, if it lies between the two that were there
        at = np.where(first, mine, np.maximum(low, np.fmin(mine, middle)))
        behind = np.where(first, mine, np.maximum(middle, np.fmin(mine, high)))
        return self._between(state, (at, at, behind), state[:, 0].astype(np.int64) + 1)

    def _middle(self, many: np.ndarray | int) -> np.ndarray:
        """Return the place of the second of the three messages: where the quantile of one message more would be."""
        return np.floor(float(np.float32(self.of.q)) * np.asarray(many)).astype(np.int64)

    def _three(self, state: Rows) -> tuple[Rows, Rows, Rows]:
        low, middle, high = np.split(state[:, 1:], 3, axis=1)
        return low, middle, high

    def _between(self, state: Rows, three: tuple[Rows, Rows, Rows], many: np.ndarray) -> Rows:
        """Return what the quantiles of this number of messages take of the three around the middle of a state."""
        point = float(np.float32(self.of.q)) * (many - 1)
        middle = self._middle(state[:, 0].astype(np.int64))
        places = [np.clip(of(point).astype(np.int64) - middle + 1, 0, 2) for of in (np.floor, np.ceil)]
        low, high = (np.stack(three)[place, np.arange(len(place))] for place in places)
        return interpolated(self.of, low, high, (point - np.floor(point))[:, None])


def interpolated(of: Quantile, low: np.ndarray, high: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Return what a quantile takes of the messages around its place; `part` is how far it is from the first of them.

    Shapes: low, high (n, width); part (n, 1); result (n, width) in the type of `low`
    """
    if of.interpolation == "lower":
        return low.copy()
    if of.interpolation == "higher":
        return high.copy()
    with np.errstate(all="ignore"):  # infinities and NaN are results, as in PyG
        if of.interpolation == "midpoint":
            return (0.5 * low + 0.5 * high).astype(low.dtype)
        return (low + (high - low) * part).astype(low.dtype)
