"""A snapshot read as columns is the graph that its rows make one by one, also while events change it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.errors import UsageError
from freshet.job.results.plain_graph import PlainGraph
from freshet.job.results.plain_reader import snapshot_events
from freshet.job.results.plain_rules import Event, PlainRules
from freshet.job.results.plain_snapshot import read_snapshot
from freshet.partitioner.config import GraphRules
from freshet.schema import Features, edge_row

WIDTH = 2
ONE_LOOP = GraphRules(forbid_typed_loops=True)
INT, STRING = "int", "string"
WORDS = np.array(["a", "b", "cites", ""])


def saved(folder, kind, rng, typed=False, loops=True, **columns):
    """Some vertices, some of them twice, and edges, many of them twice, also of vertices that are not there."""
    ids, m = rng.integers(0, 12, 14), 60
    src, dst = rng.integers(0, 16, (2, m))
    if not loops:
        dst = np.where(src == dst, (dst + 1) % 16, dst)
    named = (lambda some: [f"v{one}" for one in some]) if kind == STRING else (lambda some: some.tolist())
    x = [None if k % 5 == 0 else row for k, row in enumerate(rng.integers(-3, 4, (14, WIDTH)).astype(float).tolist())]
    vertices = {"id": named(ids), "x": pa.array(x, pa.list_(pa.float32()))}
    weights = [None if k % 7 == 0 else float(k % 9) for k in range(m)]
    edges = {"src": named(src), "dst": named(dst), "weight": pa.array(weights, pa.float64())}
    if typed:
        edges["type"] = [None if k % 4 == 0 else str(word) for k, word in enumerate(rng.choice(WORDS[:3], m))]
    pq.write_table(pa.table(vertices | {n: c for n, c in columns.items() if n == "x"}), folder / "vertices.parquet")
    pq.write_table(pa.table(edges | {n: c for n, c in columns.items() if n != "x"}), folder / "edges.parquet")


def row_by_row(folder, rules, **options):
    graph = PlainGraph(Features(WIDTH), GraphRules(**options))
    for event in snapshot_events(folder, rules):
        graph.take(event)
    return graph


def content(graph):
    """What is in it, whatever the order."""
    arrays = graph.arrays()
    assert len(arrays.ids) == len(graph) == len(arrays.x)
    x = {name: tuple(row) for name, row in zip(arrays.ids, arrays.x.tolist(), strict=True)}
    edges = {}
    ends = zip(arrays.src.tolist(), arrays.dst.tolist(), graph.edge_types(), arrays.values.weight.tolist(), strict=True)
    for src, dst, name, weight in ends:
        assert edges.setdefault((arrays.ids[src], arrays.ids[dst], name), weight) is weight, "an edge stands twice"
    assert x
    return x, edges


def drawn_events(rng, kind, typed, count=400):
    """Of vertices that the snapshot has, and of others."""
    for _ in range(count):
        a, b = (f"v{one}" if kind == STRING else int(one) for one in rng.integers(0, 20, 2))
        name = str(rng.choice(WORDS[:3])) if typed else ""
        what = rng.random()
        if what < 0.08:
            yield Event("del_vertex", a)
        elif what < 0.2:
            x = rng.integers(-3, 4, WIDTH).astype(np.float32)
            yield Event("add_vertex", a, x=None if what < 0.12 else x)
        elif what < 0.5:
            yield Event("del_edge", a, b, type=name)
        else:
            yield Event("add_edge", a, b, values=edge_row({"weight": float(rng.integers(1, 9))}), type=name)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [INT, STRING])
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("undirected", [False, True])
def test_columns_and_rows_make_the_same_graph(tmp_path, seed, kind, typed, undirected):
    rng = np.random.default_rng(seed)
    saved(tmp_path, kind, rng, typed)
    rules = [
        PlainRules(Features(WIDTH), edge_types=WORDS[:3].tolist() if seed % 2 and typed else None) for _ in range(2)
    ]
    read = read_snapshot(tmp_path, rules[0], GraphRules(undirected))
    assert read is not None
    fast = PlainGraph(Features(WIDTH), GraphRules(undirected), read)
    slow = row_by_row(tmp_path, rules[1], undirected=undirected)
    assert content(fast) == content(slow)
    for event in drawn_events(rng, kind, typed):
        fast.take(event)
        slow.take(event)
        if rng.random() < 0.1:
            assert content(fast) == content(slow)
    assert content(fast) == content(slow)
    assert fast.rejected == slow.rejected == 0


def test_self_loops_of_other_types_are_found_in_the_snapshot(tmp_path):
    saved(tmp_path, INT, np.random.default_rng(1), typed=True, loops=False)
    rules = PlainRules(Features(WIDTH))
    graph = PlainGraph(Features(WIDTH), ONE_LOOP, read_snapshot(tmp_path, rules, ONE_LOOP))
    vertex = graph.arrays().ids[0]
    for name in ("a", "b"):
        graph.take(Event("add_edge", vertex, vertex, type=name))
    assert graph.rejected == 1
    saved(tmp_path, INT, np.random.default_rng(1), typed=True)
    assert read_snapshot(tmp_path, rules, ONE_LOOP) is None


def rows(*values, kind=None):
    return pa.array([list(value) for value in values], kind or pa.list_(pa.float32()))


M = 60
UNUSUAL = {
    "ids without a value": {"src": pa.array([None, *range(M - 1)])},
    "ids of two kinds": {"src": pa.array([f"v{k}" for k in range(M)])},
    "unsigned ids": {"src": pa.array(range(M), pa.uint64())},
    "a feature too many": {"x": rows(*[(1.0, 2.0)] * 13, (1.0, 2.0, 3.0))},
    "no number": {"x": rows(*[(1.0, 2.0)] * 13, (1.0, float("nan")))},
    "too large for float32": {"x": rows(*[(1.0, 1e300)] * 14, kind=pa.list_(pa.float64()))},
    "a feature that is null": {"x": pa.array([[1.0, None]] * 14, pa.list_(pa.float32()))},
    "integers as features": {"x": rows(*[(1, 2)] * 14, kind=pa.list_(pa.int64()))},
    "a weight that is infinite": {"weight": pa.array([float("inf")] * M)},
    "integers as weights": {"weight": pa.array(range(M))},
    "a type without a name": {"type": pa.array([""] * M)},
    "a type that is a number": {"type": pa.array(range(M))},
    "a type that is not UTF-8": {"type": pa.array([b"\xff"] * M, pa.binary()).cast(pa.string(), safe=False)},
    "attributes": {"attr": pa.array([[1.0]] * M)},
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_left_to_the_reader_of_rows(tmp_path, name):
    saved(tmp_path, INT, np.random.default_rng(2), **UNUSUAL[name])
    assert read_snapshot(tmp_path, PlainRules(Features(WIDTH))) is None


def test_ids_of_another_kind_than_the_jobs_are_left_to_the_reader_of_rows(tmp_path):
    saved(tmp_path, STRING, np.random.default_rng(2))
    assert read_snapshot(tmp_path, PlainRules(Features(WIDTH), id_kind=INT)) is None
    assert read_snapshot(tmp_path, PlainRules(Features(WIDTH), id_kind=STRING, id_bytes_max=2)) is None
    rules = PlainRules(Features(WIDTH))
    assert read_snapshot(tmp_path, rules) is not None
    assert not rules.takes_ids_of(int)


def test_a_file_that_is_none_is_named(tmp_path):
    saved(tmp_path, INT, np.random.default_rng(2))
    (tmp_path / "edges.parquet").write_bytes(b"nothing")
    with pytest.raises(UsageError, match=r"--snapshot .*edges\.parquet: can't be read"):
        read_snapshot(tmp_path, PlainRules(Features(WIDTH)))
