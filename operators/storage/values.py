"""Values of the model on a Storage's topology: source values, synopses and self inputs, and their UPDATE.

All that depends on the model is here, and in the rows of the operator's `Owner`; the topology (topology.py) is what it
is for any model.
"""

from __future__ import annotations

import numpy as np

from freshet.gnn.plan import LayerPlan
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.graph.row_kernels import gather
from freshet.operators.graph.sources import SourceRows
from freshet.operators.graph.topology import Topology
from freshet.operators.storage.owner import Changed, Owner
from freshet.operators.storage.root_rows import RootRows
from freshet.state.codec import Block
from freshet.state.table import TableSet


class Values:
    """The values of one layer in the parts of a task. Shapes: own (rows, self_width) float32."""

    def __init__(self, tables: TableSet, topology: Topology, layer: LayerPlan, place: str) -> None:
        """`place` says in errors where this is."""
        self._layer = layer
        self.synopses = aggregate_of(layer.synopsis).store(tables, topology.edges, layer, place)
        self.own = tables.add("own", "f4", layer.self_width) if layer.self_width else None
        self._roots = RootRows(layer) if layer.root_width else None
        if self.own is not None:
            topology.at.keep(self.own)

    def after_restore(self) -> None:
        """Other rows have taken the place of all."""
        if self._roots is not None:
            self._roots.clear()

    def merge(self, epoch: int, topology: Block, sources: SourceRows) -> None:
        """Apply an epoch's edge changes, new source values and self inputs."""
        if self._roots is not None:
            self._roots.reserve(len(self.synopses.z.data))
            self._roots.forget(sources.slots)
        self.synopses.merge(epoch, topology, sources, self.own)

    def update(self, owner: Owner, active: np.ndarray, forced: np.ndarray, *, keep_roots: bool, dealt: bool) -> Changed:
        """UPDATE these vertices of `owner`, and store their rows there: those that changed, or are forced.

        `keep_roots`: keep values that depend on self inputs alone for other epochs; `dealt`: see `Owner.finish`.
        """
        layer = self._layer
        if layer.epilogue is not None:
            own = self.synopses.z if self.own is None else self.own
            finisher = self.synopses.finisher(layer.epilogue, own, owner.masters.count)
            return owner.finish(active, forced, finisher, dealt=dealt)
        synopses, context = self.synopses.read(active), owner.read_context(active)
        if self._roots is not None and keep_roots:
            x = layer.update_from_root(synopses, self._roots.read(active, self.synopses.z.data), context)
        else:
            x = layer.update(synopses, self.own_rows(active), context)
        return owner.store(active, x, forced)

    def own_rows(self, slots: np.ndarray) -> np.ndarray:
        """The self inputs of these vertices, (n, self_width) float32, or what they send where those are the same."""
        if self._layer.self_is_message:
            return gather(self.synopses.z.data, slots)
        if self.own is not None:
            return gather(self.own.data, slots)
        return np.empty((slots.size, 0), np.float32)

    def clear(self, gone: np.ndarray) -> None:
        """These slots hold nothing any more."""
        if not gone.size:
            return
        self.synopses.clear(gone, gone)
        if self._roots is not None:
            self._roots.forget(gone)
        if self.own is not None:
            self.own.clear_rows(gone)
