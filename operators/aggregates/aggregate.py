"""Interface of a kind of synopsis; each room of this folder exports one `Aggregate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from freshet.gnn.plan import Epilogue
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.gnn.synopses.of_messages import Synopsis
from freshet.operators.aggregates.accumulator import Accumulator
from freshet.operators.aggregates.finishing import Finish
from freshet.operators.aggregates.fold import MessageFold
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.relation import RelationMessages
from freshet.operators.graph.sources import NO_SOURCES, SourceRows
from freshet.operators.telemetry.sum_report import SumReport
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet

S = TypeVar("S", bound=Synopsis)


class SynopsisStore(Protocol):
    """The synopses of one relation in one part, with the edges and values of both ends that they are made of.

    Invariant: `read(v)` is what the relation's synopsis makes of the messages of v's in-edges in this part.
    """

    z: Table
    """(slots, message_width) float32: what each source sends."""

    def merge(
        self, epoch: int, topology: Block, sources: SourceRows, own: Table | None, targets: SourceRows = NO_SOURCES
    ) -> None:
        """Apply an epoch's edge changes and new source values; own rows go to `own`.

        `targets` are new rows of targets, where those have their own.
        """

    def load(
        self, topology: Block, sources: SourceRows, own: Table | None, rows_at_once: int,
        targets: SourceRows = NO_SOURCES,
    ) -> None:  # fmt: skip
        """Apply epoch 0 like `merge`, if possible in passes that each change about `rows_at_once` rows."""

    def touched(self) -> np.ndarray:
        """The slots whose synopses this epoch changed, each once."""

    def read(self, slots: np.ndarray) -> np.ndarray:
        """Synopses, (n, synopsis_width) float32."""

    def finisher(self, epilogue: Epilogue | AttentionEpilogue, own: Table, count: Table) -> Finish:
        """Return a function that UPDATEs and stores rows in one pass, by a layer's epilogue; `count`: in-edges."""

    def in_edges(self, slots: np.ndarray) -> np.ndarray:
        """Return the number of in-edges of these vertices that carry messages in this part, (n,) int32."""

    def clear(self, sources: np.ndarray, targets: np.ndarray) -> None:
        """These slots hold nothing any more."""

    @property
    def report(self) -> SumReport | None:
        """Report on its sums, if it keeps any."""


class MakeStore(Protocol):
    """Makes the store of a relation in the parts of a Storage's task."""

    def __call__(
        self, tables: TableSet, lists: EdgeLists, relation: RelationMessages, place: str, z: Table | None = None
    ) -> SynopsisStore:
        """`place` says in errors where it is; `z` has what sources send, where another store keeps that table."""


# merge(index, partial, slots, out, shifts, columns): puts these columns of the synopsis of each slot into `out`, made
# of the rows `index[slot, part]` of its part in `partial`, part by part, where -1 is none. `shifts` are those of slots
# and of rows. Where the order of merging matters: blocks come in the order of their senders (operators/stage.py).
MergePartials = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, tuple[int, int], tuple[int, int]], None]


@dataclass(frozen=True)
class Aggregate(Generic[S]):
    """Implementation of one kind of synopsis: in Storages, in Tails, and in a pass over a whole graph."""

    store: MakeStore
    """Keeps the synopses of a relation."""
    merger: Callable[[S], MergePartials]
    """How a tail makes one synopsis of the partials of several parts."""
    accumulator: Callable[[S, int, int], Accumulator]
    """Room in a full pass for messages of that width to so many destinations."""
    accumulator_bytes: Callable[[S, int], int]
    """Of one destination in that room."""
    message_fold: Callable[[TableSet, str, int, S], MessageFold] | None = None
    """Keeps it of messages of that width that others bring, beside other synopses; None where it reads more of an edge
    than a row."""
    made_bytes: Callable[[S], int] = lambda _: 0
    """Of one message while it is made."""
    spills: bool = False
    """A full pass can move its rows to a cold store and back: they are sums of weighted messages."""

    def fold_of(self, tables: TableSet, name: str, width: int, synopsis: S) -> MessageFold:
        """Return what keeps it of messages of that width; the names of its tables begin with `name`.

        Raises: TypeError for one that is not made of messages alone.
        """
        if self.message_fold is None:
            msg = f"a {type(synopsis).__name__} reads more of an edge than its message: it has no fold of messages"
            raise TypeError(msg)
        return self.message_fold(tables, name, width, synopsis)


Lookup = Callable[[Synopsis], Aggregate[Any]]
"""The registry, for rooms whose synopses are made of others."""
