"""Edges in the lists of both their ends, which change together."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner
from freshet.state.adjacency import (
    ListsView,
    append,
    base_of,
    lacks_index,
    length_of,
    place_of,
    remove,
    remove_at,
    set_weight,
)


@inner
def link(out: ListsView, inn: ListsView, u: int, v: int, weight: float) -> bool:
    """Put an edge into the lists of both ends; False, with nothing changed, when a pool must grow first."""
    if not append(out, u, v - base_of(out, u), weight):
        return False
    if not append(inn, v, u - base_of(inn, v), weight):
        remove_at(out, u, place_of(out, u) + length_of(out, u) - 1)
        return False
    return True


@inner
def unlink(out: ListsView, inn: ListsView, u: int, v: int, weight: float) -> bool:
    """Take an edge out of the lists of both ends; False where it is not there."""
    return remove(out, u, v - base_of(out, u), weight) and remove(inn, v, u - base_of(inn, v), weight)


@inner
def reweigh(out: ListsView, inn: ListsView, u: int, v: int, old: float, new: float) -> bool:
    """Give an edge another weight in the lists of both ends; False where it is not there."""
    found = set_weight(out, u, v - base_of(out, u), old, new)
    return found and set_weight(inn, v, u - base_of(inn, v), old, new)


@inner
def lacks_index_of_edges(
    out: ListsView,
    inn: ListsView,
    deleted: tuple[np.ndarray, np.ndarray, np.ndarray],
    reweighted: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> bool:
    """Return whether an index is missing at either end of edges to be deleted or given another weight."""
    if lacks_index(out, deleted[0]) or lacks_index(inn, deleted[1]):
        return True
    return out.weighted and (lacks_index(out, reweighted[0]) or lacks_index(inn, reweighted[1]))
