"""What keeps one synopsis of the messages of a layer, for the rows of a task."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from operators.storage.edge_messages import Edges, Messages, Moves
from state.table import Table


class Fold(Protocol):
    """One synopsis of the messages of a layer, for the rows of a task."""

    def begin(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Begin an epoch that has these sources send `rows[places]` from now on."""

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Unmake messages of the values that the table has."""

    def retarget(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Make messages what they are with the new values of their targets; the table has the old ones yet.

        Those of the moved sources are not there now.
        """

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Merge messages of the values that the table has."""

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch; the rows whose synopses may have changed, each once."""

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`, from column `first` on."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables, with a row per slot."""


class MessageFold(Fold, Protocol):
    """A fold whose messages are rows of sources, whoever makes those rows; it can be told which rows to make anew.

    A fold of a network's messages (edge_networks.py) has them made anew itself, and ends an epoch by `finish`.
    """

    def worn(self, edges: Edges) -> np.ndarray:
        """The touched rows that have to be made anew, each once; (n,) int32."""

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Make these rows from the messages that `edges` lists."""

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch as `settle`, where all worn rows were made anew."""


@runtime_checkable
class ExchangingFold(Fold, Protocol):
    """A fold that can change kept messages where they stand, and so reads each of its rows once and not twice."""

    def exchange(self, edges: Edges, kept: Messages, moves: Moves, rows: np.ndarray, serial: int) -> None:
        """Have kept messages, whose weights stay, be what the new values of their sources make of them.

        The table has the old values. Messages are in the order of the moves.
        """
