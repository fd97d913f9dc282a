"""GCNConv and Propagation in a relation within one kind: sources send rows scaled by their degrees in the relation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from freshet.gnn.declarations import DegreeScaledConv
from freshet.gnn.kind_layers.columns import Contexts, RowPiece
from freshet.gnn.kind_layers.relation_conv import RelationConvPlan
from freshet.gnn.layers.base import Context
from freshet.gnn.layers.chain import Chain
from freshet.gnn.layers.gcn_conv import GCNConvPlan
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics.dense import Rows

_NO_ROWS = np.empty((0, 0), np.float32)
_NO_CONTEXT = Context(np.empty(0, np.int32), np.empty(0, np.float64), np.empty(0, np.float32))


class DegreeRelation(RelationConvPlan):
    """x_v' = d_v^-1/2 aggr(w_uv d_u^-1/2 W x_u, loop_v d_v^-1/2 W x_v) + b, with the degrees in the relation.

    It is the layer of a graph that has the edges of the relation alone (layers/gcn_conv.py).
    """

    def __init__(self, spec: DegreeScaledConv, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration and the prefix of its weights' names."""
        nothing = Chain(model, [], [])
        conv = GCNConvPlan(spec, model, prefix, nothing, nothing)
        super().__init__(spec)
        self.synopsis = conv.synopsis
        self.reads_degrees, self.sends_degrees = conv.reads_context, conv.source_scaled
        how: dict[str, Any] = {"by_degree": self._scaled} if conv.source_scaled else {"make": self._unscaled}
        self.source = RowPiece((prefix, "sent"), conv.message_width, **how)
        self.own = (self.source,) if conv.reads_self else ()
        self._conv = conv

    def _scaled(self, x: Rows, contexts: Contexts) -> Rows:
        return self._conv.send(x, contexts[self.relation])

    def _unscaled(self, x: Rows) -> Rows:
        return self._conv.send(x, _NO_CONTEXT)

    def update(self, agg: Rows, own: Sequence[Rows], count: Any) -> Rows:
        """Return what the layer makes of the messages and its own; `count` is the context if it reads degrees."""
        context = count if isinstance(count, Context) else _NO_CONTEXT
        return self._conv.update(agg, own[0] if own else _NO_ROWS, context)
