"""Interface of the conv of a relation: what it reads of sources, of targets and of the vertex itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from freshet.gnn.kind_layers.columns import RowPiece
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.edge_network import EdgeNetwork
from freshet.gnn.synopses.of_messages import Synopsis
from freshet.schema import WEIGHT

Count = NDArray[np.int32]


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
    weighted: bool = False
    """Messages are multiplied by a value of their edge."""
    edge_value: str = WEIGHT
    """Name of the value of edges that messages read, as in schema.EDGE_COLUMNS."""
    edge_width: int = 0
    """Width of the attributes of edges that messages read."""
    skip_loops: bool = False
    """Self-loop edges are no messages."""
    network: EdgeNetwork | None = None
    """The network that makes each message of both ends of its edge, where one does."""
    reads_count: bool = False
    """`update` depends on the number of in-edges."""

    def update(self, agg: Rows, own: Sequence[Rows], count: Count) -> Rows:
        """Return what the conv makes of the synopses of messages, un-normalised, but for its root.

        Shapes: agg (n, synopsis width) float32; own (n, width) each, C-contiguous, of the pieces in `own`; count (n,)
        int32; result (n, out_width) float32 in new rows. agg and own are left as they are.
        """
        raise NotImplementedError
