"""Written layers whose declarations hold, and of which a solver proves something."""

from __future__ import annotations

import numpy as np

from freshet import Layer, Redone

Array = np.ndarray


class Sum(Redone):
    def fold(self, messages: Array) -> Array:
        return messages.sum(axis=0)

    def merge(self, one: Array, other: Array) -> Array:
        return one + other


class Total(Layer):
    aggregate = Sum()
