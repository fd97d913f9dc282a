"""A whole graph with kinds of vertices as arrays: what passes over all of it read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshet.schema import EdgeValues


class RelationEdges(NamedTuple):
    """The edges of one relation as arrays.

    Shapes: src (e,) numbers of vertices of the source's kind, dst (e,) of the target's, a pair for each edge, so that
    parallel edges repeat theirs; values of e edges
    """

    src: np.ndarray
    dst: np.ndarray
    values: EdgeValues


class KindsGraph(NamedTuple):
    """A whole graph with kinds of vertices, as `Graph` is one of a single kind.

    Vertices are numbered by kind. Shapes: x, for each kind (n, features of the kind) float32; edges, for each relation
    """

    x: list[np.ndarray]
    edges: list[RelationEdges]
