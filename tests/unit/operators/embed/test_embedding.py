"""Out of core, every layer gives what the oracle gives, whatever the budget, the passes and who is evicted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from freshet.gnn.model import Model
from freshet.gnn.oracles import own_scale
from freshet.gnn.plan import compile_plan
from freshet.gnn.synopses.of_messages import Synopsis
from freshet.operators.embed.embedding import Embedding
from freshet.operators.embed.engine import EngineOptions, UnsupportedModelError
from freshet.operators.embed.files import EmbedError
from freshet.operators.embed.memory_plan import BudgetError, file_block_rows, layer_memory, shape_of
from freshet.operators.snapshot.reader import SnapshotError, open_snapshot
from freshet.operators.snapshot.writer import write_snapshot
from freshet.schema import Features, Graph
from tests.support import oracle
from tests.support.graphs.data import data_set
from tests.support.graphs.models import IN_WIDTH, all_small_models, conv, make_model, models_without_attributes
from tests.support.graphs.random_graphs import random_graph, weighted
from tests.support.stages.embedded import SMALL, WIDE, embed, file_bytes, read_rows, write_graph

TOLERANCE = 1e-5
VERTICES = 400


@pytest.fixture(scope="module")
def graph() -> Graph:
    return random_graph(1, vertices=VERTICES, edges=3000)


@pytest.fixture(scope="module")
def snapshot(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graph(tmp_path_factory.mktemp("graph") / "S", graph, np.arange(VERTICES) * 7)


def assert_is_oracles(model: Model, graph: Graph, rows: np.ndarray) -> None:
    want = own_scale.forward(model, graph, tolerance=TOLERANCE)
    assert rows.shape == want.rows.shape
    assert (np.abs(rows - want.rows) <= TOLERANCE * want.scale + np.finfo(np.float32).tiny).all()


@pytest.mark.parametrize("name", models_without_attributes())
def test_every_layer_equals_the_oracle(name: str, graph: Graph, snapshot: Path, tmp_path: Path) -> None:
    model = all_small_models()[name]()
    shapes = [shape_of(layer) for layer in compile_plan(model).layers]
    report = embed(model, snapshot, tmp_path, EngineOptions(SMALL, slots=60))
    rows = read_rows(tmp_path)
    assert list(rows) == (np.arange(VERTICES) * 7).tolist()
    assert_is_oracles(model, graph, np.stack(list(rows.values())))
    evicted = [layer.counts.evicted for layer in report.layers]
    assert [count == 0 for count in evicted] == [shape.held > 0 for shape in shapes]
    assert sum(evicted) == report.total("reloaded") and sum(evicted) >= VERTICES * sum(
        not shape.held for shape in shapes
    )
    assert report.total("graduated") == VERTICES * len(report.layers)


LAYERS = [conv("gcn_conv", IN_WIDTH, 9), {"type": "relu"}, conv("sage_conv", 9, 4), conv("graph_conv", 4, 5)]


@pytest.mark.parametrize(
    "options",
    [
        EngineOptions(SMALL),
        EngineOptions(SMALL, passes=4),
        EngineOptions(SMALL, passes=4, slots=20),
        EngineOptions(SMALL, passes=None, slots=50),
        *(EngineOptions(SMALL, eviction=name, slots=40) for name in ("min-pending", "lru", "random", "next-use")),
        EngineOptions(SMALL, slots=1),
        EngineOptions(3 * SMALL, passes=2, slots=100),
    ],
    ids=str,
)
def test_every_bit_is_the_same(options: EngineOptions, snapshot: Path, tmp_path: Path) -> None:
    model = make_model(3, LAYERS)
    embed(model, snapshot, tmp_path / "wide")
    embed(model, snapshot, tmp_path / "other", options)
    assert file_bytes(tmp_path / "wide") == file_bytes(tmp_path / "other")


HELD = [
    name
    for name, make in models_without_attributes().items()
    if name.endswith("2-layers") and all(shape_of(layer).held for layer in compile_plan(make()).layers)
]


@pytest.mark.parametrize("name", HELD)
def test_every_bit_is_the_same_where_all_destinations_are_held(name: str, snapshot: Path, tmp_path: Path) -> None:
    model = all_small_models()[name]()
    assert embed(model, snapshot, tmp_path / "wide").layers[0].passes == 1
    for options in (EngineOptions(SMALL), EngineOptions(WIDE, passes=5), EngineOptions(SMALL, passes=None)):
        folder = tmp_path / str(options)
        report = embed(model, snapshot, folder, options)
        assert report.layers[0].passes >= (options.passes or 1)
        assert report.total("graduated") == 2 * VERTICES
        assert file_bytes(tmp_path / "wide") == file_bytes(folder)


def test_held_layers_take_more_passes_where_memory_is_small_and_say_when_there_is_none(
    graph: Graph, snapshot: Path, tmp_path: Path
) -> None:
    model = make_model(3, [conv("gat_conv", IN_WIDTH, 64, heads=4), conv("sage_conv", 64, 5, aggr="max")])
    report = embed(model, snapshot, tmp_path, EngineOptions(3 * SMALL))
    assert report.layers[0].passes > 1
    assert_is_oracles(model, graph, np.stack(list(read_rows(tmp_path).values())))
    with pytest.raises(BudgetError, match="too few for 400 vertices"):
        embed(model, snapshot, tmp_path / "less", EngineOptions(20_000))


@pytest.mark.parametrize("name", ["gat_conv-default-2-layers", "edge_conv-max-2-layers", "sage_conv-several-2-layers"])
def test_held_layers_of_a_hub_in_the_order_of_completion(name: str, tmp_path: Path) -> None:
    """Its edges come in several chunks; its loop counts as the layer says."""
    n = 300
    every = np.arange(n)
    src, dst = np.r_[np.zeros(n, np.int64), every[1:]], np.r_[every, np.zeros(n - 1, np.int64)]
    x = np.random.default_rng(0).standard_normal((n, IN_WIDTH)).astype(np.float32)
    graph = weighted(x, src, dst, np.linspace(0.5, 2, len(src)).astype(np.float32))
    write_graph(tmp_path / "S", graph)
    model = all_small_models()[name]()
    report = embed(model, tmp_path / "S", tmp_path, EngineOptions(SMALL), order="completion")
    assert report.layers[0].counts.chunks > 2 * n // 64
    rows = read_rows(tmp_path)
    assert_is_oracles(model, graph, np.stack([rows[k] for k in range(n)]))


def test_a_lost_edge_is_noticed_where_all_destinations_are_held(snapshot: Path, tmp_path: Path) -> None:
    model = all_small_models()["gat_conv-default-2-layers"]()

    def lose(line: str) -> None:
        if line.startswith("layer 1 of"):
            path = tmp_path / "work" / "dst"
            edges = np.fromfile(path, np.int32)
            edges[7] = (edges[7] + 1) % VERTICES
            edges.tofile(path)

    with pytest.raises(EmbedError, match=r"2 of 400 vertices did not get their messages: the topology is damaged"):
        embed(model, snapshot, tmp_path, EngineOptions(WIDE), progress=lose)


def test_min_pending_evicts_less_than_random_and_next_use_least(snapshot: Path, tmp_path: Path) -> None:
    model = make_model(3, [conv("sage_conv", IN_WIDTH, 4)])
    reloaded = {
        name: embed(model, snapshot, tmp_path / name, EngineOptions(SMALL, eviction=name, slots=80)).total("reloaded")
        for name in ("min-pending", "random", "next-use")
    }
    assert 0 < reloaded["next-use"] < reloaded["min-pending"] < reloaded["random"]


def test_the_order_of_completion_gives_the_same_embeddings(graph: Graph, snapshot: Path, tmp_path: Path) -> None:
    model = make_model(3, LAYERS)
    embed(model, snapshot, tmp_path, EngineOptions(SMALL, slots=80), order="completion")
    rows = read_rows(tmp_path)
    assert sorted(rows) == (np.arange(VERTICES) * 7).tolist() != list(rows)
    assert_is_oracles(model, graph, np.stack([rows[k] for k in sorted(rows)]))


def test_order_of_completion_reloads_less(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    n, m = 3000, 20_000
    src, dst = rng.integers(0, n, m), (rng.power(0.3, m) * n).astype(np.int64)
    pairs = np.unique(src * n + dst)
    x = rng.standard_normal((n, IN_WIDTH)).astype(np.float32)
    graph = weighted(x, pairs // n, pairs % n, np.ones(len(pairs), np.float32))
    write_graph(tmp_path / "S", graph)
    model = make_model(3, [conv("sage_conv", IN_WIDTH, 4)])
    options = EngineOptions(1 << 20, slots=600)
    reloads = [
        embed(model, tmp_path / "S", tmp_path / order, options, order=order).total("reloaded")
        for order in ("given", "completion")
    ]
    assert reloads[1] < reloads[0]


def test_a_hub_comes_in_several_chunks_and_several_pieces(tmp_path: Path) -> None:
    n = 300
    every = np.arange(n)
    src, dst = np.r_[np.zeros(n, np.int64), every[1:]], np.r_[every, np.zeros(n - 1, np.int64)]
    x = np.random.default_rng(0).standard_normal((n, IN_WIDTH)).astype(np.float32)
    graph = weighted(x, src, dst, np.linspace(0.5, 2, len(src)).astype(np.float32))
    write_graph(tmp_path / "S", graph)
    model = make_model(3, LAYERS)
    report = embed(model, tmp_path / "S", tmp_path, EngineOptions(SMALL, slots=20))
    counts, shape = report.layers[0].counts, shape_of(compile_plan(model).layers[0])
    planned = layer_memory(SMALL, n, shape, 1, file_block_rows(SMALL, n, shape.out), next_use=False)
    assert planned.chunk_edges < n / 2
    assert counts.chunks >= -(-n // planned.chunk_edges) + -(-(n - 1) // planned.chunk_rows)
    assert counts.pieces > counts.chunks
    assert_is_oracles(model, graph, np.stack(list(read_rows(tmp_path).values())))


def test_string_ids(graph: Graph, tmp_path: Path) -> None:
    names = [f"vertex {k}" if k % 3 else "ü" * (k // 3) + "-" for k in range(VERTICES)]
    write_graph(tmp_path / "S", graph, names)
    model = make_model(3, LAYERS)
    embed(model, tmp_path / "S", tmp_path, EngineOptions(SMALL, slots=50))
    rows = read_rows(tmp_path)
    assert list(rows) == names
    assert_is_oracles(model, graph, np.stack(list(rows.values())))


def test_the_last_of_equal_rows_holds_and_unknown_ends_are_zeros(tmp_path: Path) -> None:
    x = np.arange(5 * IN_WIDTH, dtype=np.float32).reshape(5, IN_WIDTH)
    src, dst, weight = [1, 2, 1, 9, 3], [2, 2, 2, 1, 8], np.array([5, 1, 0.5, 2, 1], np.float32)
    write_snapshot(tmp_path / "S", [1, 2, 3, 1, 3], x, src, dst, weight)
    model = make_model(0, [conv("graph_conv", IN_WIDTH, 3)])
    embed(model, tmp_path / "S", tmp_path)
    rows = read_rows(tmp_path)
    assert list(rows) == [1, 2, 3, 9, 8]
    real = np.stack([x[3], x[1], x[4], np.zeros(IN_WIDTH), np.zeros(IN_WIDTH)])
    clean = weighted(real, np.array([0, 1, 3, 2]), np.array([1, 1, 0, 4]), np.array([0.5, 1, 2, 1], np.float32))
    assert_is_oracles(model, clean, np.stack(list(rows.values())))


def test_undirected_mirrors_every_edge_and_a_loop_once(graph: Graph, snapshot: Path, tmp_path: Path) -> None:
    model = make_model(3, LAYERS)
    report = embed(model, snapshot, tmp_path, undirected=True)
    # of an edge that stands both ways, the later one's weight
    both: dict[tuple[int, int], float] = {}
    for u, v, w in zip(graph.src.tolist(), graph.dst.tolist(), graph.values.weight.tolist(), strict=True):
        both[u, v] = both[v, u] = w
    pairs = np.array(list(both))
    mirrored = weighted(graph.x, pairs[:, 0], pairs[:, 1], np.array(list(both.values()), np.float32))
    assert report.edges == len(pairs)
    assert_is_oracles(model, mirrored, np.stack(list(read_rows(tmp_path).values())))


def test_edges_of_several_types_are_messages_of_their_own(tmp_path: Path) -> None:
    x = np.eye(4, IN_WIDTH, dtype=np.float32)
    src, dst, types = [0, 0, 1, 0, 2], [1, 1, 2, 1, 2], ["a", "b", None, "a", "b"]
    weight = np.array([9, 2, 3, 1, 4], np.float32)
    write_snapshot(tmp_path / "S", range(4), x, src, dst, weight, edge_type=types)
    model = make_model(1, [conv("graph_conv", IN_WIDTH, 3)])
    report = embed(model, tmp_path / "S", tmp_path, order="completion")
    assert report.edges == 4
    want = oracle.forward(
        model, weighted(x, np.array([0, 0, 1, 2]), np.array([1, 1, 2, 2]), np.array([2, 1, 3, 4], np.float32))
    )[-1]
    rows = read_rows(tmp_path)
    assert np.allclose([rows[k] for k in range(4)], want, atol=1e-6)


def test_a_loop_of_a_second_type_is_refused_by_gcn(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "S", [1, 7], np.ones((2, IN_WIDTH)), [7, 7], [7, 7], edge_type=["a", "b"])
    with pytest.raises(SnapshotError, match="7 -> 7: a self-loop of a second edge type"):
        embed(make_model(1, [conv("gcn_conv", IN_WIDTH, 3)]), tmp_path / "S", tmp_path)


def test_graphs_without_edges_and_without_vertices(tmp_path: Path) -> None:
    model = make_model(3, LAYERS)
    x = np.ones((3, IN_WIDTH), np.float32)
    none = np.empty(0, np.int64)
    write_snapshot(tmp_path / "S", [5, 6, 7], x, none, none)
    embed(model, tmp_path / "S", tmp_path / "edgeless")
    rows = np.stack(list(read_rows(tmp_path / "edgeless").values()))
    assert_is_oracles(model, weighted(x, none, none, np.empty(0, np.float32)), rows)
    write_snapshot(tmp_path / "E", none, np.empty((0, IN_WIDTH)), none, none)
    assert embed(model, tmp_path / "E", tmp_path / "empty").vertices == 0


def test_a_synopsis_that_is_no_sum_is_refused_by_name(snapshot: Path, tmp_path: Path) -> None:
    plan = compile_plan(make_model(3, [conv("sage_conv", IN_WIDTH, 4)]))
    plan.layers[0].synopsis = Synopsis()  # type: ignore[assignment]
    with pytest.raises(
        UnsupportedModelError, match=r"layer 1 \(sage_conv\) keeps a Synopsis, which is not kept out of core"
    ):
        Embedding(plan, open_snapshot(snapshot, Features(IN_WIDTH)), tmp_path, tmp_path, EngineOptions(SMALL))


def test_a_budget_that_is_too_small_is_refused(snapshot: Path, tmp_path: Path) -> None:
    model = make_model(3, [conv("sage_conv", IN_WIDTH, 4)])
    with pytest.raises(BudgetError, match="too few for 400 vertices"):
        embed(model, snapshot, tmp_path, EngineOptions(20_000))


def test_cora(tmp_path: Path) -> None:
    folder = data_set("cora")
    edges, rows = pq.read_table(folder / "edges.parquet"), pq.read_table(folder / "features.parquet")
    x = np.zeros((len(rows), 1433), np.float32)
    for k, words in enumerate(rows["indices"].to_pylist()):
        x[k, words] = 1
    src, dst = edges["src"].to_numpy(), edges["dst"].to_numpy()
    graph = weighted(x, src, dst, np.random.default_rng(0).uniform(0.5, 2, len(src)).astype(np.float32))
    model = make_model(2, [conv("gcn_conv", graph.x.shape[1], 16), {"type": "relu"}, conv("sage_conv", 16, 7)])
    write_graph(tmp_path / "S", graph)
    embed(model, tmp_path / "S", tmp_path, EngineOptions(4 << 20, slots=500))
    assert_is_oracles(model, graph, np.stack(list(read_rows(tmp_path).values())))


def test_steps_that_are_finished_are_not_done_again(snapshot: Path, tmp_path: Path) -> None:
    model = make_model(3, LAYERS)
    embed(model, snapshot, tmp_path / "whole")
    options = EngineOptions(SMALL, passes=3)
    plan = compile_plan(model)
    lines: list[str] = []

    class Enough(Exception):
        pass

    def stop_at(line: str) -> None:
        lines.append(line)
        if line.startswith("layer 2 of 3, pass 2"):
            raise Enough

    work = tmp_path / "work"
    work.mkdir()
    opened = open_snapshot(snapshot, plan.features)
    with pytest.raises(Enough):
        Embedding(plan, opened, work, tmp_path, options, progress=stop_at).run()
    lines.clear()
    report = embed(model, snapshot, tmp_path, options, progress=lines.append)
    assert report.resumed
    assert not [line for line in lines if line.startswith(("reading", "sorting", "layer 1", "layer 2 of 3, pass 1"))]
    assert report.total("graduated") == 3 * VERTICES
    assert file_bytes(tmp_path) == file_bytes(tmp_path / "whole")
