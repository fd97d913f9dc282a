"""GraphConv, CommNet and SAGEConv: a linear function of the aggregate plus a linear function of the vertex itself."""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import RootedConv, SAGEConv
from freshet.gnn.layers.base import Context, Epilogue, LayerPlan
from freshet.gnn.layers.chain import Chain, linear, transposed
from freshet.gnn.model import Model
from freshet.gnn.numerics import elementwise
from freshet.gnn.numerics.dense import Rows, matmul
from freshet.gnn.synopses.by_name import synopsis_of


class NeighbourConvPlan(LayerPlan):
    """x_v' = W_self x_v + W_nbr aggr(f(x_u)) + b, optionally scaled to length 1.

    Where the layer does not widen its input and the aggregate is linear, both products are taken before sending, else
    after aggregating; then the message is the input itself.
    """

    def __init__(self, spec: RootedConv | SAGEConv, model: Model, prefix: str, before: Chain, after: Chain) -> None:
        """Take the declaration and the prefix of its weights' names."""
        super().__init__(spec, before, after)
        weights = model.weights_of(prefix)
        if isinstance(spec, RootedConv):
            neighbour, own, bias = (weights.get(name) for name in ("lin_rel.weight", "lin_root.weight", "lin_rel.bias"))
            self._normalize, self._project = False, None
        else:
            neighbour, own, bias = (weights.get(name) for name in ("lin_l.weight", "lin_r.weight", "lin_l.bias"))
            self._normalize = spec.normalize
            self._project = (transposed(weights["lin.weight"]), weights["lin.bias"]) if spec.project else None
        self.synopsis = synopsis_of(spec.aggr, self.edge.weighted)
        self.reads_context = "mean" in spec.aggr  # a name, or a tuple of names
        self.reads_self = own is not None
        self._bias = bias
        assert neighbour is not None  # Model has checked that it is there
        self._neighbour = transposed(neighbour)
        self._own = None if own is None else transposed(own)
        self._transform_first = self.synopsis.is_linear and spec.out_channels <= spec.in_channels
        self.message_width = spec.out_channels if self._transform_first else spec.in_channels
        # The message is the input itself: the vertex's own message row serves as self input.
        self.self_is_message = self.reads_self and not self._transform_first and self._project is None
        self.self_width = self.message_width if self.reads_self and not self.self_is_message else 0
        self.root_width = spec.out_channels if self.self_is_message else 0
        self._both = self._stack()
        if self._transform_first and self.reads_self and not self._normalize and after.types in ([], ["relu"]):
            # x + -0.0 is x, whatever its sign
            bias = np.full(spec.out_channels, -0.0, np.float32) if self._bias is None else self._bias
            self.epilogue = Epilogue(np.ascontiguousarray(bias, np.float32), self.reads_context, bool(after.types))

    def _stack(self) -> Rows:
        """Put the two weights together, so that one product does for both."""
        if self._own is None:
            return self._neighbour
        side_by_side = self._transform_first and self._project is None
        return np.ascontiguousarray(np.concatenate([self._neighbour, self._own], axis=1 if side_by_side else 0))

    def _send(self, x: Rows, ctx: Context) -> Rows:
        if self._transform_first and self._project is None:
            return matmul(x, self._both)
        if self._project is None:
            return x
        source = linear(x, *self._project)
        elementwise.relu(source.reshape(-1))
        if self._transform_first:
            source = matmul(source, self._neighbour)
            x = matmul(x, self._own) if self._own is not None else x
        return np.concatenate([source, x], axis=1) if self._own is not None else source

    def _root(self, own: Rows) -> Rows:
        assert self._own is not None  # or there would be no such width
        return matmul(own, self._own)

    def _update_from_root(self, agg: Rows, root: Rows, ctx: Context) -> Rows:
        out = matmul(self.synopsis.read(agg, ctx.count), self._neighbour)
        out += root
        return self._ended(out)

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        if self.root_width:
            return self._update_from_root(agg, self._root(own), ctx)
        read = self.synopsis.read(agg, ctx.count)
        if self._transform_first:
            out = read + own if self.reads_self else np.array(read, np.float32, order="C")
        elif self.reads_self:
            out = matmul(np.concatenate([read, own], axis=1), self._both)
        else:
            out = matmul(read, self._neighbour)
        return self._ended(out)

    def _ended(self, out: Rows) -> Rows:
        if self._bias is not None:
            out += self._bias
        if self._normalize:
            elementwise.normalize_rows(out)
        return out
