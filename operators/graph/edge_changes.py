"""The edges that an epoch changes, as a TOPOLOGY block brings them to a task's parts."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.schema import kept_columns
from freshet.state.block_columns import ADDED_EDGES, CHANGED_EDGES, DELETED_EDGES, EdgeGroup
from freshet.state.codec import Block

SomeEdges: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Reweighted: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class EdgeChanges(NamedTuple):
    """The changed edges, by the rows of their ends, with the one value of them that messages read.

    Shapes: deleted and added: sources, destinations (n,) int32, values (n,) float32 and tags (n,) int32, by which
    edges with keys are known in lists, or (0,) where edges have none; changed: the values before and those after.
    """

    deleted: SomeEdges
    changed: Reweighted
    added: SomeEdges


_DELETED, _CHANGED, _ADDED = (group.name for group in (DELETED_EDGES, CHANGED_EDGES, ADDED_EDGES))
_ROWS = DELETED_EDGES.row, CHANGED_EDGES.row, ADDED_EDGES.row
_KEPT = kept_columns()
_NAMES = [column.name for column in _KEPT]
# By value, its columns in the three groups of records.
_COLUMNS = {
    column.name: [group.names[2 + k :: len(_KEPT)] for group in (DELETED_EDGES, CHANGED_EDGES, ADDED_EDGES)]
    for k, column in enumerate(_KEPT)
}


_ENDS, _NUMBERS = frozen(np.empty(0, np.int32)), frozen(np.empty(0, np.float32))
_NONE = _ENDS, _ENDS, _NUMBERS, _ENDS
NO_CHANGES = EdgeChanges(_NONE, (_ENDS, _ENDS, _NUMBERS, _NUMBERS, _ENDS), _NONE)


def value_now(block: Block, group: EdgeGroup, value: str) -> np.ndarray:
    """Return a value that the edges of a group have once the epoch is over, (n,) float32."""
    return block.get(group.names[_NAMES.index(value) - len(_NAMES)])


def edge_changes(block: Block, sources: PartRows, targets: PartRows, value: str) -> EdgeChanges:
    """Return the edges of a TOPOLOGY block with this value of theirs."""
    if not block.columns:
        return NO_CHANGES
    of, to, get, columns = sources.of, targets.of, block.get, block.columns
    (gone,), (before, after), (come,) = _COLUMNS[value]
    (gone_row, changed_row, added_row), (deleted, changed, added) = _ROWS, NO_CHANGES
    # most epochs of few events have one of these, and each layer reads them
    if f"{_DELETED}_src" in columns:
        deleted = of(block, _DELETED, "src"), to(block, _DELETED, "dst"), get(gone), columns.get(gone_row, _ENDS)
    if f"{_CHANGED}_src" in columns:
        changed = (
            of(block, _CHANGED, "src"),
            to(block, _CHANGED, "dst"),
            get(before),
            get(after),
            columns.get(changed_row, _ENDS),
        )
    if f"{_ADDED}_src" in columns:
        added = of(block, _ADDED, "src"), to(block, _ADDED, "dst"), get(come), columns.get(added_row, _ENDS)
    return EdgeChanges(deleted, changed, added)
