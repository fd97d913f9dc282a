"""Interface of the conv of a relation: what it reads of sources, of targets and of the vertex itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshet.gnn.declarations import Conv
from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.kind_layers.columns import RowPiece
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.edge_network import EdgeNetwork
from freshet.gnn.synopses.of_messages import Synopsis

Count = NDArray[np.int32]
InEdges = Any
"""A Count, or the Context of the vertices where the conv reads degrees."""


class Root(NamedTuple):
    """A term W x_v + b that a conv adds to what it makes of its messages.

    Shapes: weight (target width, out_width) float32, or None; bias (out_width,), or None.
    """

    weight: Rows | None = None
    bias: Rows | None = None


class RelationConvPlan:
    """The conv of one relation in one layer: messages from rows of its source kind to vertices of its target kind.

    Invariant: update(synopsis of weight * source(x_u) over in-edges of the relation, own pieces of x_v, count) + root
    is what PyG's conv makes of (x_source, x_target). tests/unit/gnn/kinds/test_kinds_plan.py checks. Rows' bits depend
    on the row alone.
    """

    name: str
    """The conv's type, e.g. sage_conv."""
    out_width: int
    relation: int = -1
    """Number of the relation."""
    source: RowPiece
    """Columns of a source that messages read."""
    target: RowPiece | None = None
    """Columns of a target that messages read."""
    own: tuple[RowPiece, ...] = ()
    """Columns of the vertex's own row that `update` reads."""
    root: Root = Root()
    """Term added to the result of `update`."""
    synopsis: Synopsis
    """Form of the aggregate, and so what the storage may do with it."""
    edge: EdgeReads
    """Weight and attributes of an edge that messages read, and whether self-loops are messages."""
    network: EdgeNetwork | None = None
    """The network that makes each message of both ends of its edge, where one does."""
    reads_count: bool = False
    """`update` depends on the number of in-edges."""
    reads_degrees: bool = False
    """`update` depends on the degree of the vertex in the relation."""
    sends_degrees: bool = False
    """`source` depends on that of the source, so that a changed degree re-sends it."""
    one_loop: bool = False
    """A self-loop that is there stands in for the one that the conv adds, so there may be one alone in the relation."""

    def __init__(self, spec: Conv) -> None:
        """Take the declaration."""
        self.name, self.out_width = spec.type, spec.out_channels  # type: ignore[attr-defined]
        self.edge = spec.edge

    def update(self, agg: Rows, own: Sequence[Rows], count: InEdges) -> Rows:
        """Return what the conv makes of the synopses of messages, un-normalised, but for its root.

        Shapes: agg (n, synopsis width) float32; own (n, width) each, C-contiguous, of the pieces in `own`; count (n,)
        int32, or a Context where the conv `reads_degrees`; result (n, out_width) float32 in new rows. agg and own are
        left as they are.
        """
        raise NotImplementedError
