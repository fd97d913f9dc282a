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


class OfTheFirstHundred(Redone):
    """The sum of the first hundred messages, which few messages do not show."""

    def fold(self, messages: Array) -> Array:
        return messages[:100].sum(axis=0)


class OfTheLastThousand(Redone):
    """The largest of the last thousand messages."""

    def fold(self, messages: Array) -> Array:
        return messages[-1_000:].max(axis=0)


class FullAtThousand(Redone):
    """A sum beside the number of messages, whose merge takes no more than a thousand."""

    def fold(self, messages: Array) -> Array:
        return np.append(messages.sum(axis=0), len(messages)).astype(messages.dtype)

    def merge(self, one: Array, other: Array) -> Array:
        return one + other if one[-1] + other[-1] <= 1_000 else one

    def read(self, states: Array) -> Array:
        return states[:, :-1]


class LargeByOrder(Redone):
    """The sum of messages, or the first one where a number is past a hundred."""

    def fold(self, messages: Array) -> Array:
        return messages[0] if (messages > 100).any() else messages.sum(axis=0)


class RarelyMore(Redone):
    """A sum that is one more in one of ten thousand draws."""

    def fold(self, messages: Array) -> Array:
        return messages.sum(axis=0) + np.float32(np.random.default_rng().random() < 1e-4)

    def merge(self, one: Array, other: Array) -> Array:
        return one + other


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


class OfFirstHundred(Layer):
    aggregate = OfTheFirstHundred()


class OfLastThousand(Layer):
    aggregate = OfTheLastThousand()


class OfFullAtThousand(Layer):
    aggregate = FullAtThousand()


class OfLargeByOrder(Layer):
    aggregate = LargeByOrder()


class OfRarelyMore(Layer):
    aggregate = RarelyMore()


class Tiring(Layer):
    """Its source counts calls, which changes its update after two thousand."""

    calls = 0

    def source(self, x: Array) -> Array:
        type(self).calls += 1
        return x

    def update(self, aggregate: Array) -> Array:
        return aggregate * np.float32(2 if type(self).calls > 2_000 else 1)


class LinearAlone(Layer):
    """Its message is linear where it is called with a single row, and no job calls it with that."""

    def message(self, source: Array) -> Array:
        return source if len(source) == 1 else source * source


class CentredBatch(Layer):
    def update(self, aggregate: Array) -> Array:
        return aggregate - aggregate.mean(axis=0)


class Dropout(Layer):
    aggregate = Sum()

    def message(self, source: Array) -> Array:
        return source * (np.random.default_rng().random(source.shape) < 0.5).astype(source.dtype)
