"""Written layers whose declarations are wrong, each in one way."""

from __future__ import annotations

import numpy as np

from freshet import Layer, Redone, Sum

Array = np.ndarray


class MeanOfMeans(Redone):
    def fold(self, messages: Array) -> Array:
        return messages.mean(axis=0)

    def merge(self, one: Array, other: Array) -> Array:
        return (one + other) / 2  # forgets how many messages each has


class AddedLargest(Redone):
    def fold(self, messages: Array) -> Array:
        return messages.max(axis=0)

    def merge(self, one: Array, other: Array) -> Array:
        return one + other


class Shiftless(Redone):
    """Messages [score | value]; states [largest score | sum of weights | sum of weighted values]."""

    def fold(self, messages: Array) -> Array:
        largest = messages[:, 0].max()
        weights = np.exp(messages[:, 0] - largest)
        return np.array([largest, weights.sum(), (weights * messages[:, 1]).sum()], messages.dtype)

    def merge(self, one: Array, other: Array) -> Array:
        return np.array([max(one[0], other[0]), one[1] + other[1], one[2] + other[2]])

    def read(self, states: Array) -> Array:
        return states[:, 2:] / np.maximum(states[:, 1:2], 1e-30)


class Doubled(Redone):
    def fold(self, messages: Array) -> Array:
        state = np.zeros_like(messages[0])
        for message in messages:
            state = 2 * state + message
        return state

    merge = None


class OfTheFirstFour(Redone):
    """The sum of the first four messages, of which tiny cases have no fifth."""

    def fold(self, messages: Array) -> Array:
        return messages[:4].sum(axis=0)


class SortedApart(Redone):
    """The sum of products of two channels, in an order of its own that takes messages to pieces."""

    def fold(self, messages: Array) -> Array:
        apart = np.sort(messages, axis=0)
        return (apart[:, :1] * apart[:, 1:]).sum(axis=0)

    def merge(self, one: Array, other: Array) -> Array:
        return one + other


class OfMeans(Layer):
    aggregate = MeanOfMeans()


class OfAddedLargest(Layer):
    aggregate = AddedLargest()


class OfShiftless(Layer):
    aggregate = Shiftless()


class OfDoubled(Layer):
    aggregate = Doubled()


class OfFirstFour(Layer):
    aggregate = OfTheFirstFour()


class OfSortedApart(Layer):
    aggregate = SortedApart()


class CentredBatch(Layer):
    def update(self, aggregate: Array) -> Array:
        return aggregate - aggregate.mean(axis=0)


class Dropout(Layer):
    aggregate = Sum()

    def message(self, source: Array) -> Array:
        return source * (np.random.default_rng().random(source.shape) < 0.5).astype(source.dtype)
