"""The rules of a graph, made once of a model and the options, and recorded with a Partitioner's configuration."""

from __future__ import annotations

import pytest

from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.plan import compile_plan
from freshet.operators.graph.rules import graph_rules
from freshet.operators.settings import Settings
from freshet.partitioner.config import GraphRules, PartitionerConfig
from tests.support.graphs.kinds import hetero, kinds_model, relation, sage
from tests.support.graphs.models import conv, make_model

GCN = conv("gcn_conv", 3, 2)
SUM = conv("graph_conv", 3, 2, edge_weights=False)


@pytest.mark.parametrize(
    ("layers", "edge_types", "undirected", "expected"),
    [
        ([GCN], [], False, GraphRules(forbid_typed_loops=True)),
        ([SUM], [], True, GraphRules(undirected=True, weighted=False)),
        ([SUM], ["cites", "writes"], False, GraphRules(edge_types=("cites", "writes"), weighted=False)),
    ],
)
def test_they_follow_from_the_model_and_the_options(
    layers: list[dict[str, object]], edge_types: list[str], undirected: bool, expected: GraphRules
) -> None:
    plan = compile_plan(make_model(1, layers, edge_types=edge_types))
    assert graph_rules(plan, undirected=undirected) == expected


def test_settings_record_them_and_say_them_again() -> None:
    rules = GraphRules(undirected=True, forbid_typed_loops=True, edge_types=("a", "b"), types_max=5)
    config = PartitionerConfig.of(rules, strategy="hdrf", hash_seed=7)
    assert (config.rules, config.strategy, config.hash_seed) == (rules, "hdrf", 7)
    settings = Settings("M", "O", 1, config)
    assert Settings.from_dict(settings.to_dict()).partitioning.rules == rules


def test_one_self_loop_is_asked_for_where_a_conv_adds_some_and_in_what_its_relation_mirrors() -> None:
    ends = [("user", "user")] * 4 + [("user", "item")]
    mirrors = {1: {"mirrors": 0}}
    relations = [relation(of, f"r{k}", to, **mirrors.get(k, {})) for k, (of, to) in enumerate(ends)]
    convs = {
        0: sage(4, 4, 4),
        1: conv("gcn_conv", 4, 4),
        2: conv("gcn_conv", 4, 4, add_self_loops=False),
        3: conv("gat_conv", 4, 4),
        4: sage(4, 3, 4),
    }
    model = kinds_model([hetero(convs, "sum")], ["user", "item"], {"user": 4, "item": 3}, relations, 1)
    rules = graph_rules(compile_kinds(model), undirected=False)
    assert (rules.one_loop_relations, rules.degree_relations) == ((0, 1), (1, 2))
    assert not rules.forbid_typed_loops
