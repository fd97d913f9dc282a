"""Any snapshot's base image, made part by part with any memory, is the one that is made in memory, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from freshet.partitioner.config import STRATEGIES
from tests.property.test_embed_equals_oracle import graphs
from tests.support.graphs.models import random_model
from tests.support.graphs.random_graphs import Graph
from tests.support.stages.embedded import write_graph
from tests.support.stages.images import epoch_0, image_files, image_settings, in_memory, out_of_core
from tests.support.stages.in_memory import folder_in_memory

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
DRAWN = {
    "graph": graphs(),
    "seed": st.integers(0, 199),
    "parts": st.sampled_from([1, 1, 2, 4, 20]),
    "strategy": st.sampled_from(STRATEGIES),
    "undirected": st.booleans(),
    "strings": st.booleans(),
    "memory": st.sampled_from([1, 1 << 24]),
}


@settings(max_examples=10, deadline=None, phases=PHASES)
@given(**DRAWN)
def test_an_image_is_that_of_one_epoch_in_memory(**drawn: Any) -> None:
    assert_same(**drawn)


@pytest.mark.long
@settings(max_examples=50, deadline=None, phases=PHASES)
@given(**DRAWN)
def test_fifty_images_are_those_of_one_epoch_in_memory(**drawn: Any) -> None:
    assert_same(**drawn)


def assert_same(
    graph: Graph, seed: int, parts: int, strategy: str, undirected: bool, strings: bool, memory: int
) -> None:
    """Hold the image that is made part by part against that made in memory."""
    model = random_model(seed)
    ids = [f"v{k}" * (k % 5) + str(k) for k in range(len(graph.x))] if strings else list(range(len(graph.x)))
    with folder_in_memory() as folder:
        snapshot = write_graph(folder / "S", graph, ids)
        made = {}
        for name, build in (("whole", in_memory), ("parts", lambda *given: out_of_core(*given, memory))):
            told = image_settings(
                model, snapshot, folder / name, parts, strategy=strategy, undirected=undirected, hash_seed=5
            )
            build(told, snapshot)
            made[name] = image_files(told), epoch_0(told)
        whole, ours = made["whole"], made["parts"]
        assert sorted(whole[0]) == sorted(ours[0])
        assert [name for name in whole[0] if whole[0][name] != ours[0][name]] == []
        assert whole[1] == ours[1]
        assert len(ours[1]) == len(np.unique(list(ids)))
