"""`freshet.NeighborSampler`: exact samples of in-neighbours for the loaders of PyTorch Geometric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from freshet.errors import InputError
from freshet.operators.sampling.hops import Neighbourhood, SampledRelation, SortedInEdges, places_of, sample
from freshet.operators.sampling.kernels import mix_in

Triple: TypeAlias = tuple[str, str, str]
Fanouts: TypeAlias = Sequence[int] | Mapping[Triple, Sequence[int]]
ONE_KIND = ""
_ONE_RELATION = (ONE_KIND, "", ONE_KIND)


class _Edges(NamedTuple):
    """Edges by their targets as tensors, which worker processes share."""

    ends: Tensor
    sources: Tensor
    edges: Tensor

    def arrays(self) -> SortedInEdges:
        return SortedInEdges(self.ends.numpy(), self.sources.numpy(), self.edges.numpy())


class NeighborSampler(BaseSampler):  # type: ignore[misc, unused-ignore]
    """Uniform samples of in-neighbours without replacement, for `torch_geometric.loader.NodeLoader`.

    It samples as PyTorch Geometric's `NeighborLoader` does (`replace=False`, `disjoint=False`), without `pyg-lib` and
    `torch-sparse`. Each hop takes min(in-degree, fanout) distinct in-edges of each vertex that the hop before
    reached. Parallel edges are distinct. A batch has the seeds first, then the vertices by hop; `n_id` and `e_id` are
    their numbers and those of the edges in `data`, by which the loader takes their rows and values.
    Time and memory of a vertex grow with its fanout, not with its in-degree. `LinkNeighborLoader` works, too.

    `data`: Data or HeteroData with `edge_index`. It is read once: later changes need a new sampler.
    `num_neighbors`: how many in-edges of a vertex are taken in each hop, -1 for all; or such a list for each edge type.
    `seed`: the sample then depends on `seed` and on the vertices of the batch in their order alone, with any number of
    workers. So shuffle, or set `seed` between epochs; otherwise each epoch has the same samples. None: samples follow
    torch's random numbers, which `torch.manual_seed` sets.

    Shapes: edge_index (2, edges) int64, (source, target) as messages flow
    Raises: InputError for data without `edge_index` or with one outside its vertices, or for other `num_neighbors`.
    """

    def __init__(self, data: Data | HeteroData, num_neighbors: Fanouts, *, seed: int | None = None) -> None:
        self.seed = seed
        self.is_hetero = isinstance(data, HeteroData)
        self._edges: dict[Triple, _Edges]
        if isinstance(data, HeteroData):
            self._vertices = {kind: _vertices(data[kind], kind) for kind in data.node_types}
            self._edges = {one: _edges(data[one], self._vertices, one) for one in data.edge_types}
        elif isinstance(data, Data):
            self._vertices = {ONE_KIND: _vertices(data, ONE_KIND)}
            self._edges = {_ONE_RELATION: _edges(data, self._vertices, _ONE_RELATION)}
        else:
            msg = f"data: expected Data or HeteroData of PyTorch Geometric, got {type(data).__name__}"
            raise InputError(msg)
        self._fanouts = _fanouts(num_neighbors, [*self._edges])
        self._spare: list[list[np.ndarray]] = []  # of threads that do not sample now

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_spare": []}

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput | HeteroSamplerOutput:
        """Sample the neighbourhood of vertices.

        Raises: InputError for seeds with times.
        """
        del kwargs
        if index.time is not None:
            _refuse_times()
        return node_sample(index, self._sample)

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Sample the neighbourhood of both ends of edges, and of edges that are not there (`neg_sampling`).

        Raises: InputError for edges with times.
        """
        if index.time is not None:
            _refuse_times()
        vertices = self._vertices if self.is_hetero else self._vertices[ONE_KIND]
        return edge_sample(index, self._sample, vertices, False, None, neg_sampling)

    def _sample(self, seed: Tensor | dict[str, Tensor], seed_time: Any = None) -> SamplerOutput | HeteroSamplerOutput:
        """Return the sample of some vertices; called by PyTorch Geometric's functions."""
        del seed_time
        given = seed if isinstance(seed, dict) else {ONE_KIND: seed}
        kinds = [*self._vertices]
        none = torch.empty(0, dtype=torch.int64)
        seeds = [given.get(kind, none).to(torch.int64).contiguous().numpy() for kind in kinds]
        relations = [
            SampledRelation(kinds.index(one[0]), kinds.index(one[2]), edges.arrays(), self._fanouts[one])
            for one, edges in self._edges.items()
        ]
        try:
            places = self._spare.pop()
        except IndexError:
            places = [places_of(count) for count in self._vertices.values()]
        found = sample(relations, seeds, self._random(seeds), places)
        self._spare.append(places)
        return self._several(found) if self.is_hetero else _single(found)

    def _random(self, seeds: Sequence[np.ndarray]) -> np.ndarray:
        """Return the state that the random numbers of a batch begin with, (1,) uint64."""
        if self.seed is None:
            return torch.randint(-(2**63), 2**63 - 1, (1,)).numpy().view(np.uint64)
        random = np.array([self.seed % 2**64], np.uint64)
        for number, of_kind in enumerate(seeds):
            mix_in(random, np.array([number, len(of_kind)]))
            mix_in(random, of_kind)
        return random

    def _several(self, found: Neighbourhood) -> HeteroSamplerOutput:
        nodes = dict(zip(self._vertices, map(torch.from_numpy, found.nodes), strict=True))
        edges = dict(zip(self._edges, map(torch.from_numpy, found.edges), strict=True))
        return HeteroSamplerOutput(
            node=nodes,
            row={one: of[0] for one, of in edges.items()},
            col={one: of[1] for one, of in edges.items()},
            edge={one: of[2] for one, of in edges.items()},
            num_sampled_nodes=dict(zip(nodes, found.node_counts, strict=True)),
            num_sampled_edges=dict(zip(edges, found.edge_counts, strict=True)),
        )


