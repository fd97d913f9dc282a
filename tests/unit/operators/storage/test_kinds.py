"""Storages and Tails of models with kinds, held against a full pass over the graph after each epoch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from freshet.gnn.kinds.model import KindsModel
from freshet.operators.storage.layer import LayerStorage
from freshet.state.task_parts import TaskParts
from tests.support.graphs.kind_streams import random_rows
from tests.support.graphs.kinds import (
    KINDS,
    Spec,
    by_kind,
    hetero,
    kinds_model,
    relation,
    sage,
    sage_everywhere,
    scaled_by_degrees,
)  # fmt: skip
from tests.support.graphs.messages import messages_by_kind
from tests.support.stages.kind_cores import KindCores

DEALT = {
    "one part": [TaskParts.of([1])],
    "a task each": [TaskParts.dealt(3, 3)],
    "several in a task": [TaskParts.of([2, 1])],
    "layers dealt otherwise": [TaskParts.of([2, 1]), TaskParts.of([1, 2]), TaskParts.of([3])],
}


def two_layers(*out: str) -> KindsModel:
    layers = [sage_everywhere(KINDS, 6), sage_everywhere(dict.fromkeys(KINDS, 6), 4, aggr="max")]
    return kinds_model(layers, out)


def follow(cores: KindCores, seed: int, epochs: int = 8) -> None:
    rng = np.random.default_rng(seed)
    for epoch in range(epochs):
        cores.run(random_rows(cores.graph, rng, 12 if epoch else 40))
        cores.assert_right()


@pytest.mark.parametrize("dealt", DEALT)
def test_two_layers_are_those_of_a_full_pass(dealt: str) -> None:
    follow(KindCores(two_layers("user", "item"), DEALT[dealt]), seed=1)


RATED = [
    relation("user", "rates", "item", edge_features=2),
    relation("item", "rev_rates", "user", mirrors=0, edge_features=2),
    relation("user", "follows", "user"),
    relation("shop", "sells", "item"),
]


def attention(kind: str, width: int, target: int, **more: object) -> Spec:
    loops: Spec = {} if kind == "transformer_conv" else {"add_self_loops": False}
    return {
        "type": kind,
        "in_channels": width,
        "target_channels": target,
        "out_channels": 4,
        "heads": 2,
        **loops,
        **more,
    }


def chained(kind: str, width: int, **more: object) -> Spec:
    nn = [{"type": "linear", "in_channels": 2 * width if kind == "edge_conv" else width, "out_channels": 4}]
    return {"type": kind, "in_channels": width, "out_channels": 4, "nn": [*nn, {"type": "relu"}], **more}


def different_convs() -> KindsModel:
    """Attention with attributes and without, one of them within a kind with self-loops; sums of weights."""
    first = {
        0: attention("gat_conv", 6, 4, edge_channels=2),
        1: attention("gatv2_conv", 4, 6),
        2: attention("gat_conv", 6, 6, add_self_loops=True, target_channels=None),
        3: {**sage(5, 4, 4), "type": "graph_conv"},
    }
    second = {
        0: attention("transformer_conv", 4, 4, edge_channels=2),
        1: attention("gat_conv", 4, 4),
        2: chained("edge_conv", 4, aggr="max"),
    }
    relus = by_kind(user=[{"type": "relu"}], item=[{"type": "relu"}])
    return kinds_model([hetero(first), relus, hetero(second, "mean")], ["item", "user"], KINDS, RATED)


def side_by_side() -> KindsModel:
    """Relations side by side, messages of networks, several aggregators; a kind that nothing reads any more."""
    equal = {"user": 4, "item": 4, "shop": 4}
    first = {
        0: chained("gine_conv", 4, edge_channels=2),
        1: chained("gin_conv", 4, eps=0.5),
        2: sage(4, 4, 4, aggr=["mean", "max", "std"]),
        3: chained("edge_conv", 4, aggr="sum"),
    }
    second = {0: sage(8, 8, 3, aggr="mean"), 2: sage(8, 8, 3, aggr="min", root_weight=False)}
    return kinds_model([hetero(first, "cat"), hetero(second, "max")], ["user"], equal, RATED)


def by_degrees() -> KindsModel:
    """Two layers, in which several relations scale by degrees, of the same vertices."""
    return scaled_by_degrees(1)


@pytest.mark.parametrize("dealt", DEALT)
@pytest.mark.parametrize("make", [different_convs, side_by_side, by_degrees, partial(messages_by_kind, 1)])
def test_convs_of_all_kinds_are_those_of_a_full_pass(make: Callable[[], KindsModel], dealt: str) -> None:
    follow(KindCores(make(), DEALT[dealt]), seed=2)


def test_relations_that_send_the_same_rows_share_them() -> None:
    cores = KindCores(two_layers("user", "item"), DEALT["several in a task"])
    storage = cores.storages[1][0]
    assert isinstance(storage, LayerStorage)
    names = {table.name for table in storage.tables}
    tables = {one.plan.number: one.store.z for one in storage.relations}
    assert tables[0] is tables[4] and tables[1] is tables[3], "users buy and follow; items have two mirrors"
    assert {name for name in names if name.endswith(".z")} == {"r0.z", "r1.z", "r2.z"}
    widths = {kind: one.plan.message_width for kind, one in storage.kinds.items()}
    assert widths == {0: 6, 1: 4, 2: 5} and not {name for name in names if name.endswith(".own")}


def test_one_kind_that_is_returned_has_the_columns_of_a_job_without_kinds() -> None:
    cores = KindCores(two_layers("item"), DEALT["several in a task"])
    follow(cores, seed=3)
    assert {kind for kind, _ in cores.rows} == {1}


@pytest.mark.parametrize("dealt", ["one part", "several in a task"])
def test_it_goes_on_from_its_tables(dealt: str) -> None:
    cores = KindCores(two_layers("user", "shop"), DEALT[dealt])
    follow(cores, seed=4, epochs=4)
    cores.restore()
    follow(cores, seed=5, epochs=4)


@pytest.mark.parametrize("loops", [False, True])
def test_a_self_loop_alone_is_read_again(loops: bool) -> None:
    """Where no message is scaled, and self-loops are none: neither rows nor sums change with it."""
    hop = {"type": "propagation", "in_channels": 2, "out_channels": 2, "normalize": False, "add_self_loops": loops}
    model = kinds_model([hetero({0: hop})], ["user"], {"user": 2}, [relation("user", "knows", "user")])
    cores = KindCores(model, DEALT["one part"])
    cores.run([("add_vertex", (0, 1), (1.0, 3.0)), ("add_edge", 0, 2, 1)])
    for row in (("add_edge", 0, 1, 1, 2.0), ("add_edge", 0, 1, 1, 5.0), ("del_edge", 0, 1, 1)):
        cores.run([row])
        cores.assert_right()


@pytest.mark.parametrize("make", [partial(two_layers, "user"), by_degrees])
def test_a_graph_that_goes_leaves_nothing(make: Callable[[], KindsModel]) -> None:
    cores = KindCores(make(), DEALT["several in a task"])
    follow(cores, seed=6, epochs=3)
    cores.run([("del_vertex", vertex) for vertex in list(cores.graph.x)])
    cores.assert_right()
    assert not cores.rows
    for core in cores.cores:
        for table in core.tables:
            if table.name.endswith((".z", ".s", ".x", ".own", ".flags", ".q", ".home", ".count", ".degree", ".loop")):
                np.testing.assert_array_equal(table.data, np.full_like(table.data, table.fill), err_msg=table.name)
