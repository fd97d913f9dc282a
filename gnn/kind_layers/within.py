"""Any conv in a relation within one kind: it is the layer of a graph that has the edges of the relation alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from freshet.gnn.declarations import Conv
from freshet.gnn.kind_layers.columns import RowPiece
from freshet.gnn.kind_layers.relation_conv import RelationConvPlan
from freshet.gnn.layers.base import NO_CONTEXT, Context, Contexts
from freshet.gnn.layers.chain import Chain
from freshet.gnn.layers.registry import PLANS
from freshet.gnn.model import WeightedModel
from freshet.gnn.numerics.dense import Rows


class WithinKind(RelationConvPlan):
    """x_v' as the conv's LayerPlan makes it, with contexts in the relation.

    Sources and targets are of one kind, so that messages read the columns of both in what a vertex sends.
    """

    def __init__(self, spec: Conv, model: WeightedModel, prefix: str, first: bool) -> None:
        """Take the declaration and the prefix of its weights' names."""
        nothing = Chain(model, [], [])
        conv = self._conv = PLANS[type(spec)](spec, model, prefix, nothing, nothing)
        super().__init__(spec)
        self.synopsis, self.network = conv.synopsis.with_sent(conv.message_width), conv.network
        self.reads_degrees, self.sends_degrees = conv.reads_context, conv.source_scaled
        self.one_loop = conv.one_loop
        message, own = slice(conv.message_width), slice(conv.message_width, conv.message_width + conv.self_width)
        self.source = self._piece((prefix, "sent"), message)
        self.target = self.source if conv.synopsis.reads_targets else None
        if conv.reads_self:
            self.own = (self.source if conv.self_is_message else self._piece((prefix, "own"), own),)

    def _piece(self, key: tuple[str, str], columns: slice) -> RowPiece:
        """Return the piece that has these columns of what a vertex sends."""

        def made(x: Rows, ctx: Context = NO_CONTEXT) -> Rows:
            sent = self._conv.send(x, ctx)
            return sent if columns == slice(sent.shape[1]) else np.ascontiguousarray(sent[:, columns])

        def scaled(x: Rows, contexts: Contexts) -> Rows:
            return made(x, contexts[self.relation])

        width = columns.stop - (columns.start or 0)
        return RowPiece(key, width, by_degree=scaled) if self.sends_degrees else RowPiece(key, width, make=made)

    def update(self, agg: Rows, own: Sequence[Rows], count: Any) -> Rows:
        """Return what the layer makes of the messages and its own; `count` is the context if it reads degrees."""
        context = count if isinstance(count, Context) else NO_CONTEXT
        return self._conv.update(agg, own[0] if own else np.empty((len(agg), 0), np.float32), context)
