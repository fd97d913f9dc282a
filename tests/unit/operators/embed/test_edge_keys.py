"""Out of core, edges that differ in their keys alone are messages of their own, as in PyTorch Geometric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshet.gnn.model import Model
from freshet.gnn.oracles import own_scale
from freshet.gnn.plan import compile_plan
from freshet.gnn.pyg import oracle as pyg
from freshet.operators.embed.engine import EngineOptions
from freshet.operators.embed.memory_plan import shape_of
from freshet.operators.snapshot.arrays import read_arrays
from freshet.operators.snapshot.reader import SnapshotError, open_snapshot
from freshet.operators.snapshot.writer import write_snapshot
from freshet.schema import Features, Graph
from tests.support.graphs.models import IN_WIDTH, all_small_models, conv, make_model, models_without_attributes
from tests.support.graphs.random_graphs import weighted
from tests.support.stages.embedded import SMALL, embed, file_bytes, read_rows

VERTICES, ROWS = 40, 700
TOLERANCE = 1e-5


def table(kind: str, seed: int, *, one_loop: bool) -> dict[str, list[Any]]:
    """The columns of a table of edges, of which several stand between two vertices, and some rows repeat others."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, VERTICES - 3, ROWS), rng.integers(0, 6, ROWS)
    numbers = rng.integers(-2, 4, ROWS)
    if one_loop:  # of each vertex, with one key
        numbers[src == dst] = 1
    keys = [None if number == 3 else int(number) if kind == "int" else f"ä{number}" * 9 for number in numbers.tolist()]
    weight = rng.uniform(0.2, 2, ROWS).astype(np.float32)
    return {"src": src.tolist(), "dst": dst.tolist(), "key": keys, "weight": weight.tolist()}


def graph_of(columns: dict[str, list[Any]], x: np.ndarray) -> Graph:
    """The multigraph that the rows mean: the last of each (src, dst, key)."""
    last = {row[:3]: row[3] for row in zip(*columns.values(), strict=True)}
    src, dst, _ = zip(*last, strict=True)
    return weighted(x, np.array(src), np.array(dst), np.array(list(last.values()), np.float32))


def written(folder: Path, columns: dict[str, list[Any]], ids: list[Any], x: np.ndarray) -> Path:
    ends = ([ids[row] for row in columns[name]] for name in ("src", "dst"))
    write_snapshot(folder, ids, x, *ends, np.array(columns["weight"], np.float32), edge_key=columns["key"])
    return folder


def features(seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).standard_normal((VERTICES, IN_WIDTH)).astype(np.float32)


def assert_equal(model: Model, graph: Graph, rows: np.ndarray) -> None:
    """Hold the rows against a full pass, and against PyTorch Geometric where it has the layers."""
    want = own_scale.forward(model, graph, tolerance=TOLERANCE)
    bound = TOLERANCE * want.scale + np.finfo(np.float32).tiny
    assert (np.abs(rows - want.rows) <= bound).all()
    try:
        second = pyg.forward(model, graph, dtype=np.float64)[-1]
    except TypeError as error:
        assert "the PyG oracle knows no" in str(error)
        return
    assert (np.abs(rows - second) <= 2 * bound).all()


