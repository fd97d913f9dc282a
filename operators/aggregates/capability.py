"""What a layer's synopsis can do decides which kernels keep it: the one place that a new capability is added to.

A capability brings a `SynopsisStore` for its Storages and the merging of partials for its tails. Where the order of
merging matters, the capability says which it is; blocks come to it in the order of their senders (operators/stage.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from freshet.gnn.plan import Epilogue, LayerPlan
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.gnn.synopses.of_messages import (
    GatedSynopsis,
    InvertibleSynopsis,
    MomentsSynopsis,
    MonotonicSynopsis,
    ProductSynopsis,
    Synopsis,
)
from freshet.gnn.synopses.softmax import SoftmaxSynopsis
from freshet.operators.aggregates.finishing import Finish
from freshet.operators.aggregates.fold_store import FoldStore, merger_of
from freshet.operators.aggregates.sums.store import SumStore
from freshet.operators.graph.sources import Sources
from freshet.operators.graph.topology import Topology
from freshet.operators.telemetry.sum_report import SumReport
from freshet.state.codec import Block
from freshet.state.table import Table, TableSet


class SynopsisStore(Protocol):
    """The synopses of one layer in one part, with the edges and source values that they are made of.

    Invariant: `read(v)` is what the layer's synopsis makes of the messages of v's in-edges in this part.
    """

    z: Table
    """(slots, message_width) float32: what each source sends."""

    def merge(self, epoch: int, topology: Block, sources: Sources, own: Table | None) -> None:
        """Apply an epoch's edge changes and new source values; own rows go to `own`."""

    def load(self, topology: Block, sources: Sources, own: Table | None, rows_at_once: int) -> None:
        """Apply epoch 0 as `merge` does, in passes that each change about so many rows, where that can be."""

    def touched(self) -> np.ndarray:
        """The slots whose synopses this epoch changed, each once."""

    def read(self, slots: np.ndarray) -> np.ndarray:
        """Synopses, (n, synopsis_width) float32."""

    def finisher(self, epilogue: Epilogue | AttentionEpilogue, own: Table, count: Table) -> Finish:
        """What UPDATEs and stores rows in one pass, by an epilogue of the layer; `count` are numbers of in-edges."""

    def in_edges(self, slots: np.ndarray) -> np.ndarray:
        """How many in-edges of these vertices carry messages in this part, (n,) int32."""

    def clear(self, slots: np.ndarray) -> None:
        """These slots hold nothing any more."""

    @property
    def report(self) -> SumReport | None:
        """What its sums have shown, where it keeps sums."""


class Capability(NamedTuple):
    """What Storages and tails need of a kind of synopsis.

    `merge_partials(index, partial, slots, out, slot_shift, row_shift)` puts the synopsis of each slot into `out`: that
    of the rows `index[slot, part]` of its part in `partial`, part by part, where -1 is none.
    """

    store: Callable[[TableSet, Topology, LayerPlan, str], SynopsisStore]
    merge_partials: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int, int], None]


def capability_of(synopsis: Synopsis) -> Capability:
    """The kernels for a layer's synopsis.

    Raises: TypeError for one that nothing here keeps.
    """
    if isinstance(synopsis, InvertibleSynopsis):
        return Capability(SumStore, merger_of(synopsis))
    of_messages = MonotonicSynopsis | MomentsSynopsis | ProductSynopsis | SoftmaxSynopsis | GatedSynopsis
    if isinstance(synopsis, of_messages | NetworkSynopsis):
        return Capability(FoldStore, merger_of(synopsis))
    msg = f"no storage keeps a {type(synopsis).__name__}; the synopses are those of gnn/synopses/of_messages.py"
    raise TypeError(msg)
