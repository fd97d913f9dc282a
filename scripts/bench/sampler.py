"""Edges a second of `freshet.NeighborSampler`, beside what PyTorch Geometric does without pyg-lib, by turns.

    python scripts/bench/sampler.py edges.parquet --fanouts 10 10 --batch 1024 --rounds 20

The file has columns `src` and `dst`, numbers of vertices. Without pyg-lib and torch-sparse, PyTorch Geometric's own
sampler ends with an ImportError, which is printed. What it has in torch alone is `k_hop_subgraph`, for whole
neighbourhoods; samples with fanouts are compared with the same in torch's operations. Each result is checked. Prints a
table of medians, and one JSON line.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pyarrow.parquet as pq
import torch
import torch_geometric
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput
from torch_geometric.utils import k_hop_subgraph

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import freshet

OURS, TORCH, K_HOP = "freshet.NeighborSampler", "torch operations", "k_hop_subgraph"


class TorchSampler:
    """The same samples in torch's operations: the in-edges of all vertices of a hop in a random order, cut off."""

    def __init__(self, edge_index: Tensor, vertices: int, fanouts: list[int]) -> None:
        self.edges = torch.argsort(edge_index[1], stable=True)
        self.sources = edge_index[0][self.edges]
        self.ends = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(edge_index[1], minlength=vertices)])
        self.ends = self.ends.cumsum(0)
        self.fanouts, self.vertices = fanouts, vertices

    def sample(self, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vertices and the numbers of the edges."""
        seen = torch.zeros(self.vertices, dtype=torch.bool)
        seen[seeds] = True
        nodes, edges, hop = [seeds], list[Tensor](), seeds
        for fanout in self.fanouts:
            degrees = self.ends[hop + 1] - self.ends[hop]
            rows = torch.repeat_interleave(torch.arange(len(hop)), degrees)
            within = torch.arange(len(rows)) - torch.repeat_interleave(degrees.cumsum(0) - degrees, degrees)
            order = torch.argsort(rows + torch.rand(len(rows), dtype=torch.float64))
            taken = order[within < fanout]
            at = self.ends[hop][rows[taken]] + within[taken]
            edges.append(self.edges[at])
            reached = torch.unique(self.sources[at])
            hop = reached[~seen[reached]]
            seen[hop] = True
            nodes.append(hop)
        found = torch.cat(nodes)
        places = torch.empty(self.vertices, dtype=torch.int64)
        places[found] = torch.arange(len(found))
        return found, torch.cat(edges)


def refusal(data: Data, fanouts: list[int]) -> str:
    """Return what PyTorch Geometric's own loader says here; empty where it samples."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            next(iter(NeighborLoader(data, fanouts, batch_size=2)))
    except ImportError as error:
        return str(error)
    return ""


def check(data: Data, found: SamplerOutput, fanouts: list[int], degrees: Tensor) -> None:
    """Check that each seed has as many distinct in-edges as it must, and edges have the ends that they say."""
    ends = torch.stack([found.node[found.row], found.node[found.col]])
    assert torch.equal(ends, data.edge_index[:, found.edge]) and len(found.edge.unique()) == len(found.edge)
    seeds = found.num_sampled_nodes[0]
    taken = torch.bincount(found.col, minlength=seeds)[:seeds]
    assert torch.equal(taken, degrees[found.node[:seeds]].clamp(max=fanouts[0]))


def measured(data: Data, options: argparse.Namespace) -> dict[str, list[tuple[float, int]]]:
    """Return seconds and edges of each batch, by what was measured."""
    fanouts, whole = options.fanouts, [-1] * len(options.fanouts)
    vertices = int(data.num_nodes or 0)
    degrees = torch.bincount(data.edge_index[1], minlength=vertices)
    ours, every = freshet.NeighborSampler(data, fanouts, seed=1), freshet.NeighborSampler(data, whole, seed=1)
    theirs = TorchSampler(data.edge_index, vertices, fanouts)

    def sampled(sampler: freshet.NeighborSampler, seeds: Tensor) -> SamplerOutput:
        return sampler.sample_from_nodes(NodeSamplerInput(None, seeds))

    def hops(seeds: Tensor) -> tuple[Tensor, int]:
        found = k_hop_subgraph(seeds, len(whole), data.edge_index, True, vertices, directed=True)
        return found[0], found[1].shape[1]

    calls: dict[str, Callable[[Tensor], int]] = {
        f"{fanouts}: {OURS}": lambda seeds: len(sampled(ours, seeds).edge),
        f"{fanouts}: {TORCH}": lambda seeds: len(theirs.sample(seeds)[1]),
        f"whole: {OURS}": lambda seeds: len(sampled(every, seeds).edge),
        f"whole: {K_HOP}": lambda seeds: hops(seeds)[1],
    }
    times: dict[str, list[tuple[float, int]]] = {name: [] for name in calls}
    order = torch.randperm(vertices, generator=torch.Generator().manual_seed(1))
    for number in range(options.rounds + 1):
        at = number * options.batch % max(1, vertices - options.batch)
        seeds = order[at : at + options.batch]
        check(data, sampled(ours, seeds), fanouts, degrees)
        all_of = sampled(every, seeds)
        subset, edges = hops(seeds)
        assert set(subset.tolist()) == set(all_of.node.tolist()) and edges == len(all_of.edge)
        for name, call in calls.items():  # by turns: all are slowed alike by what else runs
            began = time.perf_counter()
            count = call(seeds)
            if number:
                times[name].append((time.perf_counter() - began, count))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edges", type=Path, help="a Parquet file with src and dst")
    parser.add_argument("--fanouts", type=int, nargs="+", default=[10, 10])
    parser.add_argument("--batch", type=int, default=1024, help="seeds of a batch")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    table = pq.read_table(options.edges, columns=["src", "dst"])
    edge_index = torch.from_numpy(np.stack([table["src"].to_numpy(), table["dst"].to_numpy()]))
    vertices = int(edge_index.max()) + 1
    data = Data(x=torch.zeros(vertices, 1), edge_index=edge_index)
    freshet.NeighborSampler(data, [1])  # compiles, or loads what is compiled
    began = time.perf_counter()
    freshet.NeighborSampler(data, [1])
    built = time.perf_counter() - began
    times = measured(data, options)
    print(f"{vertices:,} vertices, {edge_index.shape[1]:,} edges, {options.batch:,} seeds a batch")
    print(f"{os.cpu_count()} cores, {torch.get_num_threads()} threads of torch, {built:.3f} s to sort the edges")
    said = refusal(data, options.fanouts)
    print(f"NeighborLoader of PyTorch Geometric {torch_geometric.__version__}: {said or 'samples'}")
    print("| sampler | ms a batch | edges a batch | edges/s |\n|---|---|---|---|")
    shown = {}
    for name, found in times.items():
        seconds, edges = statistics.median(one for one, _ in found), statistics.mean(count for _, count in found)
        shown[name] = {"ms": round(1e3 * seconds, 2), "edges": round(edges), "edges_per_s": round(edges / seconds)}
        print(f"| {name} | {1e3 * seconds:.1f} | {edges:,.0f} | {edges / seconds:,.0f} |")
    load = [round(one, 1) for one in os.getloadavg()]
    line = {"vertices": vertices, "batch": options.batch, "rounds": options.rounds, "samplers": shown}
    print(orjson.dumps(line | {"pyg": said, "build_s": round(built, 3), "load": load}).decode())


if __name__ == "__main__":
    main()
