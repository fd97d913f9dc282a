"""Aggregates that written layers name: those of the house by class, and the base of one's own."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

Array = np.ndarray


class AggregateOfMessages:
    """Base of what a vertex makes of the messages to it; 0 where there are none."""


class SumOf(AggregateOfMessages):
    """The sum of the messages, column by column."""

    kind: Literal["sum", "mean", "max"] = "sum"


class MeanOf(SumOf):
    """The mean of the messages, column by column."""

    kind = "mean"


class MaxOf(SumOf):
    """The maximum of the messages, column by column; NaN exceeds everything."""

    kind = "max"


class SoftmaxOf(AggregateOfMessages):
    """Per head the sum of values, each times exp(score) by the sum of these over the messages.

    `message` returns two arrays, the scores, (n, heads), and the values, (n, heads * channels).
    """

    def __init__(self, heads: int = 1) -> None:
        """Take the number of heads.

        Raises: ValueError below 1.
        """
        if heads < 1:
            msg = f"Softmax: got heads {heads}, expected at least 1"
            raise ValueError(msg)
        self.heads = heads


class Redone(AggregateOfMessages):
    """Base of an aggregate of one's own, which is computed once more wherever a message comes, goes or changes.

    A vertex whose in-edges lie in several parts has a state in each of them, which `merge` makes one. Without `merge`
    a job needs one part, or a partitioner that splits no vertex.
    """

    merge: Any = None
    """merge(one, other): the state of the messages of two states. Shapes: (state,) float32 each."""

    def fold(self, messages: Array) -> Array:
        """Return the state of all messages of one vertex, at least one, in whatever order they come.

        Shapes: messages (n, width) float32, result (state,).
        """
        raise NotImplementedError

    def read(self, states: Array) -> Array:
        """Return the aggregates of states, by default the states themselves. Shapes: (n, state) to (n, width)."""
        return states
