"""Rows that an epoch will touch, read from the disk ahead of it: many at a time, and not one after the other.

Tables of a job with `--memory` may lie on the disk in part (state/memory/pager.py). A kernel that touches a row of such
a page waits for the disk, and can't say ahead which rows it will touch. Where pages were given up lately, this walks
the lists as the kernel will, and asks for all rows at once. Nothing depends on it but time.
"""

from __future__ import annotations

import numpy as np

from freshet.operators.graph.edge_lists import EdgeLists
from freshet.state.adjacency import Lists
from freshet.state.codec import Block
from freshet.state.table import Table


def read_relation_ahead(lists: EdgeLists, z: Table, edges: Block, sources: np.ndarray) -> None:
    """Read ahead what the messages of a relation touch: lists at both ends, the rows of sources and those of targets.

    `z` has the rows of sources; `sources` (n,) int32 are those that send other ones.
    """
    if not lists.out.pool.memory.may_be_away:
        return
    src, dst = lists.changed_ends(edges)
    senders = np.concatenate([sources, src])
    z.read_ahead(senders)
    lists.out.head.read_ahead(senders)
    lists.inn.head.read_ahead(dst)
    _read_entries_ahead(lists.out, senders)
    _read_entries_ahead(lists.inn, dst)
    lists.targets.read_ahead(np.concatenate([dst, _ends_of(lists, sources)]))


def _read_entries_ahead(lists: Lists, rows: np.ndarray) -> None:
    _, places = lists.places(rows)
    for table in lists.pools:
        table.read_ahead(places)


def _ends_of(lists: EdgeLists, sources: np.ndarray) -> np.ndarray:
    """Return the rows of the targets of these sources' edges."""
    of, places = lists.out.places(sources)
    part = sources[of].astype(np.int64) >> lists.out.head.part_shift
    return (part << lists.inn.head.part_shift) + lists.out.pool.data[places]
