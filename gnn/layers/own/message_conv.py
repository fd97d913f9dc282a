"""MessageConv: an aggregate of what a program makes of each edge."""

from __future__ import annotations

import numpy as np

from freshet.gnn.convs.program import columns_read
from freshet.gnn.declarations import MessageConv
from freshet.gnn.layers.base import Context, LayerPlan
from freshet.gnn.layers.chain import Chain
from freshet.gnn.layers.own.program import DeclaredMessage, ProgramMessage
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.by_name import synopsis_of
from freshet.gnn.synopses.edge_network import MessageMaker, NetworkSynopsis, network_of
from freshet.gnn.synopses.of_messages import Synopsis
from freshet.gnn.synopses.own_message import read_with
from freshet.gnn.synopses.softmax import Score, SoftmaxSynopsis


class MessageConvPlan(LayerPlan):
    """x_v' = aggr_u message(x_u, x_v, w_uv, e_uv).

    A message that reads its source alone is made before sending, so that a changed row or edge costs a difference of
    sums; or, where it is linear and widens the row, of the aggregate. Others are made edge by edge.
    """

    def __init__(self, spec: MessageConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        self.self_width = 0
        self.reads_context = "mean" in spec.kinds or spec.add_self_loops
        self.reads_self = self.self_is_message = spec.add_self_loops
        self._keeps, self._fill, first = spec.loops_there == "keep", spec.self_value, spec.self_columns
        self._attributes = None if first is None else slice(first, first + spec.edge_channels)
        self._messages = _of_loops(spec)
        self.one_loop = self.edge.skip_loops
        self.declared = DeclaredMessage(spec, model.weights_of(prefix))
        self._of_source: ProgramMessage | None = None
        self._of_sum: ProgramMessage | None = None
        program, prefix, reads = spec.program, f"{prefix}.program", spec.reads
        if (last := spec.sent) is not None:
            self.synopsis = synopsis_of(spec.aggr, self.edge.weighted)
            made = ProgramMessage(program, model, prefix, last, spec.message_width)
            self._place(spec, made, linear=last == spec.last and spec.is_linear)
            return
        source, target = (columns_read(program, spec.last, name, spec.in_channels) for name in ("source", "target"))
        made = ProgramMessage(program, model, prefix, spec.last, spec.message_width, first=(source[0], target[0]))
        message, inner = aggregated(spec, made)
        reads_of_target = target if "target" in reads else None
        self.network = network_of(message, source, reads_of_target, made.multiplications, self.edge)
        self.synopsis, self.message_width = NetworkSynopsis(inner, self.network), spec.in_channels

    def _place(self, spec: MessageConv, made: ProgramMessage, *, linear: bool) -> None:
        """Make messages before sending, or of the aggregate."""
        if linear and self.synopsis.is_linear and made.width > spec.in_channels:
            self._of_sum, self.message_width = made, spec.in_channels
        else:
            self._of_source, self.message_width = made, made.width

    def _send(self, x: Rows, ctx: Context) -> Rows:
        return x if self._of_source is None else self._of_source.of_rows(x)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        count = ctx.in_edges(loops=not self.edge.skip_loops)
        if self.reads_self:
            read = read_with(self.synopsis, agg, count, self._own_messages(own, ctx))
        else:
            read = self.synopsis.read(agg, count)
        read = np.array(read, np.float32, order="C")
        return read if self._of_sum is None else self._of_sum.of_rows(read)

    def _own_messages(self, own: Rows, ctx: Context) -> Rows:
        """Return the messages of added self-loops, (n, message width) float32."""
        if self._messages is not None:
            return own[:, self._messages]
        weight = np.full((len(own), 1), self._fill, np.float32)
        if self._keeps and self.edge.weighted:
            weight = np.where(np.isnan(ctx.loop)[:, None], weight, ctx.loop[:, None])
        if self.network is None:
            return own * weight if self.edge.weighted else own
        of_loops = np.repeat(weight, self.edge.columns, axis=1)
        if self._attributes is not None:
            of_loops[:, self.edge.columns - self.edge.attributes :] = own[:, self._attributes]
        return self.network.of(own, own, of_loops)


def _of_loops(spec: MessageConv) -> np.ndarray | None:
    """Return the columns of x with the message of an added self-loop, as `aggregated` has them; None: it is made."""
    if spec.self_messages is None:
        return None
    columns = np.arange(spec.self_messages, spec.self_messages + spec.message_width)
    return np.roll(columns, -spec.heads) if spec.aggr == "softmax" else columns


def aggregated(spec: MessageConv, made: MessageMaker) -> tuple[MessageMaker, Synopsis]:
    """Return messages that are made edge by edge as their aggregate reads them, and what that keeps of them."""
    if spec.aggr == "softmax":
        return ScoresBehind(made, spec.heads), softmax_of(spec.heads, spec.aggregate_width)
    return made, synopsis_of(spec.aggr, weighted=False)


class ScoresBehind:
    """Messages [scores | values] of another maker, as the softmax of given scores reads them: [values | scores]."""

    def __init__(self, made: MessageMaker, heads: int) -> None:
        self._made, self._heads, self.width = made, heads, made.width

    def message(self, source: Rows, target: Rows, weight: Rows, attr: Rows) -> Rows:
        """Return the messages of n edges."""
        return np.roll(self._made.message(source, target, weight, attr), -self._heads, axis=1)


def softmax_of(heads: int, values: int) -> SoftmaxSynopsis:
    """Return the softmax sums of messages [values | scores]."""
    return SoftmaxSynopsis(Score("given", heads, values // heads, values, 0, values + heads))
