"""Contents of the Partitioner, for people, for `freshet export` and for scripts/tools/partition.py."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.kinds import NO_MIRROR, Kinds
from freshet.partitioner import graph_tables as t
from freshet.partitioner.edge_types import EdgeTypes
from freshet.partitioner.events import NO_TS
from freshet.partitioner.id_lookup import ids_of_rows
from freshet.partitioner.ids import Ids
from freshet.partitioner.slots import slot_of
from freshet.schema import EdgeValues


@dataclass(frozen=True, slots=True)
class PlacedGraph:
    """All live vertices and edges.

    Shapes: ids n; keys, master, slot (n,), slot the row in the master's part; src, dst (e,) int64 positions in ids;
    values e; etype, part (e,), etype into `types`; ts (e,) int64, NO_TS without, None: no edge has any; kind (n,)
    int32.
    """

    ids: Ids
    keys: np.ndarray
    master: np.ndarray
    slot: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    values: EdgeValues
    etype: np.ndarray
    part: np.ndarray
    types: tuple[str, ...]
    ts: np.ndarray | None = None
    kind: np.ndarray | None = None
    edge_keys: Ids | None = None
    """Keys of edges, NO_KEY or "" of an edge without one; None where edges have none."""
    kinds: Kinds | None = None
    """None: vertices have no kinds. Else etype is the relation."""

    def without_mirrors(self) -> PlacedGraph:
        """Return the graph without the edges that follow others by themselves, since their relation mirrors one."""
        if self.kinds is None:
            return self
        mirrors = np.array([one.mirrors != NO_MIRROR for one in self.kinds.relations])
        kept = np.flatnonzero(~mirrors[self.etype])
        if kept.size == len(self.etype):
            return self
        return replace(
            self,
            src=self.src[kept],
            dst=self.dst[kept],
            values=self.values[kept],
            etype=self.etype[kept],
            part=self.part[kept],
            ts=None if self.ts is None else self.ts[kept],
            edge_keys=None if self.edge_keys is None else self.edge_keys.take(kept),
        )


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """Quality of a partition.

    Units: replication_factor rows per vertex; cut_share of the edges have their ends mastered in different parts;
    balances are the fullest part's load over the mean; split_share of the vertices have in-edges outside their part.
    """

    parts: int
    vertices: int
    edges: int
    replication_factor: float
    cut_share: float
    vertex_balance: float
    edge_balance: float
    split_share: float

    def to_dict(self) -> dict[str, float]:
        """Return the JSON form."""
        return asdict(self)


def live_graph(tables: t.GraphTables, id_kind: str, types: EdgeTypes, kinds: Kinds | None = None) -> PlacedGraph:
    """Read the graph out of the tables."""
    rows = tables.live_vertices()
    place = np.full(tables.scalar(t.VERTEX_ROWS) + 1, -1, np.int64)
    place[rows] = np.arange(rows.size)
    keys, ids = tables.vertex_keys()[rows], ids_of_rows(tables, rows, id_kind)
    edges = tables.live_edges()
    edge = tables.edge.data[edges]
    master = tables.vertex.data[rows, t.MASTER]
    etype, names = types.of_edges(edge[:, t.TYPE])
    return PlacedGraph(
        ids,
        keys,
        master,
        tables.vertex.data[rows, t.SLOTS + (0 if tables.is_sparse else master)],
        place[edge[:, t.SRC]],
        place[edge[:, t.DST]],
        tables.values_of(edges),
        etype,
        edge[:, t.PART],
        names,
        _times_of(tables, edges),
        None if kinds is None else tables.vertex.data[rows, t.KIND],
        tables.keys_of(edges),
        kinds,
    )


def _times_of(tables: t.GraphTables, edges: np.ndarray) -> np.ndarray | None:
    if not tables.is_timed:
        return None
    times = tables.times.data[edges]
    return np.where(times == t.NEVER, NO_TS, times)


def edge_places(tables: t.GraphTables) -> np.ndarray:
    """Return where each live edge is: part, slots of both ends there, number within its pair, and code of its type.

    Shapes: (5, edges) int32; see `Partitioner.edge_places`.
    """
    rows = tables.live_edges().astype(np.int64)
    out = np.empty((5, rows.size), np.int32)
    _list_places(tables.view, rows, out)
    return out


@kernel
def _list_places(g: t.GraphView, rows: np.ndarray, out: np.ndarray) -> None:
    edge = g.edge.data
    for i in range(len(rows)):
        part = np.int64(edge[rows[i], t.PART])
        out[0, i], out[4, i] = part, edge[rows[i], t.TYPE]
        out[3, i] = rows[i] if g.key_kind else edge[rows[i], t.TYPE]
        out[1, i] = slot_of(g, np.int64(edge[rows[i], t.SRC]), part)
        out[2, i] = slot_of(g, np.int64(edge[rows[i], t.DST]), part)


def _balance(loads: np.ndarray) -> float:
    return float(loads.max() / loads.mean()) if loads.any() else 1.0


def partition_stats(tables: t.GraphTables) -> PartitionStats:
    """Measure the partition as it is now."""
    parts = tables.loads
    rows, edges = tables.live_vertices(), tables.live_edges()
    vertex = tables.vertex.data
    edge = tables.edge.data[edges]
    cut = vertex[edge[:, t.SRC], t.MASTER] != vertex[edge[:, t.DST], t.MASTER]
    return PartitionStats(
        len(parts),
        int(rows.size),
        int(edges.size),
        float(parts[:, t.PART_ROWS].sum() / max(1, rows.size)),
        float(cut.mean()) if edges.size else 0.0,
        _balance(parts[:, t.MASTERS]),
        _balance(parts[:, t.PART_EDGES]),
        float((vertex[rows, t.AWAY] > 0).mean()) if rows.size else 0.0,
    )
