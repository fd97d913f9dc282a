"""Layers of a sample, as NeighborSampler lists them, and sizes of its hops: those of the whole graph here."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from torch_geometric.loader.neighbor_sampler import EdgeIndex

from freshet.gnn.pyg.forward.places import is_library

LAYER_NAMES = ("adjs", "adjs_t", "adj_ts", "adj_list", "blocks", "layers")
_MANY_HOPS = 63
SIZES_OF_HOPS = tuple(
    f"num_sampled_{of}{how}" for of in ("nodes", "edges") for how in ("", "_per_hop", "_dict", "_per_hop_dict")
)
OF_SAMPLES = ("batch_size", *SIZES_OF_HOPS)
_NOT_THERE = (IndexError, KeyError, AttributeError)


def of_sample(name: str, vertices: Any, edges: Any) -> Any:
    """Return the value of a parameter of `OF_SAMPLES` for a whole graph: None for all rows, or sizes of hops.

    All vertices and edges are in the first hop, as in a sample of all neighbours of all vertices. `vertices` and
    `edges` are their numbers, or these by kind and relation.
    """
    if name == "batch_size":
        return None
    counts = edges if "edges" in name else vertices
    if isinstance(counts, dict):
        return {key: _hops(count) for key, count in counts.items()}
    return _hops(counts)


def put_sizes(nodes: Any, vertices: Any, edges: Any, count: Any) -> None:
    """Put what a loader says of a batch into stores of a Data: here it has all vertices and edges."""
    nodes.batch_size, nodes.num_sampled_nodes, edges.num_sampled_edges = vertices, _hops(vertices), _hops(count)


def _hops(count: Any) -> list[Any]:
    return [count] + [0] * _MANY_HOPS


class SampledLayers:
    """The list of layers that a forward(x, adjs) takes: (edge_index, e_id, size), or pairs (edge_index, size).

    e_id: None.
    """

    def __init__(self, count: int, *, pairs: bool = False) -> None:
        """Take their number, and whether they are pairs."""
        self.count, self._pairs = count, pairs
        self._read = list[bool]()

    def __repr__(self) -> str:
        """Return what it is called with."""
        return f"{self.count} layers of {'(edge_index, size)' if self._pairs else '(edge_index, e_id, size)'}"

    def of(self, edge_index: Any, vertices: Any) -> list[Any]:
        """Return the list for a graph with this number of vertices."""
        self._read = [False] * self.count
        size = (vertices, vertices)
        if self._pairs:
            return [_Pair(self._read, k, (edge_index, size)) for k in range(self.count)]
        return [_Layer(self._read, k, (edge_index, None, size)) for k in range(self.count)]

    @property
    def are_read(self) -> bool:
        """Return whether the last call read all of them."""
        return all(self._read)


def ends_the_list(error: BaseException) -> bool:
    """Return whether a forward cannot be traced because it has no conv for one more layer, or refuses their number."""
    cause = error.__cause__
    if cause is None:
        return False
    *_, (last, _) = traceback.walk_tb(cause.__traceback__)
    return isinstance(cause, _NOT_THERE) or not is_library(last)


class _Noting(tuple):
    """A layer that notes that it is read."""

    read: list[bool]
    number: int

    def __new__(cls, read: list[bool], number: int, values: tuple[Any, ...]) -> Any:
        made = tuple.__new__(cls, values)
        made.read, made.number = read, number
        return made

    def __iter__(self) -> Iterator[Any]:
        self.read[self.number] = True
        return super().__iter__()

    def __getitem__(self, key: Any) -> Any:
        self.read[self.number] = True
        return super().__getitem__(key)


class _Pair(_Noting):
    def to(self, *args: Any, **options: Any) -> Any:
        return self


class _Layer(_Noting):
    edge_index, e_id, size = (property(itemgetter(k)) for k in range(3))
    to = EdgeIndex.to
