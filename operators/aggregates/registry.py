"""The one table from synopses to rooms, in which a new aggregate is added."""

from __future__ import annotations

from typing import Any

from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.gnn.synopses.of_messages import (
    ColumnsSynopsis,
    GatedSynopsis,
    InvertibleSynopsis,
    MomentsSynopsis,
    MonotonicSynopsis,
    ProductSynopsis,
    Synopsis,
)
from freshet.gnn.synopses.quantiles import MulSynopsis, QuantileSynopsis
from freshet.gnn.synopses.redone import RedoneSynopsis
from freshet.gnn.synopses.softmax import EdgeSoftmaxSynopsis, SoftmaxSynopsis
from freshet.operators.aggregates.aggregate import Aggregate
from freshet.operators.aggregates.attention.attention import ATTENTION, EDGE_ATTENTION
from freshet.operators.aggregates.edge_networks import edge_networks_of
from freshet.operators.aggregates.extrema.extrema import EXTREMA
from freshet.operators.aggregates.gates import GATES
from freshet.operators.aggregates.moments import MOMENTS
from freshet.operators.aggregates.products import columns_of, products_of
from freshet.operators.aggregates.redone import REDONE
from freshet.operators.aggregates.sums.sums import SUMS


def is_known(synopsis: Synopsis) -> bool:
    """Return whether a room keeps such a synopsis."""
    return type(synopsis) in AGGREGATES


def aggregate_of(synopsis: Synopsis) -> Aggregate[Any]:
    """Return how a synopsis is kept.

    Raises: TypeError for one that no room keeps.
    """
    found = AGGREGATES.get(type(synopsis))
    if found is None:
        known = ", ".join(sorted(kind.__name__ for kind in AGGREGATES))
        msg = f"nothing keeps a {type(synopsis).__name__}; operators/aggregates/registry.py has {known}"
        raise TypeError(msg)
    return found


AGGREGATES: dict[type[Synopsis], Aggregate[Any]] = {
    InvertibleSynopsis: SUMS,
    MonotonicSynopsis: EXTREMA,
    MomentsSynopsis: MOMENTS,
    SoftmaxSynopsis: ATTENTION,
    EdgeSoftmaxSynopsis: EDGE_ATTENTION,
    GatedSynopsis: GATES,
    RedoneSynopsis: REDONE,
    MulSynopsis: REDONE,
    QuantileSynopsis: REDONE,
    NetworkSynopsis: edge_networks_of(aggregate_of),
    ProductSynopsis: products_of(aggregate_of),
    ColumnsSynopsis: columns_of(aggregate_of),
}
