"""The synopses of the registry, with messages so narrow that a person can follow a counterexample."""

from __future__ import annotations

import numpy as np

from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.gnn.synopses.of_messages import (
    ColumnsSynopsis,
    GatedSynopsis,
    InvertibleSynopsis,
    MomentsSynopsis,
    MonotonicSynopsis,
    ProductSynopsis,
)
from freshet.gnn.synopses.softmax import EdgeSoftmaxSynopsis, Score, SoftmaxSynopsis
from freshet.operators.checks.between import Related

_EDGE_WIDTH = 1


def builtin_relations() -> dict[str, Related]:
    """Return a relation for each built-in aggregate, by its name for people; those of one name differ in no kernel."""
    return {**_of_rows(), **_of_both_ends()}


def _of_rows() -> dict[str, Related]:
    plain: list[InvertibleSynopsis | MonotonicSynopsis | MomentsSynopsis] = [
        InvertibleSynopsis("sum"),
        InvertibleSynopsis("sum", weighted=True),
        InvertibleSynopsis("mean"),
        InvertibleSynopsis("mean", weighted=True),
        MonotonicSynopsis("max"),
        MonotonicSynopsis("max", weighted=True),
        MonotonicSynopsis("min"),
        MomentsSynopsis("std"),
        MomentsSynopsis("var", weighted=True),
    ]
    found = {one.name: Related(1, 0, one, EdgeReads(one.weighted)) for one in plain}
    several = ProductSynopsis((InvertibleSynopsis("mean"), MonotonicSynopsis("max"), MomentsSynopsis("std")))
    beside = ProductSynopsis(
        (ColumnsSynopsis(InvertibleSynopsis("sum"), 0, 1), ColumnsSynopsis(MonotonicSynopsis("min"), 1, 2))
    )
    return {**found, several.name: Related(1, 0, several), beside.name: Related(2, 0, beside)}


def _of_both_ends() -> dict[str, Related]:
    one_head = [
        Score("additive", 1, 1, 1, 2, 3),
        Score("joint", 1, 1, 1, 2, 3, a=np.ones((1, 1), np.float32)),
        Score("dot", 1, 1, 1, 2, 3),
        Score("leaky_dot", 1, 1, 1, 2, 3),
        Score("mixed", 1, 1, 2, 1, 3),
    ]
    found = {(one := SoftmaxSynopsis(score)).name: Related(3, 3, one) for score in one_head}
    ones = np.ones((_EDGE_WIDTH, 1), np.float32)
    for means in (False, True):
        with_edge = EdgeSoftmaxSynopsis(one_head[0], ones, means)
        name = with_edge.name + (" and its mean" if means else "")
        found[name] = Related(3, 3, with_edge, EdgeReads(attributes=_EDGE_WIDTH))
    gated = GatedSynopsis(1)
    found[gated.name] = Related(3, 3, gated)
    of_sum = NetworkSynopsis(MonotonicSynopsis("max"), EdgeNetwork(0, 1, 1, "sum", 1, _relu, 0))
    of_difference = NetworkSynopsis(InvertibleSynopsis("sum"), EdgeNetwork(0, 0, 1, "difference", 2, _relu, 0))
    of_edge = NetworkSynopsis(MonotonicSynopsis("min"), EdgeNetwork(0, -1, 1, "sum", 1, _relu, 0, edge=np.negative))
    return {
        **found,
        of_sum.name: Related(2, 2, of_sum),
        of_difference.name: Related(1, 1, of_difference),
        f"{of_edge.name} with attributes": Related(1, 0, of_edge, EdgeReads(attributes=_EDGE_WIDTH)),
    }


def _relu(rows: Rows) -> Rows:
    return np.maximum(rows, np.float32(0))
