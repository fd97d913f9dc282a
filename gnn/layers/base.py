"""Interface of an incremental layer: widths, flags, and two functions of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshet.gnn.declarations import Conv
from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.layers.chain import Chain
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.attend import AttentionEpilogue
from freshet.gnn.synopses.edge_network import EdgeNetwork
from freshet.gnn.synopses.of_messages import Synopsis


class Context(NamedTuple):
    """Properties of the edges of n vertices.

    Shapes: count (n,) int32, number of in-edges, self-loops and all types included; degree (n,) float64, sum of in-edge
    weights without self-loops; loop (n,) float32, weight of the self-loops of all types, NaN where there are none;
    out_count (n,) int32, number of out-edges without self-loops, and out_degree (n,) float64, the sum of their weights,
    both (0,) where no layer reads them.
    """

    count: NDArray[np.int32]  # type: ignore[assignment]  # hides tuple.count, which nobody needs here
    degree: NDArray[np.float64]
    loop: NDArray[np.float32]
    out_count: NDArray[np.int32] = np.empty(0, np.int32)
    out_degree: NDArray[np.float64] = np.empty(0, np.float64)

    def at(self, rows: slice | NDArray[Any]) -> Context:
        """Return the properties of some of the vertices."""
        columns: list[Any] = [column[rows] if len(column) else column for column in self]
        return Context(*columns)

    def in_edges(self, *, loops: bool) -> NDArray[Any]:
        """Return the numbers of in-edges, (n,) integers: self-loops included if `loops`, else without."""
        return self.count if loops else self.count - ~np.isnan(self.loop)

    @property
    def in_weight(self) -> NDArray[np.float64]:
        """The sum of in-edge weights, self-loops and all types included; (n,)."""
        return self.degree + np.nan_to_num(self.loop.astype(np.float64), nan=0.0)


NO_CONTEXT = Context(np.empty(0, np.int32), np.empty(0, np.float64), np.empty(0, np.float32))
"""The context where none is read."""
Contexts = Mapping[int | None, Context]
"""Contexts by relation; without kinds there is one alone, which has no number."""


class Epilogue(NamedTuple):
    """An UPDATE that is one pass over rows: aggregate + own row + bias, and perhaps ReLU.

    Shapes: bias (out_width,) float32.
    """

    bias: Rows
    mean: bool
    """The aggregate is the synopsis divided by the number of in-edges, 0 where there are none; else the synopsis."""
    relu: bool

    @property
    def makes_again(self) -> bool:
        """True: of the same synopsis, own row and number of in-edges it makes the same bits again."""
        return True


class LayerPlan:
    """One conv with the dense layers around it, cut into what a source sends and what a destination updates.

    Invariant: update(synopsis of weight * send(x_u)[:message_width] over in-edges, own row, context) is x_l of PyG's
    full pass (weight 1 unless `edge.weighted`; self-loop edges left out where `edge.skip_loops`).
    tests/unit/gnn/test_plan.py checks.
    Rows' bits depend on the row (and its context) alone.
    """

    in_width: int
    """Width of x_{l-1}; for layer 1 of the raw features."""
    message_width: int
    """Width of a message: columns 0..message_width of a sent row."""
    target_width: int | None = None
    """Width of the rows that messages read of targets; None: those that targets send themselves."""
    self_width: int
    """Width of the self input that travels beside the message; 0 when there is none or it is the message."""
    out_width: int
    """Width of x_l."""
    edge: EdgeReads
    """Weight and attributes of an edge that messages read, and whether self-loops are messages."""
    one_loop: bool = False
    """A self-loop that is there stands in for the one that the layer adds, so there may be one alone of all types."""
    source_scaled: bool = False
    """The message of u depends on u's own context, so that a changed context re-sends u."""
    reads_context: bool = False
    """update depends on the context."""
    reads_out_degrees: bool = False
    """send or update depends on what the context has of out-edges."""
    reads_self: bool
    """update depends on the vertex's own row."""
    self_is_message: bool = False
    """The self input is the vertex's own message row."""
    root_width: int = 0
    """Width of what update makes of a self input that is the message (`root`), where it reads it in no other way."""
    carried_width: int = 0
    """Width of the rows of earlier layers among the self input's columns, which travel across the conv."""
    synopsis: Synopsis
    """What the aggregate is, and so what the storage may do with it."""
    network: EdgeNetwork | None = None
    """What makes each message of both ends of its edge, where one does."""
    name: str
    """The conv's type, e.g. graph_conv."""
    epilogue: Epilogue | AttentionEpilogue | None = None
    """What update does, bit by bit, where that is all; the storage then does it in one pass over its tables."""

    out_channels: int
    """Width of the conv's own rows, before what follows it."""

    # As the one relation of a layer, from vertices to vertices of the one kind (see RelationPlan):
    number = None
    numbers: tuple[int, ...] = ()
    source = target = 0
    target_columns = slice(0, 0)
    has_pairs = reads_in_edges = False

    def __init__(self, spec: Conv, before: Chain, after: Chain) -> None:
        """Take the declaration, the dense layers in front of the conv (layer 1 only) and those after it."""
        self._before, self._after = before, after
        self.name, self.edge = spec.type, spec.edge  # type: ignore[attr-defined]
        self.in_width, self.out_width = spec.in_channels, spec.out_channels
        self.out_channels = spec.out_channels

    @property
    def synopsis_width(self) -> int:
        """Width of a synopsis row."""
        return self.synopsis.width(self.message_width)

    @property
    def source_columns(self) -> slice:
        """The columns of sent rows that are messages."""
        return slice(0, self.message_width)

    @property
    def relations(self) -> list[LayerPlan]:
        """The relations of the layer: itself."""
        return [self]

    @property
    def kinds(self) -> list[OnlyKind]:
        """The plans of the layer's kinds of vertices, of which there is one."""
        return [OnlyKind(self)]

    def send(self, x: Rows, ctx: Context) -> Rows:
        """Return what vertices send: the message, then the self input.

        Shapes: x (n, in_width) float32, left as it is; result (n, message_width + self_width) float32 C-contiguous. The
        result may be x itself where the layer sends its input as it is.
        """
        with np.errstate(all="ignore"):  # infinities and NaN are results, as in PyG
            return self._send(self._before.apply(np.ascontiguousarray(x, np.float32), own=False), ctx)

    def update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        """Return x_l from the synopses of messages, un-normalised, self inputs and contexts.

        Shapes: agg (n, synopsis_width) float32; own (n, self_width), or (n, message_width) if self_is_message, or
        (n, 0); result (n, out_width) float32 in new rows. agg and own are left as they are.
        """
        with np.errstate(all="ignore"):
            return self._after.apply(self._update(agg, own, ctx), own=True)

    def root(self, own: Rows) -> Rows:
        """Return what update makes of self inputs alone, (n, root_width) float32: it stays while those stay."""
        with np.errstate(all="ignore"):
            return self._root(own)

    def update_from_root(self, agg: Rows, root: Rows, ctx: Context) -> Rows:
        """Return what `update` does, bit by bit, from what `root` has made of self inputs, left as it is."""
        with np.errstate(all="ignore"):
            return self._after.apply(self._update_from_root(agg, root, ctx), own=True)

    def _send(self, x: Rows, ctx: Context) -> Rows:
        raise NotImplementedError

    def _update(self, agg: Rows, own: Rows, ctx: Context) -> Rows:
        raise NotImplementedError

    def _root(self, own: Rows) -> Rows:
        raise NotImplementedError

    def _update_from_root(self, agg: Rows, root: Rows, ctx: Context) -> Rows:
        raise NotImplementedError


