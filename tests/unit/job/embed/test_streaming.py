"""What the state of a streaming job takes of memory while it is made."""

from __future__ import annotations

import pytest

from freshet.gnn.plan import compile_plan
from freshet.job.embed.needs import Needs, lines_of_placing, placing_memory
from freshet.job.errors import UsageError
from freshet.job.options.partitioning_options import PartitioningOptions
from freshet.partitioner.placement.whole_graph import EDGES_MAX
from tests.support.graphs.models import IN_WIDTH, conv, make_model

MIB = 1 << 20
PLACED = PartitioningOptions(parts=4)
EDGE_BY_EDGE = PartitioningOptions(parts=4, snapshot_placement="stream")


def needs(edges: int) -> Needs:
    plan = compile_plan(make_model(1, [conv("sage_conv", IN_WIDTH, 4)]))
    return Needs(plan, by_kind=(1000,), by_relation=(edges,), text=0, files=0)


def test_a_graph_that_is_placed_whole_takes_more_memory() -> None:
    some = needs(1_000_000)
    assert placing_memory(some, PLACED) > 2 * placing_memory(some, EDGE_BY_EDGE)
    for name in ("hdrf", "hash"):
        same = PartitioningOptions(parts=4, partitioner=name)
        assert placing_memory(some, same) == placing_memory(some, EDGE_BY_EDGE)
    one, by_edge = PartitioningOptions(), PartitioningOptions(parts=1, snapshot_placement="stream")
    assert placing_memory(some, one) == placing_memory(some, by_edge)
    large = needs(EDGES_MAX + 1)
    assert placing_memory(large, PLACED) == placing_memory(large, EDGE_BY_EDGE), "it comes as a stream in any case"


def test_the_other_placement_is_named_where_it_would_do() -> None:
    some = needs(1_000_000)
    with pytest.raises(UsageError, match=r"give 29\dMiB or more, or --snapshot-placement stream, or --for serving"):
        lines_of_placing(some, 200 * MIB, PLACED, ["or --for serving"])
    assert "placing the graph" in lines_of_placing(some, 200 * MIB, EDGE_BY_EDGE)[1]
    with pytest.raises(UsageError, match=r"[0-9]MiB or more$"):
        lines_of_placing(some, MIB, PLACED)