def _single(found: Neighbourhood) -> SamplerOutput:
    row, col, edge = map(torch.from_numpy, found.edges[0])
    node = torch.from_numpy(found.nodes[0])
    counts = {"num_sampled_nodes": found.node_counts[0], "num_sampled_edges": found.edge_counts[0]}
    return SamplerOutput(node=node, row=row, col=col, edge=edge, **counts)


def _refuse_times() -> NoReturn:
    msg = "input_time: samples have no times; leave it out"
    raise InputError(msg)


def _vertices(store: Any, kind: str) -> int:
    """Return the number of vertices of a store.

    Raises: InputError where it has none.
    """
    count = store.num_nodes
    if count is None:
        msg = f"data{f'[{kind!r}]' if kind else ''}: neither x nor num_nodes; the number of vertices is not known"
        raise InputError(msg)
    return int(count)


def _edges(store: Any, vertices: Mapping[str, int], relation: Triple) -> _Edges:
    """Return the edges of a store by their targets.

    Raises: InputError for an `edge_index` that is missing, or outside the vertices.
    """
    name = "data.edge_index" if relation is _ONE_RELATION else f"data[{', '.join(map(repr, relation))}].edge_index"
    given = store["edge_index"] if "edge_index" in store else None
    if not isinstance(given, Tensor) or given.dim() != 2 or len(given) != 2 or given.is_floating_point():
        found = "none" if given is None else f"{tuple(getattr(given, 'shape', ()))} {getattr(given, 'dtype', '')}"
        msg = f"{name}: expected integers of the shape (2, edges), got {found.strip()}"
        raise InputError(msg)
    src, dst = given.as_subclass(Tensor).cpu().to(torch.int64).contiguous().numpy()
    for what, rows, count in (("source", src, vertices[relation[0]]), ("target", dst, vertices[relation[2]])):
        outside = (rows < 0) | (rows >= count)
        if outside.any():
            at = int(np.argmax(outside))
            msg = f"{name}: column {at}: expected a {what} from 0 to {count - 1}, got {rows[at]}"
            raise InputError(msg)
    return _Edges(*map(torch.from_numpy, SortedInEdges.of(src, dst, vertices[relation[0]], vertices[relation[2]])))


def _fanouts(given: Fanouts, relations: Sequence[Triple]) -> dict[Triple, Sequence[int]]:
    """Return the fanouts of each relation.

    Raises: InputError for other than integers from -1 on, a relation that is missing or unknown, or several numbers
        of hops.
    """
    if isinstance(given, Mapping):
        if wrong := [one for one in given if one not in relations]:
            msg = f"num_neighbors: no edge type {wrong[0]!r}; the data has {', '.join(map(repr, relations))}"
            raise InputError(msg)
        if missing := [one for one in relations if one not in given]:
            msg = f"num_neighbors: edge type {missing[0]!r} is missing; give [0, ...] where none are taken"
            raise InputError(msg)
    found = {one: given[one] if isinstance(given, Mapping) else given for one in relations}
    for of in found.values():
        if not isinstance(of, Sequence) or not all(_is_fanout(one) for one in of) or not of:
            msg = f"num_neighbors: expected a list of integers of hops, each from -1 (all) on, got {of!r}"
            raise InputError(msg)
    if len({len(of) for of in found.values()}) > 1:
        msg = (
            f"num_neighbors: expected as many hops for each edge type, got {sorted({len(of) for of in found.values()})}"
        )
        raise InputError(msg)
    return {one: [*map(int, of)] for one, of in found.items()}


def _is_fanout(one: Any) -> bool:
    return isinstance(one, int | np.integer) and not isinstance(one, bool) and -1 <= int(one) < 2**63
