"""Systems in Freshet's place, on one graph: recomputations of any model, and RIPPLE++ in NumPy of two SAGE layers.

All keep the same graph: the edges of the workload, of which `present` says which are there. Finding the neighbours of
vertices and adding an edge cost them little, less than they would in a graph that nobody knows in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GINConv, GMMConv, GraphConv, RGCNConv, SAGEConv

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from scripts.bench.arxiv_stream import HIDDEN, OUT, WIDTH
from scripts.bench.engine import Engine
from scripts.bench.peer_graph import Graph, Workload

FANOUT = 10
_BIPARTITE = (GATConv, GINConv, GMMConv, GraphConv, RGCNConv, SAGEConv)
_MOST_FLOATS = 1 << 25  # of the messages of one call


class Net(nn.Module):
    """Convs one after the other, relu between them: what all systems compute."""

    def __init__(self, conv: Callable[[int, int], nn.Module], widths: Sequence[int]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(conv(*pair) for pair in pairwise(widths))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the rows.

        Shapes: x (n, first width); edge_index (2, e) int64; result (n, last width)
        """
        for number, conv in enumerate(self.convs):
            x = conv(x.relu() if number else x, edge_index)
        return x


class WeightedNet(Net):
    """Convs that read weights of edges."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        """Return the rows.

        Shapes: x (n, first width); edge_index (2, e) int64; edge_weight (e,); result (n, last width)
        """
        for number, conv in enumerate(self.convs):
            x = conv(x.relu() if number else x, edge_index, edge_weight)
        return x


class AttributedNet(Net):
    """Convs that read attributes of edges."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:  # type: ignore[override]
        """Return the rows.

        Shapes: x (n, first width); edge_index (2, e) int64; edge_attr (e, width); result (n, last width)
        """
        for number, conv in enumerate(self.convs):
            x = conv(x.relu() if number else x, edge_index, edge_attr)
        return x


class TypedNet(Net):
    """Convs that read types of edges."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:  # type: ignore[override]
        """Return the rows.

        Shapes: x (n, first width); edge_index (2, e) int64; edge_type (e,) int64; result (n, last width)
        """
        for number, conv in enumerate(self.convs):
            x = conv(x.relu() if number else x, edge_index, edge_type)
        return x


def sage_net() -> Net:
    """Return two SAGE layers with a mean."""
    return Net(SAGEConv, (WIDTH, HIDDEN, OUT))


class System(Protocol):
    """One way to have rows after each epoch."""

    def batch(self, first: int, end: int) -> None:
        """Apply these events as an epoch."""

    def rows(self) -> np.ndarray:
        """Return the rows of all vertices."""


class Everything:
    """PyTorch Geometric, a pass over the whole graph after each epoch, with PyTorch's sparse product for the mean."""

    def __init__(self, workload: Workload, net: Net) -> None:
        self.graph, self.net = Graph(workload), net
        self.last = self._pass()

    def batch(self, first: int, end: int) -> None:
        """Apply these events as an epoch."""
        self.graph.apply(first, end)
        self.last = self._pass()

    def _pass(self) -> Tensor:
        graph = self.graph
        edges = graph.by_dst[graph.present[graph.by_dst]]  # in the order of targets, as a sparse matrix has them
        degrees = np.bincount(graph.w.dst[edges], minlength=graph.w.n)
        first = torch.from_numpy(np.concatenate([[0], np.cumsum(degrees)]))
        source, ones = torch.from_numpy(graph.w.src[edges]), torch.ones(len(edges))
        size = (graph.w.n, graph.w.n)
        adjacency = torch.sparse_csr_tensor(first, source, ones, size, check_invariants=False)
        result: Tensor = self.net(torch.from_numpy(graph.x), adjacency)
        return result

    def rows(self) -> np.ndarray:
        """Return the rows of all vertices."""
        return self.last.numpy()


