"""Rows in front of layer 1: features, and learned rows behind them, of the graph and of what is tried on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshet.gnn.kinds.learned import LearnedRows, digests_of
from freshet.operators.live_graph import LiveState
from freshet.partitioner.ids import STRING, Ids
from freshet.partitioner.inspection import Inspection, Touched
from freshet.schema import FeatureRows
from freshet.state.block_columns import kind_prefix


class FirstRows:
    """Reads Storage 0 of a job's graph; `try_on` has rows stand in the place of some, until `drop`."""

    def __init__(self, live: LiveState, learned: Sequence[LearnedRows | None]) -> None:
        self._live, self._learned = live, learned
        kinds = live.core.features.kinds
        self._names = [f"{kind_prefix(None if kinds is None else k)}x" for k in range(len(live.core.features.widths))]
        self._tried = np.empty(0, np.int64)
        self._rows: list[np.ndarray] = []

    def of(self, graph: Inspection, kind: int, vertices: np.ndarray) -> np.ndarray:
        """Return the rows of vertices of a kind, (n, width) float32."""
        if not self._tried.size:
            return self._kept(graph, kind, vertices)
        at = np.minimum(np.searchsorted(self._tried, vertices), len(self._tried) - 1)
        tried = self._tried[at] == vertices
        found = np.empty((len(vertices), self._table(kind).shape[1]), np.float32)
        found[~tried] = self._kept(graph, kind, vertices[~tried])
        for place in np.flatnonzero(tried).tolist():
            found[place] = self._rows[at[place]]
        return found

    def try_on(self, graph: Inspection, touched: Touched, x: FeatureRows) -> None:
        """Have vertices that are touched be as their events say: with the features `x`, and new ones without any."""
        rows_of = dict(zip(touched.featured.tolist(), touched.x.tolist(), strict=True))
        born = set(touched.born.tolist())
        self._tried = np.unique(np.concatenate([touched.born, touched.featured]))
        kinds, ids = graph.kinds_of(self._tried).tolist(), graph.ids_of(self._tried)
        self._rows = [
            self._row(graph, kind, vertex, ids.slice(k, k + 1), rows_of.get(vertex, -1), x, is_new=vertex in born)
            for k, (kind, vertex) in enumerate(zip(kinds, self._tried.tolist(), strict=True))
        ]

    def drop(self) -> None:
        """Have all rows be those of the graph again."""
        self._tried, self._rows = self._tried[:0], []

    def _row(
        self, graph: Inspection, kind: int, vertex: int, its_id: Ids, x_row: int, x: FeatureRows, *, is_new: bool
    ) -> np.ndarray:
        width = self._live.core.features.widths[kind]
        if is_new:
            row = np.zeros(self._table(kind).shape[1], np.float32)
            if self._learned and (learned := self._learned[kind]) is not None:
                row[width:] = learned.find(_looked_up(its_id))[0][0]
        else:
            row = self._kept(graph, kind, np.array([vertex]))[0]
        row[:width] = x.of_kind(kind, np.array([x_row])).matrix[0] if x_row >= 0 else 0
        return row

    def _table(self, kind: int) -> np.ndarray:
        return self._live.storage.core.tables[self._names[kind]].data

    def _kept(self, graph: Inspection, kind: int, vertices: np.ndarray) -> np.ndarray:
        table = self._live.storage.core.tables[self._names[kind]]
        part, slot = graph.places_of(vertices)
        return table.data[part * table.stride + slot]


def _looked_up(ids: Ids) -> np.ndarray:
    """Return ids as learned rows are looked up by."""
    return digests_of(str(one).encode() for one in ids.to_list()) if ids.kind == STRING else ids.ints
