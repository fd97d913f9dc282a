"""The embeddings that the change logs of a run have, or that a server makes of the inner rows that they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from freshet.gnn.any_plan import AnyPlan, last_of
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.oracles import whole_graph, whole_kinds
from freshet.job.results.compare import matches
from freshet.job.results.full_pass import AnyArrays, ids_of
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.partitioner.reference.kinds import KindsArrays


class Logged(NamedTuple):
    """Embeddings of the vertices of a kind after an epoch.

    Shapes: ids (n,) int64, or n strings (object); vectors (n, width) float32
    """

    ids: np.ndarray
    vectors: np.ndarray


class LoggedRows:
    """Reads the rows after an epoch.

    Of a job with `--embeddings asked` the last layer is computed of the rows of its logs, on the whole graph, by the
    functions that its server uses.
    """

    def __init__(self, readers: Mapping[str, ChangeLogReader], plan: AnyPlan, *, is_inner: bool) -> None:
        """`readers`: the log of each kind, an empty name without kinds; `is_inner`: it has rows of an inner layer."""
        self._readers, self._is_inner = readers, is_inner
        self._last = last_of(plan)
        self.duplicates = 0
        self.faults: list[str] = []

    def begin(self, epoch: int, arrays: AnyArrays) -> None:
        """Take the graph after an epoch, whose rows are asked for until the next one."""
        self._epoch, self._arrays, self.duplicates = epoch, arrays, 0
        self._made = self._made_here() if self._is_inner else []

    def of(self, kind: str) -> Logged:
        """Return the embeddings of a kind; `duplicates` counts rows that stand twice, of all that were read so far."""
        if self._is_inner:
            return Logged(ids_of(self._arrays, kind), self._made[self._number(kind)])
        state = self._readers[kind].state_at(self._epoch)
        self.duplicates += state.duplicates
        return Logged(state.ids, state.vectors)

    def _number(self, kind: str) -> int:
        kinds = self._last.features.kinds
        return 0 if kinds is None else kinds.kind_codes[kind]

    def _made_here(self) -> list[np.ndarray]:
        arrays, plan = self._arrays, self._last
        if isinstance(arrays, KindsArrays):
            assert isinstance(plan, KindsPlan)
            return whole_kinds.forward(plan, arrays.graph._replace(x=[self._rows(one) for one in arrays.ids]))[-1]
        assert not isinstance(plan, KindsPlan)
        return [whole_graph.forward(plan, arrays.graph._replace(x=self._rows("")))[-1]]

    def _rows(self, kind: str) -> np.ndarray:
        """Return the rows of the inner layer in the order of the graph, NaN where the log has none."""
        ids = ids_of(self._arrays, kind)
        if kind not in self._readers:
            return np.empty((len(ids), 0), np.float32)
        state = self._readers[kind].state_at(self._epoch)
        self.duplicates += state.duplicates
        here, there = matches(state.ids, ids)
        rows = np.full((len(ids), state.vectors.shape[1]), np.nan, np.float32)
        rows[there] = state.vectors[here]
        where = f"{self._readers[kind].where}: after epoch {self._epoch:,}"
        if lacking := len(ids) - len(there):
            self.faults.append(f"{where} it lacks {lacking:,} vertices of the graph")
        if extra := len(state.ids) - len(here):
            self.faults.append(f"{where} it has {extra:,} vertices that are not in the graph")
        return rows
