"""What the state of a streaming job takes of memory while it is made."""

from __future__ import annotations

import pytest

from freshet.job.embed.needs import Needs
from freshet.job.embed.streaming import Placement, memory_lines, placing_memory
from freshet.job.errors import UsageError
from freshet.partitioner.placement.whole_graph import EDGES_MAX
from freshet.schema import Features

MIB = 1 << 20
PLACED = Placement(parts=4)
EDGE_BY_EDGE = Placement(parts=4, snapshot_placement="stream")


def needs(edges: int) -> Needs:
    return Needs(
        vertices=1000, edges=edges, text=0, shapes=[], layers=[], features=Features(8), weighted=False, files=0
    )


def test_a_graph_that_is_placed_whole_takes_more_memory() -> None:
    some = needs(1_000_000)
    assert placing_memory(some, PLACED) > 2 * placing_memory(some, EDGE_BY_EDGE)
    for same in (Placement(4, "hdrf"), Placement(4, "hash")):
        assert placing_memory(some, same) == placing_memory(some, EDGE_BY_EDGE)
    assert placing_memory(some, Placement(1)) == placing_memory(some, Placement(1, snapshot_placement="stream"))
    large = needs(EDGES_MAX + 1)
    assert placing_memory(large, PLACED) == placing_memory(large, EDGE_BY_EDGE), "it comes as a stream in any case"


def test_the_other_placement_is_named_where_it_would_do() -> None:
    some = needs(1_000_000)
    with pytest.raises(UsageError, match=r"give 29\dMiB or more, or --snapshot-placement stream, or --for serving"):
        memory_lines(some, 200 * MIB, PLACED)
    assert "placing the graph" in memory_lines(some, 200 * MIB, EDGE_BY_EDGE)[1]
    with pytest.raises(UsageError, match="or more, or --for serving"):
        memory_lines(some, MIB, PLACED)