class OnlyKind:
    """A layer's plan as that of its vertices, which have no kinds (see VertexPlan): they have one relation."""

    number = None
    sums = ()
    updates = sends = True

    def __init__(self, layer: LayerPlan) -> None:
        self.layer, self.relations = layer, [0]
        self.read_degrees = [None] if layer.reads_context else []
        self.sent_degrees = [None] if layer.source_scaled else []
        self.in_width, self.out_width = layer.in_width, layer.out_width
        self.message_width, self.self_width = layer.message_width, layer.self_width
        self.source_scaled, self.reads_out_degrees = layer.source_scaled, layer.reads_out_degrees
        self.scales_by_loops = layer.source_scaled and not layer.edge.skip_loops
        self.reads_self, self.self_is_message = layer.reads_self, layer.self_is_message
        self.root_width, self.epilogue, self.root = layer.root_width, layer.epilogue, layer.root

    def send(self, x: Rows, ctx: Contexts) -> Rows:
        """Return what vertices send (see `LayerPlan.send`)."""
        return self.layer.send(x, ctx.get(None, NO_CONTEXT))

    def update(self, aggregates: Sequence[Rows], own: Rows, counts: Sequence[Any]) -> Rows:
        """Return what `LayerPlan.update` makes of the one aggregate; `counts` has the context, where it is read."""
        return self.layer.update(aggregates[0], own, counts[0])

    def update_from_root(self, aggregates: Sequence[Rows], root: Rows, counts: Sequence[Any]) -> Rows:
        """Return what `update` does from what `root` has made of self inputs."""
        return self.layer.update_from_root(aggregates[0], root, counts[0])
