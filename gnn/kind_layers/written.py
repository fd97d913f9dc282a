"""OwnLayer in a relation: functions of a user make messages of rows of two kinds, and the new row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshet.gnn.declarations import OwnLayer
from freshet.gnn.kind_layers.columns import RowPiece, as_it_is
from freshet.gnn.kind_layers.relation_conv import Count, RelationConvPlan
from freshet.gnn.layers.own.written import WrittenConv
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics.dense import Rows


class OwnRelation(RelationConvPlan):
    """x_v' = update(aggr_u message(source(x_u), target(x_v), e_uv), own(x_v)).

    What the functions of one end make is sent once per vertex; a source without such a function sends its row.
    """

    def __init__(self, spec: OwnLayer, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration and the prefix of its weights' names.

        Raises: LayersError without the class; WrittenLayerError for one that does not do; ModelError for other widths.
        """
        super().__init__(spec)
        self._written = written = WrittenConv(spec, model, prefix)
        self.running, widths = written.running, written.running.widths
        self.reads_count, self.edge = written.reads_count, written.edge
        self.source = as_it_is(spec.in_channels)
        if not written.sends_rows:
            self.source = RowPiece((prefix, "source"), written.source_width, make=written.source)
        if widths.target:
            self.target = RowPiece((prefix, "target"), widths.target, make=self.running.target)
        if widths.own:
            self.own = (RowPiece((prefix, "own"), widths.own, make=self.running.own),)
        self.network, self.synopsis = written.kept(target=0, sent=written.source_width)

    def update(self, agg: Rows, own: Sequence[Rows], count: Count) -> Rows:
        """Return what the class makes of the aggregate, and of the vertex's own row if it reads that."""
        return self._written.update(agg, own[0] if self.own else np.empty((len(agg), 0), np.float32), count)
