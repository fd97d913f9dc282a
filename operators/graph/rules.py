"""The rules of a job's graph, as its model and its options have them."""

from __future__ import annotations

from freshet.gnn.any_plan import AnyPlan, aggregated
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.partitioner.config import GraphRules


def graph_rules(plan: AnyPlan, *, undirected: bool) -> GraphRules:
    """Return the rules of a graph that a job with this plan runs on."""
    if isinstance(plan, KindsPlan):
        weighted = any(one.edge.weighted for one in aggregated(plan))
        degrees = tuple(plan.degree_relations)
        types = tuple(plan.edge_types)
        return GraphRules(undirected=undirected, edge_types=types, weighted=weighted, degree_relations=degrees)
    return GraphRules(
        undirected=undirected,
        forbid_typed_loops=any(layer.one_loop for layer in plan.layers),
        edge_types=tuple(plan.edge_types) or None,
        out_degrees=any(layer.reads_out_degrees for layer in plan.layers),
        weighted=any(layer.edge.weighted for layer in plan.layers),
    )
