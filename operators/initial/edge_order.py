"""The order in which a snapshot's edges reach the Storages: by source, then destination.

So sources are read in order, and edges may be merged in several passes, each for some of the destinations: what a sum
adds up, and where a list has its entries, stays the same.
"""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.operators.graph.part_rows import frozen
from freshet.state.block_columns import ADDED_EDGES, Columns
from freshet.state.codec import Block, views


@kernel
def _count(slots: np.ndarray, counts: np.ndarray) -> None:
    for slot in slots:
        counts[slot + 1] += 1


@kernel
def _deal(slots: np.ndarray, order: np.ndarray, at: np.ndarray, dealt: np.ndarray) -> None:
    for edge in order:
        slot = slots[edge]
        dealt[at[slot]] = edge
        at[slot] += 1


def edge_order(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """The edges by source slot, of one source by destination slot, and else as they came; (n,) int32.

    Shapes: src, dst (n,) int32, read-only
    """
    order = np.arange(len(src), dtype=np.int32)
    for slots in (dst, src) if len(src) else ():
        counts = np.zeros(int(slots.max()) + 2, np.int64)
        _count(slots, counts)
        dealt = np.empty_like(order)
        _deal(slots, order, np.cumsum(counts), dealt)
        order = dealt
    return order


def in_edge_order(block: Block) -> Block:
    """The TOPOLOGY block with its added edges in that order, those of each relation by themselves."""
    moved: Columns = {}
    for prefix, section in views(block).items():
        order = edge_order(*map(section.get, ADDED_EDGES.names[:2]))
        moved |= {
            prefix + name: frozen(section.columns[name][order])
            for name in (ADDED_EDGES.part, *ADDED_EDGES.names, ADDED_EDGES.type, ADDED_EDGES.row, ADDED_EDGES.attr)
            if name in section.columns
        }
    return Block(block.header, block.columns | moved)
