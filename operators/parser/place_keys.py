"""Keys of edges by the places of their records, for `--edge-key offset`.

A key has, from its highest bit, 15 bits of the source and the partition, 40 of the offset, and 8 that count the edges
of one message from one vertex to another. The number of the source stands mirrored, so that sources that are added
later change no key; the partition begins at the other end of the 15 bits.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from freshet.partitioner.events import OP_ADD_EDGE, Events
from freshet.partitioner.ids import INT, NO_KEY, Ids

_PLACE_BITS, _OFFSET_BITS, _SAME_BITS = 15, 40, 8
SAME_MAX = 1 << _SAME_BITS
SOURCES_MAX = 1 << _PLACE_BITS


def partitions_max(sources: int) -> int:
    """Return the number of partitions that a source may have, by the number of sources."""
    return 1 << max(0, _PLACE_BITS - (sources - 1).bit_length())


def with_place_keys(events: Events, sources: int) -> tuple[Events, np.ndarray]:
    """Return the events with keys by their places, and (n,) bool, which of them have none left.

    The events are of whole records of one partition. Past SAME_MAX edges from one vertex to another in a message no
    key is left.

    Raises: ValueError for a partition or an offset that is too large.
    """
    adds = events.op == OP_ADD_EDGE
    if not adds.any():
        return events, np.zeros(len(events), bool)
    offset, most = events.position - 1, partitions_max(sources)
    if offset.max() >> _OFFSET_BITS or events.end_partition >= most:
        msg = (
            f"--edge-key offset: expected offsets below 2**{_OFFSET_BITS} and partitions below {most} beside {sources} "
            f"sources, got offset {offset.max()} of partition {events.end_partition}"
        )
        raise ValueError(msg)
    place = int(f"{events.end_source:0{_PLACE_BITS}b}"[::-1], 2) | events.end_partition
    same = _same_before(events, np.flatnonzero(adds))
    keys = place << (_OFFSET_BITS + _SAME_BITS) | offset << _SAME_BITS | same
    return events.with_keys(Ids.of_ints(np.where(adds, keys, NO_KEY))), same >= SAME_MAX


def _same_before(events: Events, rows: np.ndarray) -> np.ndarray:
    """(n,) int64, for each of the rows how many before it add an edge of the same ends and type in the same message."""
    same, at = np.zeros(len(events), np.int64), events.position[rows]
    repeats = np.flatnonzero(at[1:] == at[:-1])
    if not len(repeats):
        return same
    rows = rows[np.union1d(repeats, repeats + 1)]
    columns = [events.etype[rows], *(_codes(ids.take(rows)) for ids in (events.a, events.b)), events.position[rows]]
    order = np.lexsort(columns)  # stable
    begins = np.ones(len(rows), bool)
    begins[1:] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
    count = np.arange(len(rows))
    same[rows[order]] = count - np.maximum.accumulate(np.where(begins, count, 0))
    return same


def _codes(ids: Ids) -> np.ndarray:
    """(n,) integers that are equal where the ids are."""
    if ids.kind == INT:
        return ids.ints
    ids = ids.compact()
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ids.offsets)), pa.py_buffer(np.ascontiguousarray(ids.data))]
    texts = pa.Array.from_buffers(pa.large_binary(), len(ids), buffers)
    return texts.dictionary_encode().indices.to_numpy()
