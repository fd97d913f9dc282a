"""Small random graphs with everything that goes wrong: self-loops, isolated vertices, hubs, zero weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Graph(NamedTuple):
    """A simple directed graph.

    Shapes: x (n, d) float32; src, dst (e,) int64; weight (e,) float32.
    """

    x: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray


def random_graph(seed: int, *, vertices: int = 50, edges: int = 260, width: int = 6, integer: bool = False) -> Graph:
    """Return a graph whose last tenth of vertices is isolated, with self-loops and one hub; integers if asked."""
    rng = np.random.default_rng(seed)
    live = max(1, vertices - vertices // 10)
    src, dst = rng.integers(0, live, edges), rng.integers(0, live, edges)
    src[: edges // 10] = dst[: edges // 10]
    dst[edges // 10 : edges // 5] = 0
    pairs = np.unique(src * vertices + dst)
    rng.shuffle(pairs)
    src, dst = pairs // vertices, pairs % vertices
    if integer:
        x = rng.integers(-3, 4, (vertices, width)).astype(np.float32)
        return Graph(x, src, dst, rng.integers(-2, 4, len(src)).astype(np.float32))
    x = rng.standard_normal((vertices, width)).astype(np.float32)
    return Graph(x, src, dst, rng.uniform(0.0, 2.0, len(src)).astype(np.float32))
