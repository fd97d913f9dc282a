"""The net change of an epoch: records by group, each with the part that it goes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

# Positions in `n`.
BORN, DEAD, REPLICA, FREED, RETIRED, DELETED, REWEIGHTED, NEW, CONTEXT, SPLIT, WHOLE, FEATURES, DROPS = range(13)


class Out(NamedTuple):
    """Scratch memory for the records, by column; `n` counts them. Slots are those in the part of column 0.

    Columns of the int32 arrays (columns, capacity); weights are float32 bits:
        m: part, slot, vertex row; d: part, slot; f: part, slot; s, u: part, slot
        r: replica's part, slot, master's part, slot; rd: master's part, slot, replica's part
        gone, add: part, source, destination, weight; rew: part, source, destination, old weight, new weight
        c: part, slot, in-edges, weight of the self-loop; x0: part, slot, row of x (< 0: zeros)
        drop: vertex row, part; added: edge row
    """

    n: np.ndarray  # (16,) int64
    m: np.ndarray
    m_key: np.ndarray  # int64
    d: np.ndarray
    d_key: np.ndarray  # int64
    r: np.ndarray
    f: np.ndarray
    rd: np.ndarray
    gone: np.ndarray
    rew: np.ndarray
    add: np.ndarray
    c: np.ndarray
    c_degree: np.ndarray  # float64
    s: np.ndarray
    u: np.ndarray
    x0: np.ndarray
    drop: np.ndarray
    added: np.ndarray


def make_out(vertices: int, edges: int, parts: int) -> Out:
    """Memory for that many touched vertices and edges."""

    def ints(columns: int, rows: int) -> np.ndarray:
        return np.empty((columns, rows), np.int32)

    replicas = 2 * edges if parts > 1 else 0  # a replica comes and goes with an edge end
    changing = vertices if parts > 1 else 0
    return Out(
        n=np.zeros(16, np.int64),
        m=ints(3, vertices),
        m_key=np.empty(vertices, np.int64),
        d=ints(2, vertices),
        d_key=np.empty(vertices, np.int64),
        r=ints(4, replicas),
        f=ints(2, replicas),
        rd=ints(3, replicas),
        gone=ints(4, edges),
        rew=ints(5, edges),
        add=ints(4, edges),
        c=ints(4, vertices),
        c_degree=np.empty(vertices, np.float64),
        s=ints(2, changing),
        u=ints(2, changing),
        x0=ints(3, vertices),
        drop=ints(2, vertices + replicas),
        added=np.empty(edges, np.int32),
    )


@dataclass(frozen=True, slots=True)
class EpochChange:
    """What an epoch's events come to. Its arrays are the Partitioner's memory: good until the next `apply`.

    Shapes: x (k, in_width) float32, the features that x0 records point into; names (offsets, bytes) of the ids of the
    born vertices in record order, for string ids.
    Invariant: the order of records is a function of the events since the start, not of tables' capacities.
    """

    out: Out
    x: np.ndarray
    names: tuple[np.ndarray, np.ndarray] | None
    rejected: list[tuple[int, str]]  # event, reason

    def count(self, group: int) -> int:
        """Records of a group (BORN, DEAD, ...)."""
        return int(self.out.n[group])
