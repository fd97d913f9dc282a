"""What a user might run in Freshet's place: recomputations and RIPPLE++ in NumPy, on one graph of two SAGE layers.

All keep the same graph: the edges of the workload, of which `present` says which are there. Finding the neighbours of
vertices and adding an edge cost them little, less than they would in a graph that nobody knows in advance.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from freshet.gnn.model import Model
from scripts.bench.arxiv_stream import HIDDEN, OUT, WIDTH, make_edges, make_stream
from scripts.bench.engine import Engine

ADD, DELETE, FEATURES = range(3)
FANOUT = 10


class Workload:
    """A graph and a stream: `op` and `arg` (an edge, or a vertex with new features, the row `b` of `pool`)."""

    def __init__(self, vertices: int, edges: int, events: int, seed: int = 7) -> None:
        rng = np.random.default_rng(seed)
        self.n, self.m0 = vertices, int(edges * 0.8)
        self.src, self.dst = make_edges(vertices, edges, rng)
        self.op, self.arg = make_stream(edges, self.m0, events, rng)
        self.x0 = rng.standard_normal((vertices, WIDTH), dtype=np.float32) * np.float32(0.5)
        self.pool = rng.standard_normal((1024, WIDTH), dtype=np.float32) * np.float32(0.5)
        rows = self.op == FEATURES
        self.arg = np.where(rows, rng.integers(0, vertices, events), self.arg)
        edge = np.where(rows, 0, self.arg)
        self.a = np.where(rows, self.arg, self.src[edge])
        self.b = np.where(rows, rng.integers(0, len(self.pool), events), self.dst[edge])


class Net(nn.Module):
    """The model of all systems: two SAGE layers with a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(WIDTH, HIDDEN), SAGEConv(HIDDEN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the rows.

        Shapes: x (n, 128); edge_index (2, e) int64; result (n, 40)
        """
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Change(NamedTuple):
    """What an epoch changes, cancelled changes left out: edges by number, vertices with new features."""

    added: np.ndarray
    deleted: np.ndarray
    vertices: np.ndarray
    rows: np.ndarray


class Graph:
    """The graph of a workload as its events go by."""

    def __init__(self, workload: Workload) -> None:
        w = self.w = workload
        self.x = w.x0.copy()
        self.present = np.arange(len(w.src)) < w.m0
        self.by_dst, self.in_first = _lists(w.dst, w.n)
        self.by_src, self.out_first = _lists(w.src, w.n)

    def apply(self, first: int, end: int) -> Change:
        """Apply these events; return what has changed."""
        w, op, arg = self.w, self.w.op[first:end], self.w.arg[first:end]
        edges, last = _last(arg, op != FEATURES)
        now = op[last] == ADD
        changed = self.present[edges] != now
        vertices, newest = _last(arg, op == FEATURES)
        rows = w.pool[w.b[first:end][newest]]
        self.present[edges] = now
        self.x[vertices] = rows
        return Change(edges[changed & now], edges[changed & ~now], vertices, rows)

    def in_edges(self, vertices: np.ndarray) -> np.ndarray:
        """Return the numbers of edges into these vertices, in their order."""
        found = self.by_dst[_ranges(self.in_first, vertices)]
        return found[self.present[found]]

    def out_edges(self, vertices: np.ndarray) -> np.ndarray:
        """Return the numbers of edges out of these vertices, in their order."""
        found = self.by_src[_ranges(self.out_first, vertices)]
        return found[self.present[found]]

    def affected(self, change: Change) -> tuple[np.ndarray, np.ndarray]:
        """Return the vertices whose rows of the first layer a change may reach, and those of the second."""
        ends = self.w.dst[np.concatenate([change.added, change.deleted])]
        first = np.unique(np.concatenate([ends, change.vertices, self.w.dst[self.out_edges(change.vertices)]]))
        return first, np.unique(np.concatenate([ends, first, self.w.dst[self.out_edges(first)]]))


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
    """PyTorch Geometric, the rows of each layer that an epoch may reach, of all or a sample of their in-neighbours."""

    def __init__(self, workload: Workload, net: Net, fanout: int | None = None) -> None:
        self.graph, self.net, self.fanout = Graph(workload), net, fanout
        self.rng = np.random.default_rng(3)
        self.again = np.zeros(workload.n, bool)  # rows that some epoch has made again
        everywhere = torch.from_numpy(np.stack([workload.src[: workload.m0], workload.dst[: workload.m0]]))
        self.hidden = net.first(torch.from_numpy(workload.x0), everywhere).relu().numpy()
        self.last = net.second(torch.from_numpy(self.hidden), everywhere).numpy()

    def batch(self, first: int, end: int) -> None:
        """Apply these events as an epoch."""
        inner, outer = self.graph.affected(self.graph.apply(first, end))
        self.again[outer] = True
        if self.fanout is None:
            self.hidden[inner] = self._layer(self.net.first, self.graph.x, inner).relu().numpy()
            self.last[outer] = self._layer(self.net.second, self.hidden, outer).numpy()
            return
        edges = self._sampled(outer)
        needed = np.unique(np.concatenate([outer, self.graph.w.src[edges]]))
        hidden = self._layer(self.net.first, self.graph.x, needed, self._sampled(needed)).relu().numpy()
        self.hidden[needed] = hidden  # where the second layer finds them
        self.last[outer] = self._layer(self.net.second, self.hidden, outer, edges).numpy()

    def _layer(self, conv: Any, x: np.ndarray, targets: np.ndarray, edges: np.ndarray | None = None) -> Tensor:
        """Return a conv's rows of these vertices: a bipartite graph of their in-neighbours and them."""
        edges = self.graph.in_edges(targets) if edges is None else edges
        sources, place = np.unique(self.graph.w.src[edges], return_inverse=True)
        index = np.stack([place, np.searchsorted(targets, self.graph.w.dst[edges])])
        pair = torch.from_numpy(x[sources]), torch.from_numpy(x[targets])
        result: Tensor = conv(pair, torch.from_numpy(index), size=(len(sources), len(targets)))
        return result

    def _sampled(self, targets: np.ndarray) -> np.ndarray:
        """Return at most so many in-edges of each vertex, drawn at random."""
        edges = self.graph.in_edges(targets)
        order = np.lexsort([self.rng.random(len(edges)), self.graph.w.dst[edges]])
        ends = self.graph.w.dst[edges[order]]
        rank = np.arange(len(edges)) - np.searchsorted(ends, ends)
        return edges[order[rank < self.fanout]]

    def rows(self) -> np.ndarray:
        """Return the rows of all vertices."""
        return self.last


class Ripple:
    """RIPPLE++ in NumPy: sums of rows before their linear layer; a changed vertex sends its difference once an edge."""

    def __init__(self, workload: Workload, net: Net) -> None:
        self.graph, self.net = Graph(workload), net
        w, at = workload, np.arange(workload.m0)
        self.degree = np.bincount(w.dst[: w.m0], minlength=w.n)
        self.x = [w.x0.copy()]
        self.sums = list[np.ndarray]()
        for number, conv in enumerate((net.first, net.second)):
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
        for number, conv in enumerate((self.net.first, self.net.second)):
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
        for conv, old in zip(self.convs, (net.first, net.second), strict=True):
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

    def __init__(self, workload: Workload, model: Model) -> None:
        self.engine = Engine(workload, model)
        self.batch = self.engine.batch

    def rows(self) -> np.ndarray:
        """Return the rows of all vertices."""
        return self.engine.embeddings()


def _lists(ends: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of edges in the order of their ends, and where those of each vertex begin."""
    return np.argsort(ends, kind="stable"), np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=n))])


def _ranges(first: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return the places from `first[v]` to `first[v + 1]` of each vertex, one after the other."""
    counts = first[of + 1] - first[of]
    begin = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(of) else np.empty(0, np.int64)
    return np.arange(counts.sum()) + np.repeat(first[of] - begin, counts)


def _last(arg: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different values among those chosen, and where each stands last."""
    places = np.flatnonzero(chosen)[::-1]
    values, newest = np.unique(arg[places], return_index=True)
    return values, places[newest]


def _add(total: np.ndarray, at: np.ndarray, rows: np.ndarray) -> None:
    """Add rows to those at these places, which may repeat."""
    if not len(at):
        return
    order = np.argsort(at, kind="stable")
    ends = at[order]
    first = np.flatnonzero(np.r_[True, ends[1:] != ends[:-1]])
    total[ends[first]] += np.add.reduceat(rows[order], first, axis=0)
