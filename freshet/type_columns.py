"""Columns of types in front of the attributes of edges, for models that look rows up by types."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from freshet.schema import EdgeValues, Features


def with_types(values: EdgeValues, features: Features, etype: np.ndarray, edges: np.ndarray) -> EdgeValues:
    """Return values with the columns of types in front of the attributes, where a graph has such columns.

    Shapes: etype (n,), a number below `features.types` for each of `edges`, (n,) bool; others have zeros
    """
    if not features.types:
        return values
    attr, rows = np.zeros((values.edges, features.edge_width), np.float32), np.flatnonzero(edges)
    attr[rows, etype[rows]] = 1
    if values.attr is not None:
        attr[:, features.types :] = values.attr
    return replace(values, attr=attr)


def without_types(values: EdgeValues, features: Features) -> EdgeValues:
    """Return values as they were given: the inverse of `with_types`."""
    if not features.types or values.attr is None:
        return values
    return replace(values, attr=values.attr[:, features.types :] if features.given_edge_width else None)