@pytest.mark.parametrize("name", models_without_attributes())
def test_every_layer_sums_over_parallel_edges(name: str, tmp_path: Path) -> None:
    model, seed = all_small_models()[name](), sorted(models_without_attributes()).index(name)
    plan, kind = compile_plan(model), ("int", "string")[seed % 2]
    columns = table(kind, seed, one_loop=any(layer.one_loop for layer in plan.layers))
    x, graph = features(seed), graph_of(columns, features(seed))
    snapshot = written(tmp_path / "S", columns, [7 * k for k in range(VERTICES)], x)
    slots = None if all(shape_of(layer).held for layer in plan.layers) else 8
    order = ("given", "completion")[seed // 2 % 2]
    report = embed(model, snapshot, tmp_path, EngineOptions(SMALL, slots=slots), order=order)
    pairs = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert (report.edges, report.replaced) == (len(graph.src), ROWS - len(graph.src))
    assert len(pairs) < report.edges < ROWS
    rows = read_rows(tmp_path)
    assert_equal(model, graph, np.stack([rows[7 * k] for k in range(VERTICES)]))


@pytest.mark.parametrize("kind", ["int", "string"])
def test_rows_do_not_depend_on_buckets_passes_or_attempts(kind: str, tmp_path: Path) -> None:
    """Hashes of texts have another seed in each attempt."""
    model = make_model(3, [conv("sage_conv", IN_WIDTH, 9), {"type": "relu"}, conv("graph_conv", 9, 4)])
    snapshot = written(tmp_path / "S", table(kind, 5, one_loop=False), [f"v{k}" for k in range(VERTICES)], features(5))
    for name, options in {"a": None, "b": EngineOptions(SMALL, passes=3, slots=5), "c": EngineOptions(SMALL)}.items():
        embed(model, snapshot, tmp_path / name, options)
    assert file_bytes(tmp_path / "a") == file_bytes(tmp_path / "b") == file_bytes(tmp_path / "c")


def test_the_other_direction_has_the_key(tmp_path: Path) -> None:
    x = features(1)[:3]
    columns = {"src": [0, 1, 0, 2, 2], "dst": [1, 0, 1, 2, 2], "key": [1, 1, 2, 1, 1], "weight": [9, 2, 3, 8, 4.0]}
    model = make_model(2, [conv("graph_conv", IN_WIDTH, 4)])
    report = embed(model, written(tmp_path / "S", columns, [0, 1, 2], x), tmp_path, undirected=True)
    assert (report.edges, report.replaced) == (5, 2)
    ends = np.array([0, 1, 0, 1, 2]), np.array([1, 0, 1, 0, 2])
    graph = weighted(x, *ends, np.array([2, 2, 3, 3, 4], np.float32))
    rows = read_rows(tmp_path)
    assert_equal(model, graph, np.stack([rows[k] for k in range(3)]))


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"edge_key": ["a", None]}, "a second self-loop, with another key"), ({"edge_type": ["a", "b"]}, "a second edge")],
)
def test_where_a_loop_stands_in_for_the_added_one_a_second_is_refused(
    options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    write_snapshot(tmp_path / "S", [1, 7], np.ones((2, IN_WIDTH)), [7, 7], [7, 7], **options)
    with pytest.raises(SnapshotError, match=f"7 -> 7: a self-loop of {reason}|7 -> 7: {reason}"):
        embed(make_model(1, [conv("gcn_conv", IN_WIDTH, 3)]), tmp_path / "S", tmp_path)
    embed(make_model(1, [conv("gat_conv", IN_WIDTH, 3)]), tmp_path / "S", tmp_path / "gat")
    rows = read_rows(tmp_path / "gat")  # it takes all loops out, and adds one
    assert np.array_equal(rows[1], rows[7])


def test_arrays_of_a_snapshot_have_parallel_edges(tmp_path: Path) -> None:
    for kind in ("int", "string"):
        columns = table(kind, 3, one_loop=False)
        graph = graph_of(columns, features(3))
        found = read_arrays(written(tmp_path / kind, columns, list(range(VERTICES)), features(3)))
        edges = zip(*found.edge_index.tolist(), found.edge_weight.tolist(), strict=True)
        assert sorted(edges) == sorted(
            zip(graph.src.tolist(), graph.dst.tolist(), graph.values.weight.tolist(), strict=True)
        )


@pytest.mark.parametrize("keys", [np.array([3, 4]), np.array(["a", "b"]), np.array(["a", None], object), [None, None]])
def test_keys_are_written_from_arrays_too(keys: Any, tmp_path: Path) -> None:
    write_snapshot(tmp_path, [1, 2], np.ones((2, 1)), [1, 1], [2, 2], edge_key=keys)
    snapshot = open_snapshot(tmp_path, Features(1))
    *_, edges = snapshot.blocks()
    assert snapshot.key_kind == ("string" if isinstance(keys[0], str) else "int")
    assert [edges.key_of(event) for event in range(2)] == list(keys)
    assert "edges repeat a (src, dst, type, key)" in snapshot.repeats_in_words(1)


@pytest.mark.parametrize("keys", [["a", ""], [-(2**63), None], np.array(["", "b"])])
def test_a_key_that_would_be_none_is_refused(keys: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"edge_key: expected integers above -2\*\*63, or strings that are not empty"):
        write_snapshot(tmp_path, [1, 2], np.ones((2, 1)), [1, 1], [2, 2], edge_key=keys)
