"""The power mean of the neighbours: a mean of powers, of which a root is taken."""

from __future__ import annotations

import numpy as np

from freshet import Layer, Mean, linear, relu

Array = np.ndarray


class PowerMean(Layer):
    """x_v' = (mean_u (relu(W x_u) + 0.1)^p)^(1/p); p is an option. Without neighbours it is 0."""

    aggregate = Mean()

    def source(self, x: Array) -> Array:
        """Return the powers: messages read nothing else, so a change costs a difference of sums."""
        return (relu(linear(x, self.weights["weight"])) + np.float32(0.1)) ** self.options["p"]

    def update(self, aggregate: Array) -> Array:
        """Return the roots."""
        return np.maximum(aggregate, 0) ** (1 / self.options["p"])
