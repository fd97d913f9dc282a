"""The mean of the k largest messages, channel by channel: an aggregate of one's own, made where anything changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet import Layer, Redone, linear

Array = np.ndarray


class Largest(Redone):
    """The mean of the k largest values of each channel, or of all if there are fewer."""

    def __init__(self, k: int) -> None:
        """Take how many."""
        self.k = k

    def fold(self, messages: Array) -> Array:
        """Return the k largest, the largest first, filled up with -infinity; (k * width,)."""
        top = np.sort(messages, axis=0)[::-1][: self.k]
        rest = np.full((self.k - len(top), messages.shape[1]), -np.inf, messages.dtype)
        return np.concatenate([top, rest]).ravel()

    def merge(self, one: Array, other: Array) -> Array:
        """Return the k largest of both."""
        return self.fold(np.concatenate([one.reshape(self.k, -1), other.reshape(self.k, -1)]))

    def read(self, states: Array) -> Array:
        """Return the means."""
        top = states.reshape(len(states), self.k, -1)
        there = np.isfinite(top)
        return np.where(there, top, 0).sum(axis=1) / np.maximum(there.sum(axis=1), 1).astype(states.dtype)


class TopK(Layer):
    """x_v' = the mean of the k largest W x_u, channel by channel; k is an option."""

    @property
    def aggregate(self) -> Any:
        """The aggregate with the layer's k."""
        return Largest(self.options["k"])

    def source(self, x: Array) -> Array:
        """Return W x."""
        return linear(x, self.weights["weight"])