class Affected:
    """PyTorch Geometric, the rows of each layer that an epoch may reach, each of all of its in-neighbours."""

    def __init__(
        self,
        workload: Workload,
        net: Net,
        graph: Graph | None = None,
        dtype: type[np.floating[Any]] = np.float32,
        rows: Sequence[np.ndarray] = (),
    ) -> None:
        """`graph`: as it is at the begin, else the workload's. `rows`: of each layer at the begin, else made here."""
        self.graph, self.net = graph or Graph(workload), net
        self.again = np.zeros(workload.n, bool)  # rows of the last layer that some epoch has made again
        self.touched = 0
        self.x = [self.graph.x.astype(dtype, copy=False)]  # what each layer reads, and the last rows
        for number in range(len(net.convs)):
            self.x.append(rows[number] if rows else self._rows(number, np.arange(workload.n)))

    def batch(self, first: int, end: int) -> None:
        """Apply these events as an epoch."""
        reached = self.graph.affected(self.graph.apply(first, end), len(self.net.convs))
        for number, vertices in enumerate(reached):
            self.x[number + 1][vertices] = self._rows(number, vertices)
        self._count(reached[-1])

    def _count(self, vertices: np.ndarray) -> None:
        self.again[vertices] = True
        self.touched += len(vertices)

    def _rows(self, number: int, vertices: np.ndarray) -> np.ndarray:
        """Return a conv's rows of these vertices, in parts whose messages fit into memory."""
        edges = (self.graph.in_first[vertices + 1] - self.graph.in_first[vertices]).sum()
        parts = np.array_split(vertices, 1 + edges * self.x[number].shape[1] // _MOST_FLOATS)
        return np.concatenate([self._layer(number, part) for part in parts])

    def _layer(self, number: int, targets: np.ndarray, edges: np.ndarray | None = None) -> np.ndarray:
        """Return a conv's rows of these vertices: a bipartite graph of their in-neighbours and them.

        Some convs take no such graph, and make rows of the in-neighbours in any case.
        """
        w, x, conv = self.graph.w, self.x[number], self.net.convs[number]
        edges = self.graph.in_edges(targets) if edges is None else edges
        values = [one.to(torch.from_numpy(x).dtype) if one.is_floating_point() else one for one in w.values_of(edges)]
        if not isinstance(conv, _BIPARTITE):
            both, place = np.unique(np.concatenate([w.src[edges], w.dst[edges], targets]), return_inverse=True)
            index = torch.from_numpy(place[: 2 * len(edges)].reshape(2, -1))
            rows = conv(torch.from_numpy(x[both]), index, *values)[place[2 * len(edges) :]]
        else:
            sources, place = np.unique(w.src[edges], return_inverse=True)
            index = torch.from_numpy(np.stack([place, np.searchsorted(targets, w.dst[edges])]))
            pair = torch.from_numpy(x[sources]), torch.from_numpy(x[targets])
            size = {} if isinstance(conv, RGCNConv) else {"size": (len(sources), len(targets))}
            rows = conv(pair, index, *values, **size)
        return (rows if number == len(self.net.convs) - 1 else rows.relu()).numpy()

    def rows(self) -> np.ndarray:
        """Return the rows of all vertices."""
        return self.x[-1]


class Sampled(Affected):
    """The same of a sample of the in-neighbours, layer by layer, as GraphSAGE does at inference; of two layers."""

    def __init__(self, workload: Workload, net: Net) -> None:
        super().__init__(workload, net)
        self.rng = np.random.default_rng(3)

    def batch(self, first: int, end: int) -> None:
        """Apply these events as an epoch."""
        outer = self.graph.affected(self.graph.apply(first, end), 2)[-1]
        edges = self._sample(outer)
        needed = np.unique(np.concatenate([outer, self.graph.w.src[edges]]))
        self.x[1][needed] = self._layer(0, needed, self._sample(needed))
        self.x[2][outer] = self._layer(1, outer, edges)
        self._count(outer)

    def _sample(self, targets: np.ndarray) -> np.ndarray:
        """Return at most FANOUT in-edges of each vertex, drawn at random."""
        edges = self.graph.in_edges(targets)
        order = np.lexsort([self.rng.random(len(edges)), self.graph.w.dst[edges]])
        ends = self.graph.w.dst[edges[order]]
        rank = np.arange(len(edges)) - np.searchsorted(ends, ends)
        return edges[order[rank < FANOUT]]


class Ripple:
    """RIPPLE++ in NumPy, of two SAGE layers: a changed vertex adds its difference to the sums behind its out-edges."""

    def __init__(self, workload: Workload, net: Net) -> None:
        self.graph, self.net = Graph(workload), net
        w, at = workload, np.arange(workload.m0)
        self.degree = np.bincount(w.dst[: w.m0], minlength=w.n)
        self.x = [w.x0.copy()]
        self.sums = list[np.ndarray]()
        for number, conv in enumerate(net.convs):
            self.sums.append(np.zeros_like(self.x[number]))
            for part in np.array_split(at, 16):
                _add(self.sums[number], w.dst[part], self.x[number][w.src[part]])
            self.x.append(self._updated(number, conv, np.arange(w.n)))

    def batch(self, first: int, end: int) -> None:
        """Apply these events as an epoch."""
        w, change = self.graph.w, self.graph.apply(first, end)
        ends = w.dst[np.concatenate([change.added, change.deleted])]
        np.add.at(self.degree, w.dst[change.added], 1)
        np.subtract.at(self.degree, w.dst[change.deleted], 1)
        is_new = np.zeros(len(w.src), bool)
        is_new[change.added] = True
        changed, rows = change.vertices, change.rows
        for number, conv in enumerate(self.net.convs):
            x, total = self.x[number], self.sums[number]
            kept = self.graph.out_edges(changed)
            kept = kept[~is_new[kept]]
            _add(total, w.dst[change.deleted], -x[w.src[change.deleted]])
            sent = rows - x[changed]
            _add(total, w.dst[kept], sent[np.searchsorted(changed, w.src[kept])])
            x[changed] = rows
            _add(total, w.dst[change.added], x[w.src[change.added]])
            changed = np.unique(np.concatenate([ends, changed, w.dst[kept]]))
            rows = self._updated(number, conv, changed)
        self.x[2][changed] = rows

    def _updated(self, number: int, conv: Any, vertices: np.ndarray) -> np.ndarray:
        weights = (conv.lin_l.weight, conv.lin_r.weight, conv.lin_l.bias)
        of_sum, of_own, bias = (one.detach().numpy() for one in weights)
        mean = self.sums[number][vertices] / np.maximum(self.degree[vertices], 1)[:, None].astype(np.float32)
        rows: np.ndarray = mean @ of_sum.T + self.x[number][vertices] @ of_own.T + bias
        return np.maximum(rows, 0) if number == 0 else rows

    def rows(self) -> np.ndarray:
        """Return the rows of all vertices."""
        return self.x[2]


class OfDgl(Everything):
    """DGL, a pass over the whole graph after each epoch."""

    def __init__(self, workload: Workload, net: Net) -> None:
        import dgl  # type: ignore[import-not-found,unused-ignore]
        from dgl.nn.pytorch import SAGEConv as Conv  # type: ignore[import-not-found,unused-ignore]

        self.dgl, self.convs = dgl, [Conv(WIDTH, HIDDEN, "mean"), Conv(HIDDEN, OUT, "mean")]
        for conv, old in zip(self.convs, net.convs, strict=True):
            conv.fc_neigh.weight, conv.fc_self.weight = old.lin_l.weight, old.lin_r.weight
            conv.fc_self.bias = old.lin_l.bias
        super().__init__(workload, net)

    def _pass(self) -> Tensor:
        graph = self.graph
        edges = np.flatnonzero(graph.present)
        ends = torch.from_numpy(graph.w.src[edges]), torch.from_numpy(graph.w.dst[edges])
        made = self.dgl.graph(ends, num_nodes=graph.w.n)
        result: Tensor = self.convs[1](made, self.convs[0](made, torch.from_numpy(graph.x)).relu())
        return result


class OfFreshet:
    """Freshet's operators of one part, in one thread."""

    def __init__(self, workload: Workload, model: Model | KindsModel) -> None:
        self.engine = Engine(workload, model)
        self.batch = self.engine.batch

    def rows(self) -> np.ndarray:
        """Return the rows of all vertices."""
        return self.engine.embeddings()


def _add(total: np.ndarray, at: np.ndarray, rows: np.ndarray) -> None:
    """Add rows to those at these places, which may repeat."""
    if not len(at):
        return
    order = np.argsort(at, kind="stable")
    ends = at[order]
    first = np.flatnonzero(np.r_[True, ends[1:] != ends[:-1]])
    total[ends[first]] += np.add.reduceat(rows[order], first, axis=0)
