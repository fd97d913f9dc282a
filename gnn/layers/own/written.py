"""A layer that a user wrote as plans have it: what sources send, what is kept of messages, and what is made of that."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import OwnLayer
from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.layers.own.message_conv import softmax_of
from freshet.gnn.model import ModelError, WeightedModel
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.own.aggregates import MeanOf, Redone, SoftmaxOf, SumOf
from freshet.gnn.own.loading import layer_class
from freshet.gnn.own.running import RunningLayer
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis, network_of
from freshet.gnn.synopses.of_messages import Synopsis
from freshet.gnn.synopses.redone import RedoneSynopsis


class WrittenConv:
    """x_v' = update(aggr_u message(source(x_u), target(x_v), e_uv), own(x_v)), in one kind or on a relation.

    A message that reads its source alone is made before sending, if the aggregate is kept by differences or is an
    extremum; others are made edge by edge of what both ends sent.
    """

    def __init__(self, spec: OwnLayer, model: WeightedModel, prefix: str) -> None:
        """Take the declaration and the prefix of its weights' names.

        Raises: LayersError without the class; WrittenLayerError for one that does not do; ModelError for other widths.
        """
        weights = model.weights_of(prefix)
        self.running = running = running_layer(spec, weights)
        widths, aggr = running.widths, running.aggregate
        if widths.out != spec.out_channels:
            made = f"{spec.code}.update makes rows of width {widths.out}"
            msg = f"{prefix}: {made}, expected out_channels {spec.out_channels}"
            raise ModelError(msg)
        self.edge = EdgeReads("weight" in running.reads, spec.edge_channels, by_network=True)
        self.reads_count = isinstance(aggr, MeanOf)
        self._inner: Synopsis
        if isinstance(aggr, SoftmaxOf):
            self._inner = softmax_of(aggr.heads, widths.aggregate)
        elif isinstance(aggr, Redone):
            self._inner = RedoneSynopsis(running, running.state_width, widths.aggregate)
        else:
            assert isinstance(aggr, SumOf)  # there is no other kind
            self._inner = synopsis_of(aggr.kind, weighted=False)
        self._sends_messages = running.is_of_source and isinstance(aggr, SumOf)
        self.source_width = widths.message if self._sends_messages else widths.source
        self._multiplications = sum(weight.size for weight in weights.values() if weight.ndim == 2)

    @property
    def sends_rows(self) -> bool:
        """True if a source sends its row as it is."""
        layer = self.running.layer
        return not layer.has("source") and not (self._sends_messages and layer.has("message"))

    def kept(self, target: int, sent: int | None = None) -> tuple[EdgeNetwork | None, Synopsis]:
        """Return what makes messages edge by edge, if something does, and what is kept of messages.

        `target` is the first column of what targets send, in their rows; `sent` is that of NetworkSynopsis.
        """
        if self._sends_messages:
            return None, self._inner
        widths = self.running.widths
        columns = (target, target + widths.target) if widths.target else None
        made = _Message(self.running)
        network = network_of(made, (0, widths.source), columns, self._multiplications, self.edge, made)
        return network, NetworkSynopsis(self._inner, network, sent)

    def source(self, x: Rows) -> Rows:
        """Return what sources send, (n, source_width) float32."""
        sent = self.running.source(x)
        if not self._sends_messages or not self.running.layer.has("message"):
            return sent
        none = x[:, :0]
        return self.running.message(sent, none, none, none)

    def update(self, states: Rows, own: Rows, count: np.ndarray) -> Rows:
        """Return the new rows from states of the aggregate, what `own` made, and the numbers of in-edges."""
        read = np.array(self._inner.read(states, count), np.float32, order="C")
        return self.running.update(read, own)


class _Message:
    """The messages of a written layer, as a network makes them."""

    def __init__(self, running: RunningLayer) -> None:
        self.message, self.width = running.message, running.widths.message


def running_layer(spec: OwnLayer, weights: dict[str, Rows]) -> RunningLayer:
    """Return the layer of a declaration, ready to run, with weights of either precision.

    Raises: LayersError, WrittenLayerError.
    """
    layer = layer_class(spec.code, spec.source)
    return RunningLayer(layer, weights, spec.options, spec.in_channels, spec.edge_channels, spec.target_channels)
