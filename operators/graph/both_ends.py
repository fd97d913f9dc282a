"""Edges in the lists of both their ends, which change together."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import inner
from freshet.operators.graph.edge_changes import Reweighted, SomeEdges
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
def tag_at(lists: ListsView, tags: np.ndarray, i: int) -> np.int32:
    """Return what the i-th of some edges is known by in tagged lists."""
    return np.int32(tags[i]) if lists.tagged else np.int32(0)


@inner
def link(out: ListsView, inn: ListsView, u: int, v: int, weight: float, tag: int) -> bool:
    """Put an edge into the lists of both ends; False, with nothing changed, when a pool must grow first."""
    if not append(out, u, v - base_of(out, u), weight, tag):
        return False
    if not append(inn, v, u - base_of(inn, v), weight, tag):
        remove_at(out, u, place_of(out, u) + length_of(out, u) - 1)
        return False
    return True


@inner
def unlink(out: ListsView, inn: ListsView, u: int, v: int, weight: float, tag: int) -> bool:
    """Take an edge out of the lists of both ends; False where it is not there."""
    return remove(out, u, v - base_of(out, u), weight, tag) and remove(inn, v, u - base_of(inn, v), weight, tag)


@inner
def reweigh(out: ListsView, inn: ListsView, u: int, v: int, old: float, new: float, tag: int) -> bool:
    """Give an edge another weight in the lists of both ends; False where it is not there."""
    found = set_weight(out, u, v - base_of(out, u), old, new, tag)
    return found and set_weight(inn, v, u - base_of(inn, v), old, new, tag)


@inner
def lacks_index_of_edges(
    out: ListsView,
    inn: ListsView,
    deleted: SomeEdges,
    reweighted: Reweighted,
) -> bool:
    """Return whether an index is missing at either end of edges to be deleted or given another weight."""
    if lacks_index(out, deleted[0]) or lacks_index(inn, deleted[1]):
        return True
    return out.weighted and (lacks_index(out, reweighted[0]) or lacks_index(inn, reweighted[1]))
