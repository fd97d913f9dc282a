"""OwnLayer: an aggregate of messages that functions of a user make."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.gnn.declarations import OwnLayer
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain
from freshet.gnn.layers.own.written import WrittenConv
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.own.loading import identity_of, layer_class, split_name
from freshet.gnn.own.running import RunningLayer


class OwnLayerPlan(LayerPlan):
    """x_v' = update(aggr_u message(source(x_u), target(x_v), e_uv), own(x_v)); a row is [source | target | own].

    A message that reads its source alone is made before sending.
    """

    def __init__(self, spec: OwnLayer, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names.

        Raises: LayersError without the class; WrittenLayerError for one that does not do; ModelError for other widths.
        """
        super().__init__(spec, before, after)
        self._written = written = WrittenConv(spec, model, prefix)
        self.running, widths = written.running, written.running.widths
        self.self_width, self.reads_self = widths.own, widths.own > 0
        self.reads_context, self.edge = written.reads_count, written.edge
        self.network, self.synopsis = written.kept(target=written.source_width)
        self.message_width = written.source_width + widths.target

    def _send(self, x: Rows, ctx: Context) -> Rows:
        running = self.running
        sent = [self._written.source(x)]
        sent += [running.target(x)] if running.widths.target else []
        sent += [running.own(x)] if self.self_width else []
        return sent[0] if len(sent) == 1 else np.concatenate(sent, axis=1)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        return self._written.update(agg, own, ctx.count)


def declared(
    code: str,
    weights: dict[str, Rows],
    in_channels: int,
    *,
    edge_channels: int = 0,
    target_channels: int | None = None,
    **options: Any,
) -> OwnLayer:
    """Return the declaration of a written layer with these weights; its module has been loaded.

    `code` is PACKAGE.MODULE:CLASS. Raises: LayersError, WrittenLayerError.
    """
    layer = layer_class(code, None)
    running = RunningLayer(layer, weights, options, in_channels, edge_channels, target_channels)
    return OwnLayer(
        in_channels=in_channels,
        target_channels=target_channels,
        out_channels=running.widths.out,
        edge_channels=edge_channels,
        code=code,
        source=identity_of(split_name(code)[0]),
        options=options,
        shapes={name: weight.shape for name, weight in weights.items()},
    )
