"""Prints the kernels that cores of models with kinds call, one encoded call a line."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from freshet.gnn.kinds.model import KindsModel
from freshet.kernels.kernel_calls import encode, noted_calls
from freshet.state.task_parts import TaskParts
from tests.support.graphs.kind_streams import random_rows
from tests.support.graphs.kinds import KINDS, by_kind, hetero, kinds_model, many_relations, relation, sage
from tests.support.graphs.messages import message_conv, messages_by_kind, rows, step, through
from tests.support.stages.kind_cores import KindCores

_RELATIONS = [
    relation("user", "rates", "item", edge_features=2),
    relation("item", "rev_rates", "user", mirrors=0, edge_features=2),
    relation("user", "follows", "user"),
]


def with_loops(aggr: str | list[str], out: int, **options: Any) -> KindsModel:
    """Return a model whose messages within a kind have self-loops that a conv adds or leaves out."""
    program = [through("source", 6, 4), through("target", 6, 4, bias=False), step("add", "0", "1"), rows("2", "relu")]
    conv = message_conv(6, out, *program, aggr=aggr, **options)
    relations = [relation("user", "follows", "user"), relation("item", "of", "user")]
    return kinds_model([hetero({0: conv, 1: sage(4, 6, out)})], ["user"], KINDS, relations)


def main() -> None:
    """Play jobs of one part and of several, with sums, extrema, attention, attributes and many relations."""
    np.seterr(all="ignore")
    gat = {"type": "gat_conv", "out_channels": 4, "heads": 2, "add_self_loops": False}
    first = {
        0: gat | {"in_channels": 6, "target_channels": 4, "edge_channels": 2},
        1: sage(4, 6, 4, aggr=["mean", "max"]),
        2: gat | {"in_channels": 6, "target_channels": 6},
    }
    second = {0: sage(4, 4, 3), 1: sage(4, 4, 3, aggr="max"), 2: sage(4, 4, 3, aggr="std")}
    relus = by_kind(user=[{"type": "relu"}], item=[{"type": "relu"}])
    model = kinds_model([hetero(first), relus, hetero(second)], ["user", "item"], KINDS, _RELATIONS)
    loops = [
        with_loops(["max", "mean"], 8, add_self_loops=True, self_value=0.5),
        with_loops("softmax", 3, add_self_loops=True, existing_loops="beside"),
        with_loops("std", 4, existing_loops="drop"),
    ]
    for one in (model, many_relations(0), many_relations(1), *map(messages_by_kind, range(2)), *loops):
        for parts in ([1], [2, 1], [1, 1]):
            cores, rng = KindCores(one, [TaskParts.of(parts)]), np.random.default_rng(0)
            for _ in range(4):
                cores.run(random_rows(cores.graph, rng, 20))
    for call in noted_calls():
        sys.stdout.buffer.write(encode(call))


if __name__ == "__main__":
    main()
