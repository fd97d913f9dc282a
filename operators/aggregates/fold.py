"""Folds: each keeps one synopsis of a layer's messages, for the rows of a task."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from freshet.gnn.plan import Epilogue
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.operators.aggregates.finishing import Finish
from freshet.operators.graph.edge_messages import Edges, Messages, Moves, Turns
from freshet.operators.graph.edge_table import EdgeTable
from freshet.state.table import Table


class Fold(Protocol):
    """One synopsis of the messages of a layer, for the rows of a task."""

    def leave(
        self, edges: Edges, gone: Messages, kept: Messages, moves: Moves, rows: np.ndarray, *, same_weights: bool
    ) -> None:
        """Begin an epoch, while the table and the lists have the old values and the edges that stay.

        `kept` are the messages of the moved sources, in the order of the moves, which send `rows[places]` from now on;
        with `same_weights` no weight of theirs changes.
        """

    def arrive(self, edges: Edges, kept: Messages, come: Messages, serial: int) -> np.ndarray:
        """End the epoch with the new values and edges; the rows whose synopses may have changed, each once."""

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`, from column `first` on."""

    def finisher(self, z: Table, own: Table, epilogue: Epilogue | AttentionEpilogue) -> Finish:
        """Return a function that UPDATEs rows by an epilogue of the layer, and stores them, in one pass."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables, with a row per slot of destinations."""

    @property
    def source_tables(self) -> tuple[Table, ...]:
        """Its tables, with a row per slot of sources."""


@runtime_checkable
class TargetFold(Protocol):
    """A fold whose messages read rows of their destinations."""

    def read_targets(self, q: Table, turns: Turns) -> None:
        """Have messages read these rows, and other ones of the destinations that turn in the epoch that begins.

        The table has the new ones when the fold's `leave` is over.
        """


@runtime_checkable
class AttributeFold(Protocol):
    """A fold whose messages read attributes of edges."""

    def read_attributes(self, attributes: EdgeTable) -> None:
        """Have messages whose weights are the numbers of edges in this table."""


class StepwiseFold:
    """Base of folds that take the messages of moved sources back by their old values, and bring them by the new."""

    exchanges = False
    """It can change kept messages where they stand (`exchange`), and so reads each of its rows once and not twice."""
    reads_changes = True
    """It reads messages that come or go, and not only where they go to."""
    source_tables: tuple[Table, ...] = ()
    _exchanged = False

    def __init__(self, *tables: Table) -> None:
        """Take its tables, with a row per slot of destinations."""
        self.tables = tables

    def leave(
        self, edges: Edges, gone: Messages, kept: Messages, moves: Moves, rows: np.ndarray, *, same_weights: bool
    ) -> None:
        """Subtract removed messages, and those that get other values; or exchange the latter at once."""
        self.begin(edges, moves, rows)
        self._exchanged = self.exchanges and same_weights
        if self._exchanged:
            self.exchange(edges, gone, kept, moves, rows)
        else:
            self.take_back(edges, gone, moves.serial)
            self.take_back(edges, kept, moves.serial)

    def arrive(self, edges: Edges, kept: Messages, come: Messages, serial: int) -> np.ndarray:
        """Bring what was kept, and what comes."""
        if not self._exchanged:
            self.bring(edges, kept, serial)
        self.bring(edges, come, serial)
        return self.settle(edges, serial)

    def begin(self, edges: Edges, moves: Moves, rows: np.ndarray) -> None:
        """Begin an epoch that has these sources send `rows[places]` from now on."""
        raise NotImplementedError

    def take_back(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Unmake messages of the values that the table has."""
        raise NotImplementedError

    def exchange(self, edges: Edges, gone: Messages, kept: Messages, moves: Moves, rows: np.ndarray) -> None:
        """Unmake messages that are gone; have kept ones, whose weights stay, be what their sources' new values make.

        The table has the old values. Messages are in the order of the moves.
        """
        raise NotImplementedError

    def bring(self, edges: Edges, messages: Messages, serial: int) -> None:
        """Merge messages of the values that the table has."""
        raise NotImplementedError

    def read(self, edges: Edges, slots: np.ndarray, out: np.ndarray, first: int) -> None:
        """Write synopses to `out`, from column `first` on."""
        raise NotImplementedError

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch; the rows whose synopses may have changed, each once."""
        raise NotImplementedError

    def finisher(self, z: Table, own: Table, epilogue: Epilogue | AttentionEpilogue) -> Finish:
        """Refuse: these have no UPDATE in one pass.

        Raises: TypeError.
        """
        msg = f"a {type(self).__name__} has no UPDATE in one pass for a {type(epilogue).__name__}"
        raise TypeError(msg)


class MessageFold(StepwiseFold):
    """Base of folds whose messages are rows of sources, from any origin; a caller can mark rows to be recomputed.

    A fold of a network's messages (edge_networks.py) recomputes rows itself, and ends an epoch by `finish`.
    """

    def settle(self, edges: Edges, serial: int) -> np.ndarray:
        """Recompute the worn rows; returns the rows whose synopses may have changed, each once."""
        worn = self.worn(edges)
        if worn.size:
            self.remake(edges, worn, serial)
        return self.finish(edges, serial)

    def worn(self, edges: Edges) -> np.ndarray:
        """Return the touched rows that have to be recomputed, each once, (n,) int32; it may empty those without any."""
        raise NotImplementedError

    def remake(self, edges: Edges, rows: np.ndarray, serial: int) -> None:
        """Make these rows from the messages that `edges` lists."""
        raise NotImplementedError

    def finish(self, edges: Edges, serial: int) -> np.ndarray:
        """End the epoch, after all worn rows were recomputed; like `StepwiseFold.settle`."""
        raise NotImplementedError
