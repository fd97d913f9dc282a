"""UPDATE in the same call as the merge of an epoch, where one call is enough for both.

That is so where a task has the only part, vertices have no kinds, synopses are sums, and UPDATE is one pass over rows
that are not kept; in an epoch without new vertices, of few changed ones, whose sums need not be made again before. All
else is left to the calls one after the other, with the same kernels and bits.
"""

from __future__ import annotations

import numpy as np

from freshet.gnn.layers.base import Epilogue
from freshet.operators.graph.part_rows import NO_ROWS, frozen
from freshet.operators.graph.sources import SourceRows
from freshet.operators.storage.epoch_topology import EpochTopology
from freshet.operators.storage.owner import Changed
from freshet.operators.storage.printed_owner import PrintedOwner
from freshet.operators.storage.relations import RelationSynopses
from freshet.operators.storage.vertices import Vertices
from freshet.state.table import Table

ROWS_MAX = 512
_BORN = "m_slot"


class UpdateBehind:
    """The relation and the vertices of a layer that has one of each."""

    def __init__(self, relation: RelationSynopses, vertices: Vertices, own: Table | None) -> None:
        """`own`: where the store puts self inputs beside messages."""
        assert isinstance(vertices.owner, PrintedOwner)
        assert isinstance(vertices.plan.epilogue, Epilogue)
        self._relation, self._vertices, self._own = relation, vertices, own
        self._owner, self._epilogue = vertices.owner, vertices.plan.epilogue
        self.prefix = vertices.prefix
        self.updated = 0  # vertices in the last epoch

    def takes(self, epoch: int, topology: EpochTopology) -> bool:
        """Return whether an epoch brings no new vertices, which are handed on in any case."""
        return epoch > 0 and _BORN not in topology.of(self._vertices.prefix).columns

    def merge(
        self, epoch: int, topology: EpochTopology, sources: SourceRows
    ) -> tuple[np.ndarray | None, Changed | None]:
        """Apply an epoch; the targets whose synopses it changed, as `RelationSynopses.merge`, or the changed rows."""
        vertices, relation, owner = self._vertices, self._relation, self._owner
        again = vertices.masters.read_again
        candidates = (
            sources.slots if vertices.plan.reads_self else NO_ROWS,
            frozen(again.view()) if again.size else NO_ROWS,
            epoch + 1,
        )
        own = relation.store.z if vertices.own is None else vertices.own
        behind = owner.behind(own, vertices.masters.count, self._epilogue, ROWS_MAX)
        behind.found[0] = -1
        if not relation.merge_and_update(epoch, topology, sources, self._own, behind, candidates):
            return None, None
        if behind.found[0] < 0:
            return relation.store.touched(), None
        self.updated, changed = behind.found.tolist()
        # copied: the next epoch overwrites them
        return None, Changed(behind.slots[:changed].copy(), behind.x[:changed].copy())


def behind_of(
    relations: list[RelationSynopses], kinds: dict[int, Vertices], own: dict[int, Table], parts: int
) -> UpdateBehind | None:
    """Return what a layer updates behind its merge, where it can; `own`: tables by relation."""
    if parts > 1 or len(relations) > 1 or len(kinds) > 1:
        return None
    (vertices,), (relation,) = kinds.values(), relations
    is_one_pass = isinstance(vertices.plan.epilogue, Epilogue) and isinstance(vertices.owner, PrintedOwner)
    if not is_one_pass or relation.plan.has_pairs or (vertices.keeps_own and not own):
        return None
    return UpdateBehind(relation, vertices, own.get(0))
