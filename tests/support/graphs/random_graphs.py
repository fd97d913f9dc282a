"""Small random graphs with everything that goes wrong: self-loops, isolated vertices, hubs, zero weights."""

from __future__ import annotations

import numpy as np

from freshet.schema import WEIGHT, EdgeValues, Graph
from tests.support.graphs.attributed import EDGE_WIDTH


def weighted(
    x: np.ndarray, src: np.ndarray, dst: np.ndarray, weight: np.ndarray, attr: np.ndarray | None = None
) -> Graph:
    """Return a graph whose edges carry these weights, (e,), and attributes, (e, width)."""
    return Graph(x, src, dst, EdgeValues(len(weight), {WEIGHT: weight}, attr))


def random_graph(seed: int, *, vertices: int = 50, edges: int = 260, width: int = 6, integer: bool = False) -> Graph:
    """Return a graph whose last tenth of vertices is isolated, with self-loops and one hub; integers if asked.

    A third of its edges have attributes of zeros.
    """
    rng = np.random.default_rng(seed)
    live = max(1, vertices - vertices // 10)
    src, dst = rng.integers(0, live, edges), rng.integers(0, live, edges)
    src[: edges // 10] = dst[: edges // 10]
    dst[edges // 10 : edges // 5] = 0
    pairs = np.unique(src * vertices + dst)
    rng.shuffle(pairs)
    src, dst = pairs // vertices, pairs % vertices
    attr = np.random.default_rng([seed, 1]).standard_normal((len(src), EDGE_WIDTH)).astype(np.float32)
    attr = np.round(2 * attr) if integer else attr
    attr[::3] = 0
    if integer:
        x = rng.integers(-3, 4, (vertices, width)).astype(np.float32)
        return weighted(x, src, dst, rng.integers(-2, 4, len(src)).astype(np.float32), attr)
    x = rng.standard_normal((vertices, width)).astype(np.float32)
    return weighted(x, src, dst, rng.uniform(0.0, 2.0, len(src)).astype(np.float32), attr)
