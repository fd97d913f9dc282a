"""The engine of the benchmarks and the recomputation beside it: both equal the oracle, with attributes of edges too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from freshet.schema import EdgeValues, Graph
from scripts.bench.arxiv_stream import make_edges
from scripts.bench.engine import Engine
from scripts.bench.layers import LAYERS, OF_OWN, give_attributes, model_of
from scripts.bench.recomputed import Recomputed
from tests.support import oracle

WIDTH, EVENTS = 6, 400


class ListsOfEdges:
    """Lists of edges by vertex, as adj.py of the peers has them."""

    def __init__(self, key: np.ndarray, value: np.ndarray, vertices: int) -> None:
        self.of: list[list[int]] = [[] for _ in range(vertices)]
        for one, other in zip(key.tolist(), value.tolist(), strict=True):
            self.of[one].append(other)

    def add(self, key: int, value: int) -> None:
        self.of[key].append(value)

    def remove(self, key: int, value: int) -> None:
        self.of[key].remove(value)

    def lists(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        some = [self.of[key] for key in keys.tolist()]
        return np.array([value for one in some for value in one], np.int64), np.array([len(one) for one in some])


def workload(vertices: int = 2_000) -> Any:
    """One of the shape of the peers': three of five events add an edge, one deletes one, one has new features."""
    rng, edges, m0 = np.random.default_rng(1), 7 * vertices, 6 * vertices
    src, dst = make_edges(vertices, edges, rng)
    op, present = np.tile([0, 1, 0, 2, 0], EVENTS // 5).astype(np.int8), np.ones(edges, bool)
    arg: list[int] = []
    absent, gone = iter(range(m0, edges)), iter(range(m0))
    present[m0:] = False
    for one in op.tolist():
        arg.append(next(absent) if one == 0 else next(gone) if one == 1 else int(rng.integers(vertices)))
        if one != 2:
            present[arg[-1]] = one == 0
    number = np.array(arg)
    edge = np.where(op == 2, 0, number)
    x = rng.standard_normal((vertices, WIDTH)).astype(np.float32)
    pool = rng.standard_normal((8, WIDTH)).astype(np.float32)
    a, b = np.where(op == 2, number, src[edge]), np.where(op == 2, rng.integers(0, 8, EVENTS), dst[edge])
    ends = {"n": vertices, "m": edges, "m0": m0, "d": WIDTH, "src": src, "dst": dst, "x0": x, "pool": pool}
    return SimpleNamespace(**ends, op=op, arg=number, a=a, b=b, present=present)


def peers(w: Any) -> Any:
    rng = np.random.default_rng(2)
    shapes = ((w.d, 8), (8, 4))

    def weights(width: int) -> list[tuple[np.ndarray, ...]]:
        return [
            (*(rng.standard_normal(shape) * 0.4 for _ in range(2)), rng.standard_normal(shape[1])) for shape in shapes
        ]

    return SimpleNamespace(
        weights=weights, gat_vectors=lambda: [tuple(rng.standard_normal(out) for _ in range(2)) for _, out in shapes]
    )


@pytest.mark.parametrize("name", OF_OWN)
def test_engine_and_recomputation_equal_the_oracle(name: str) -> None:
    w = workload()
    give_attributes(w, name)
    model = model_of(LAYERS[name], peers(w), w.d)
    engine, recomputed = Engine(w, model), Recomputed(w, ListsOfEdges, model, OF_OWN[name])
    for first in range(0, EVENTS, 100):
        engine.batch(first, first + 100)
        recomputed.batch(first, first + 100)
    for vertex, row in zip(w.a[w.op == 2], w.b[w.op == 2], strict=True):
        w.x0[vertex] = w.pool[row]
    values = EdgeValues(int(w.present.sum()), {}, None if w.attr is None else w.attr[w.present])
    want = oracle.forward(model, Graph(w.x0, w.src[w.present], w.dst[w.present], values))[-1]
    largest = np.abs(want).max()
    assert np.abs(engine.embeddings() - want).max() <= 1e-5 * largest
    assert np.abs(recomputed.h[2] - want).max() <= 1e-5 * largest


@pytest.mark.parametrize(("name", "entries", "most"), [("gin", 8, 32), ("gine", 52, 96)])
def test_bytes_of_an_edge(name: str, entries: int, most: int) -> None:
    """In lists and tables of each layer, which have room for more; scripts/bench/layers.py prints them at full size."""
    w = workload(30_000)
    give_attributes(w, name)
    engine = Engine(w, model_of(LAYERS[name], peers(w), w.d))
    for layer in engine.layers:
        (edges,) = (one.lists for one in layer.relations)
        lists = edges.out, edges.inn
        used = sum(len(one.entries()[0]) * (4 + 4 * one.weighted) for one in lists)
        table = edges.attributes
        if table is not None:
            used += int(table.ends.sum()) * sum(
                one.dtype.itemsize * (one.width or 1) for one in (table.type, table.attr)
            )
        assert used == entries * w.m0
        assert engine.edge_bytes(layer) <= most
