"""The rules of a job's graph, as its model and its options have them."""

from __future__ import annotations

from freshet.gnn.plan import Plan
from freshet.partitioner.config import GraphRules


def graph_rules(plan: Plan, *, undirected: bool) -> GraphRules:
    """Return the rules of a graph that a job with this plan runs on."""
    return GraphRules(
        undirected=undirected,
        forbid_typed_loops=any(layer.one_loop for layer in plan.layers),
        edge_types=tuple(plan.edge_types) or None,
        out_degrees=any(layer.reads_out_degrees for layer in plan.layers),
        weighted=any(layer.weighted for layer in plan.layers),
    )
