"""Aggregates that are recomputed from all messages wherever one comes, goes or changes; those of a user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.of_messages import Synopsis


class RedoneFunctions(Protocol):
    """The functions of such an aggregate."""

    name: str
    """Of the layer that has it."""

    @property
    def merges(self) -> bool:
        """True if states of several parts can be merged."""

    def fold(self, messages: Rows) -> Rows:
        """Return the state of all messages of one vertex. Shapes: (n, width) to (state,) float32, n at least 1."""

    def merge(self, one: Rows, other: Rows) -> Rows:
        """Return the state of two states, (state,) float32.

        Raises: an error that says what to do where it has no such function.
        """

    def read(self, states: Rows) -> Rows:
        """Return the aggregates of states. Shapes: (n, state) to (n, width) float32."""


class OfAllMessages(Synopsis):
    """Base of synopses whose state is made of all messages of a vertex at once.

    Shapes: state (n, width) float32, all 0 without messages, else above 0 in its first column.
    """

    algebra: ClassVar[str] = "recomputed"

    @property
    def changes(self) -> tuple[str, ...]:
        """Describe the effect of a change, for people."""
        return ("a changed edge or source recomputes the aggregate from all in-edges",)

    @property
    def needs_all(self) -> bool:
        """True: all messages of a vertex make a state."""
        return True

    def state_bytes(self, message_width: int) -> int:
        """Return the bytes of a state in float32."""
        return 4 * self.width(message_width)

    def whole(self, messages: Rows, dst: np.ndarray, targets: Rows) -> Rows:
        """Return the state of each vertex from all its messages at once."""
        out = np.zeros((len(targets), self.width(messages.shape[1])), np.float32)
        for v in np.unique(dst):
            out[v] = self.fold(messages[dst == v])
        return out

    def fold(self, messages: Rows) -> Rows:
        """Return the state of all messages of one vertex, at least one, in whatever order they come."""
        raise NotImplementedError

    def merge(self, one: Rows, other: Rows) -> Rows:
        """Return the state of the messages of two states, one of which may have none."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class RedoneSynopsis(OfAllMessages):
    """The state that a function makes of all messages of a vertex, in an order that depends on their bits alone.

    Shapes: state (n, 1 + size): [1 | the state], all 0 without messages.
    """

    functions: RedoneFunctions
    size: int
    """Width of what the function makes."""
    made: int
    """Width of the aggregate that is read of it."""

    @property
    def name(self) -> str:
        """Name for people."""
        return f"{self.functions.name}'s own aggregate"

    @property
    def merges(self) -> bool:
        """True unless the user wrote no function for it."""
        return self.functions.merges

    def width(self, message_width: int) -> int:
        """Return the width of a state."""
        return 1 + self.size

    def read(self, state: Rows, count: np.ndarray) -> Rows:
        """Return the aggregates that the states stand for, (n, made) float32; 0 where there are no messages."""
        made = np.array(self.functions.read(np.ascontiguousarray(state[:, 1:])), np.float32)
        made[state[:, 0] == 0] = 0
        return made

    def fold(self, messages: Rows) -> Rows:
        """Return the state of all messages of one vertex, (1 + size,) float32."""
        return np.concatenate([np.ones(1, np.float32), self.functions.fold(in_order(messages))])

    def merge(self, one: Rows, other: Rows) -> Rows:
        """Return the state of the messages of two states, (1 + size,) float32."""
        if not one[0] or not other[0]:
            return one if one[0] else other
        return np.concatenate([np.ones(1, np.float32), self.functions.merge(one[1:].copy(), other[1:].copy())])


def in_order(messages: Rows) -> Rows:
    """Return messages in an order that depends on their bits alone: after a crash, edges may come in another one."""
    rows = np.ascontiguousarray(messages, np.float32)
    return rows[np.argsort(rows.view(np.dtype((np.void, 4 * rows.shape[1]))).ravel(), kind="stable")]
