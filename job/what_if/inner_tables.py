"""The tables of the last inner layer of a job whose embeddings are computed at the read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshet.gnn.any_plan import returned_of
from freshet.job.errors import UsageError
from freshet.job.folder.returned_kinds import named_kinds
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.tables.asked import AskedTables, asked_job
from freshet.job.serving.tables.hypotheses import Embedder
from freshet.job.serving.tables.served import CurrentTable
from freshet.operators.factory import load_plan
from freshet.partitioner.ids import INT, STRING, Ids
from freshet.state.served.ids import Ids as ServedIds
from freshet.state.served.ids import Texts, frozen


class InnerTables:
    """Reads rows by kind; for one thread at a time."""

    def __init__(self, tables: Sequence[CurrentTable]) -> None:
        """`tables`: of each kind whose rows the last layer reads."""
        self._tables = {one.job.kind_name: one for one in tables}

    def rows(self, kind: str, ids: Ids, epoch: int) -> np.ndarray:
        """Return the rows of vertices as of an epoch, (n, width) float32.

        Raises: HistoryTooShortError where the table no longer has them; NotReadyError where it lacks one.
        """
        found = self._tables[kind].served().table.get(as_served_ids(ids), epoch)
        if (lacking := np.flatnonzero(found.own < 0)).size:
            first = ids.take(lacking[:1]).to_one()
            msg = f"the table has no row of the inner layer of {first!r} at epoch {epoch:,}; try again in a moment"
            raise NotReadyError(msg)
        return found.rows

    def embeddings(self, model: str, kind: str | None, embedder: Embedder) -> list[AskedTables]:
        """Return the sources of embeddings of the kinds that the model returns, or of those that `kind` names.

        Raises: UsageError for one that it does not return; ModelError.
        """
        plan = load_plan(model)
        names = dict(zip(plan.out, returned_of(plan), strict=True))
        asked = [*names] if kind is None else named_kinds(kind, [*filter(None, names)])
        if unknown := next((one for one in asked if one not in names), None):
            msg = f"--kind {unknown}: the model returns {', '.join(filter(None, names)) or 'one kind without a name'}"
            raise UsageError(msg)
        found = list[AskedTables]()
        for name in asked:
            assert name is not None  # as one is asked for
            inner = self._tables.get(name) or next(iter(self._tables.values()))
            job = asked_job(inner.job, names[name].kind, name)
            found.append(AskedTables(inner, job, names[name].width, embedder))
        return found


def as_served_ids(ids: Ids) -> ServedIds:
    """Return ids as tables take them."""
    return frozen(ids.ints) if ids.kind == INT else Texts.of(ids.offsets, ids.data)


def as_graph_ids(ids: ServedIds) -> Ids:
    """Return ids as a job's graph takes them."""
    return Ids(STRING, offsets=ids.offsets, data=ids.data) if isinstance(ids, Texts) else Ids(INT, ids)
