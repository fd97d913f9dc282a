"""The rules of a job's graph, as its model and its options have them."""

from __future__ import annotations

from collections.abc import Sequence

from freshet.gnn.any_plan import AnyPlan
from freshet.operators.graph.layer_of_kinds import LayerOfKinds
from freshet.partitioner.config import GraphRules


def degree_relations(plan: AnyPlan) -> tuple[int, ...]:
    """Return the numbers of the relations of which layers read degrees."""
    layers: Sequence[LayerOfKinds] = plan.layers
    kinds = [one for layer in layers for one in layer.kinds if one is not None]
    found = {number for one in kinds for number in (*one.read_degrees, *one.sent_degrees)}
    return tuple(sorted(number for number in found if number is not None))


def graph_rules(plan: AnyPlan, *, undirected: bool) -> GraphRules:
    """Return the rules of a graph that a job with this plan runs on."""
    layers: Sequence[LayerOfKinds] = plan.layers
    relations = [one for layer in layers for one in layer.relations]
    alone = {number for one in relations if one.one_loop for number in one.numbers}
    if (kinds := plan.features.kinds) is not None:  # what events add in a relation, they add in its mirror
        alone |= {number for number, mirror in enumerate(kinds.mirrors().tolist()) if mirror in alone}
    return GraphRules(
        undirected=undirected,
        forbid_typed_loops=any(one.one_loop and not one.numbers for one in relations),
        edge_types=tuple(plan.edge_types) or None,
        out_degrees=any(one is not None and one.reads_out_degrees for layer in layers for one in layer.kinds),
        weighted=any(one.edge.weighted for one in relations),
        degree_relations=degree_relations(plan),
        one_loop_relations=tuple(sorted(alone)),
    )
