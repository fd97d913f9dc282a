"""Passes in chunks make the rows of the full pass in float64, whatever the budget, and stay within it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.oracles import kinds as oracle  # noqa: E402
from freshet.gnn.oracles import own_scale  # noqa: E402
from freshet.gnn.oracles.scaled import Scaled  # noqa: E402
from freshet.gnn.pyg.check import off  # noqa: E402
from freshet.gnn.torch_modules import registry  # noqa: E402
from freshet.gnn.torch_modules.chunked.device import DeviceMemoryError  # noqa: E402
from freshet.gnn.torch_modules.chunked.device_pass import plan_device_pass  # noqa: E402
from freshet.gnn.torch_modules.chunked.in_edges import EdgesByTarget, SourceNumbers  # noqa: E402
from freshet.gnn.torch_modules.chunked.peak import PeakBytes  # noqa: E402
from freshet.gnn.torch_modules.chunked.segment import ModelSegment  # noqa: E402
from freshet.kinds_graph import KindsGraph, RelationEdges  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support.graphs.chunked import chunked  # noqa: E402
from tests.support.graphs.kinds import (  # noqa: E402
    many_relations,
    random_kinds_graph,
    random_model_of_kinds,
    scaled_by_degrees,
)
from tests.support.graphs.models import all_small_models, conv, make_model  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402
from tests.support.graphs.torch_graphs import with_ids, with_parallel_edges  # noqa: E402

# of convs that are there in several widths, the two layers of them
MODELS = {name: make for name, make in all_small_models().items() if not name.endswith(("-narrowing", "-widening"))}
ROOMY = 1 << 30


def assert_rows(model: Model | KindsModel, graph: KindsGraph, wanted: dict[str, Scaled]) -> list[int]:
    """Compare the rows at three budgets; returns the chunks of each."""
    given, chunks = chunked(model, graph), []
    for memory in (given.least, 2 * given.least, ROOMY):
        with PeakBytes() as measured:
            rows, figures = given.rows(memory)
        assert list(wanted) and off([rows[kind] for kind in wanted], [*wanted.values()]) < 1e-6, memory
        assert measured.peak <= memory
        chunks.append(figures.chunks)
    return chunks


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_those_of_the_full_pass(name: str) -> None:
    model, seed = MODELS[name](), list(MODELS).index(name)
    graph = random_graph(seed, vertices=60, edges=400)
    graph = Graph(graph.x, *with_parallel_edges(RelationEdges(*graph[1:]), seed))
    wanted = {"": own_scale.forward(model, graph, tolerance=1e-9)}
    chunks = assert_rows(model, KindsGraph([graph.x], [RelationEdges(*graph[1:])]), wanted)
    assert chunks[0] > chunks[1] > chunks[2]


@pytest.mark.parametrize("seed", range(24))
def test_rows_of_kinds(seed: int) -> None:
    model = random_model_of_kinds(seed, strings=seed % 4 == 2)
    graph, _ = with_ids(model, random_kinds_graph(model, seed, vertices=60, edges=200), seed)
    assert_rows(model, graph, oracle.forward(model, graph, tolerance=1e-9))


@pytest.mark.parametrize("seed", range(2))
def test_rows_of_many_relations_and_of_degrees_by_relation(seed: int) -> None:
    for model in (many_relations(seed), scaled_by_degrees(seed)):
        graph = random_kinds_graph(model, seed)
        assert_rows(model, graph, oracle.forward(model, graph, tolerance=1e-9))


def test_kinds_without_vertices_and_edges() -> None:
    model = random_model_of_kinds(3)
    for vertices, edges in ((25, 0), (25, 3), (21, 1)):
        graph, _ = with_ids(model, random_kinds_graph(model, 1, vertices=vertices, edges=edges), 1)
        assert_rows(model, graph, oracle.forward(model, graph, tolerance=1e-9))


def test_rows_that_chunks_share_are_copied_once() -> None:
    """Neighbours of a path are in one chunk or in the next one, so that each row comes once."""
    model, count = make_model(1, [conv("sage_conv", 6, 4)]), 400
    graph = random_graph(1, vertices=count, edges=0)
    src = np.concatenate([np.arange(1, count), np.arange(count - 1)])
    dst = np.concatenate([np.arange(count - 1), np.arange(1, count)])
    path = Graph(graph.x, src, dst, random_graph(1, vertices=count, edges=9).values[np.zeros(len(src), np.int64)])
    given = chunked(model, KindsGraph([path.x], [RelationEdges(*path[1:])]))
    rows, figures = given.rows(2 * given.least)
    edges = sum(one.nbytes for one in (given.edges[0].src, given.edges[0].order)) + 4 * len(src)
    assert figures.chunks > 5
    shared = 2 * (figures.chunks - 1)
    assert figures.bytes_kept == shared * path.x[0].nbytes
    places = figures.bytes_copied - path.x.nbytes - edges
    assert 0 < places <= 8 * (count + shared) + 4 * shared
    assert off([rows[""]], [own_scale.forward(model, path)]) < 1e-6


def test_a_hub_decides_the_least_budget() -> None:
    model, graph = make_model(1, [conv("gatv2_conv", 6, 4)]), random_graph(1, vertices=50, edges=100)
    hub = graph._replace(dst=np.full(len(graph.dst), 7))
    given = [chunked(model, KindsGraph([graph.x], [RelationEdges(*one[1:])])) for one in (graph, hub)]
    assert given[1].least > 2 * given[0].least


def test_a_device_with_less_memory_than_was_said_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model, graph = make_model(1, [conv("sage_conv", 6, 4)]), random_graph(1, vertices=9, edges=9)
    given = chunked(model, KindsGraph([graph.x], [RelationEdges(*graph[1:])]))

    def compute(*_: object) -> None:
        msg = "CUDA out of memory"
        raise torch.OutOfMemoryError(msg)

    monkeypatch.setattr(ModelSegment, "compute", compute)
    with pytest.raises(DeviceMemoryError, match="give a smaller --device-memory"):
        given.rows(ROOMY)


def test_sources_are_numbered_and_found_in_the_chunk_before() -> None:
    numbers = SourceNumbers(9)
    numbers.begin(4)
    assert numbers.add(np.array([3, 5, 3, 8], np.int32)).tolist() == [0, 1, 0, 2]
    assert numbers.ids.tolist() == [3, 5, 8] and set(numbers.before.tolist()) == {-1}
    numbers.begin(9)
    assert numbers.add(np.array([8, 1], np.int32)).tolist() == [0, 1]
    assert numbers.add(np.array([3, 8], np.int32)).tolist() == [2, 0]
    assert numbers.before.tolist() == [2, -1, 0]
    numbers.begin(2)
    numbers.add(np.array([5, 1], np.int32))
    assert numbers.before.tolist() == [-1, 1], "5 was in the chunk before the last one alone"


def test_edges_of_a_target_keep_their_order() -> None:
    src, dst = np.array([4, 2, 3, 0], np.int32), np.array([1, 0, 1, 1], np.int32)
    found = EdgesByTarget.of(src, dst, 3, None, None)
    assert found.ends.tolist() == [0, 1, 4, 4]
    assert found.src.tolist() == [2, 4, 3, 0] and found.order.tolist() == [1, 0, 2, 3]
    assert found.first_seen(0, 3, np.zeros(5, np.int32), 1).tolist() == [1, 3, 0]


def test_peak_counts_what_is_there_at_a_time() -> None:
    given = torch.zeros(1000)
    with PeakBytes() as measured:
        twice = given.double() * 2
        del twice
        for _ in itertools.repeat(None, 3):
            given.view(10, 100).add_(1)
        assert given.sum() == 3000
    assert measured.peak == 2 * 8000


def test_a_conv_that_reads_degrees_without_saying_so_ends_before_the_first_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "DEGREES", {})
    for layer in (conv("gcn_conv", 6, 4), conv("laplacian", 6, 6)):
        with pytest.raises(TypeError, match="no entry in DEGREES"):
            plan_device_pass(make_model(1, [layer]), {0: 0})
