"""The edges that an epoch changes, as a TOPOLOGY block brings them to a task's parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from freshet.operators.graph.part_rows import PartRows
from freshet.schema import kept_columns
from freshet.state.block_columns import ADDED_EDGES, CHANGED_EDGES, DELETED_EDGES
from freshet.state.codec import Block


class EdgeChanges(NamedTuple):
    """The changed edges, by the rows of their ends, with the one value of them that messages read.

    Shapes: deleted and added: sources, destinations (n,) int32 and values (n,) float32; changed: the values before and
    those after.
    """

    deleted: tuple[np.ndarray, np.ndarray, np.ndarray]
    changed: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    added: tuple[np.ndarray, np.ndarray, np.ndarray]


_GROUPS = DELETED_EDGES, CHANGED_EDGES, ADDED_EDGES
_KEPT = kept_columns()
_COLUMNS = {
    column.name: [(group.name, group.names[2 + k :: len(_KEPT)]) for group in _GROUPS] for k, column in enumerate(_KEPT)
}


def edge_changes(block: Block, at: PartRows, value: str) -> EdgeChanges:
    """Return the edges of a TOPOLOGY block with this value of theirs."""
    return EdgeChanges(*(_records(block, at, *one) for one in _COLUMNS[value]))  # type: ignore[arg-type]


def _records(block: Block, at: PartRows, group: str, columns: Sequence[str]) -> tuple[np.ndarray, ...]:
    return at.of(block, group, "src"), at.of(block, group, "dst"), *map(block.get, columns)
