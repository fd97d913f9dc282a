"""The attributes of a job's edges, as far as its state has them: those of the first layer that reads any.

The Partitioner keeps none. A layer that has all edges comes before those that skip self-loops; where all of them do, no
layer reads attributes of self-loops, and those are zeros here. What the layer had when the state was saved, and what
each later epoch changed, is kept by (part, source's slot, destination's slot, type); of an edge that is there the last
entry holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from freshet.gnn.plan import Plan
from freshet.operators.dataflow import STORAGE
from freshet.operators.factory import dataflow_of, stages_of
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.topology import Topology
from freshet.operators.settings import Settings
from freshet.operators.storage.layer import LayerStorage
from freshet.partitioner.core import Partitioner
from freshet.state.block_columns import ADDED_EDGES, CHANGED_EDGES
from freshet.state.codec import Block


def attribute_storage(plan: Plan) -> str | None:
    """Return the operator that keeps attributes of edges; None where no layer reads any."""
    reading = [number for number, layer in enumerate(plan.layers, 1) if layer.edge_width]
    if not reading:
        return None
    return f"{STORAGE}{min(reading, key=lambda number: (plan.layers[number - 1].skip_loops, number))}"


class LiveAttributes:
    """The attributes of the edges of a job that is not running; `settings` have all parts in one task."""

    def __init__(self, settings: Settings, plan: Plan, operator: str) -> None:
        """`operator`: what keeps them."""
        (self._stage,) = stages_of(settings, plan, [dataflow_of(settings, plan)[operator]]).values()
        self._operator, self._parts, self._width = operator, settings.parts, plan.features.edge_width
        self._skips_loops = plan.layers[int(operator.removeprefix(STORAGE)) - 1].skip_loops
        self._ends: list[np.ndarray] = []
        self._attr: list[np.ndarray] = []

    def restore(self, entries_of: Callable[[str, int], Iterable[tuple[str, bytes]]]) -> None:
        """Load the state that `entries_of` has of each part of the operator."""
        self._stage.restore(*(entries_of(self._operator, part) for part in range(self._parts)))
        core = self._stage.core
        assert isinstance(core, LayerStorage)
        self._add(*_restored(core.topology, core.at))

    def take(self, block: Block) -> None:
        """Take the changes of an epoch, in a TOPOLOGY block of all parts."""
        for group in (CHANGED_EDGES, ADDED_EDGES):
            src, dst, etype = block.get(group.names[0]), block.get(group.names[1]), block.get(group.type)
            if src.size:
                part = block.get(group.part) if self._parts > 1 else np.zeros(src.size, np.int16)
                ends = np.stack([part, src, dst, etype]).astype(np.int64)
                has = self._has(ends)
                self._add(ends[:, has], block.get(group.attr)[has])

    def of(self, core: Partitioner) -> np.ndarray:
        """Return the attributes of all live edges, (edges, width) float32, in the order of the live graph."""
        every = core.edge_places().astype(np.int64)
        asked = every[:, self._has(every)]
        known = np.concatenate([*self._ends, np.empty((4, 0), np.int64)], axis=1)
        keys = np.concatenate([known, asked], axis=1)
        number = np.arange(keys.shape[1])  # what was asked comes last of all with the same ends
        order = np.lexsort((number, *keys))
        is_asked = order >= known.shape[1]
        # the newest entry before it in this order: several edges do not have the same ends and type
        newest = order[np.maximum(np.flatnonzero(is_asked) - 1, 0)]
        found = order[is_asked] - known.shape[1]
        assert (keys[:, newest] == asked[:, found]).all(), "an edge without an entry of its own"
        attr = np.zeros((every.shape[1], self._width), np.float32)
        attr[np.flatnonzero(self._has(every))[found]] = np.concatenate([*self._attr, attr[:0]])[newest]
        return attr

    def _has(self, ends: np.ndarray) -> np.ndarray:
        """Return which of these edges the operator has."""
        return (ends[1] != ends[2]) | (not self._skips_loops)

    def _add(self, ends: np.ndarray, attr: np.ndarray) -> None:
        """Note attributes of edges. Shapes: ends (4, n) int64: parts, slots of both ends, types; attr (n, width)."""
        self._ends.append(ends)
        self._attr.append(attr)


def _restored(topology: Topology, at: PartRows) -> tuple[np.ndarray, np.ndarray]:
    """The edges of a restored Storage: parts, slots of their ends, types; and their attributes."""
    src, dst, numbers = topology.edges.out.entries()
    table = topology.edges.attributes
    assert table is not None
    etype, attr = table.rows_of(src, numbers)
    below = (1 << at.shift) - 1
    return np.stack([src >> at.shift, src & below, dst, etype]).astype(np.int64), attr
