"""The edges that an epoch changes, as a TOPOLOGY block brings them to a task's parts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.operators.graph.part_rows import PartRows
from freshet.state.block_columns import ADDED_EDGES, CHANGED_EDGES, DELETED_EDGES, EdgeGroup
from freshet.state.codec import Block


class EdgeChanges(NamedTuple):
    """The changed edges, by the rows of their ends, with what they carry.

    Shapes: deleted and added: sources, destinations (n,) int32 and values (n,) float32; changed: the values before and
    those after.
    """

    deleted: tuple[np.ndarray, np.ndarray, np.ndarray]
    changed: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    added: tuple[np.ndarray, np.ndarray, np.ndarray]


def edge_changes(block: Block, at: PartRows) -> EdgeChanges:
    """Return the edges of a TOPOLOGY block."""
    return EdgeChanges(*(_records(block, at, group) for group in (DELETED_EDGES, CHANGED_EDGES, ADDED_EDGES)))  # type: ignore[arg-type]


def _records(block: Block, at: PartRows, group: EdgeGroup) -> tuple[np.ndarray, ...]:
    return at.of(block, group.name, "src"), at.of(block, group.name, "dst"), *map(block.get, group.names[2:])
