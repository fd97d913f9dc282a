"""InkStream's time of a batch of changed edges, and its speed-up over recomputation: the paper's figures beside ours.

    .venv/bin/python scripts/bench/papers/inkstream.py [--graphs pubmed arxiv] [--seconds 1]

Section III, tables II to IV of Wu, Li and Mitra, InkStream (2025): GCN and SAGE of two layers and 256 channels, GIN of
five and 64, each with max (-m) and mean (-a); half of a batch are new edges, half are deleted ones. The recomputation
is PyTorch Geometric on the rows that a batch may reach.

Comparable: the models, the sizes of batches, PubMed's numbers of vertices, edges and features, and exactness. Not
comparable: the machine (104 threads of a Xeon 6230 there, one thread here); the graph, which has PubMed's shape and
random edges; the recomputation, which there fetches 2k hops of neighbours with PyTorch Geometric's sampler and takes
most of a second for any change, so that the paper's speed-ups are over a slower one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_geometric.nn import GCNConv, GINConv, SAGEConv

from freshet.job.local.malloc import keep_freed_memory
from scripts.bench.papers.beside import Beside, finish, measured, percent
from scripts.bench.peer_graph import Workload
from scripts.bench.peer_systems import Net
from scripts.bench.throughput import machine
from scripts.bench.took import tell_what_it_took

BATCHES = (1000, 100, 10, 1)


class Kind(NamedTuple):
    """A model of the paper: how a conv is made, the widths of its hidden rows, and the batch of table IV."""

    conv: Any
    hidden: tuple[int, ...]
    batch: int


def _mlp(read: int, made: int) -> nn.Module:
    return nn.Sequential(nn.Linear(read, made), nn.ReLU(), nn.Linear(made, made))


KINDS = {
    "GCN": Kind(
        lambda aggr: lambda a, b: GCNConv(a, b, normalize=False, add_self_loops=False, aggr=aggr), (256, 256), 100
    ),
    "SAGE": Kind(lambda aggr: lambda a, b: SAGEConv(a, b, aggr=aggr), (256, 256), 100),
    "GIN": Kind(lambda aggr: lambda a, b: GINConv(_mlp(a, b), aggr=aggr), (64,) * 5, 1),
}
AGGREGATES = {"-m": "max", "-a": "mean"}
GRAPHS = {"pubmed": (20_000, 89_000, 500), "arxiv": (169_343, 1_170_000, 128)}  # vertices, edges, features
PUBLISHED = {  # milliseconds on PubMed, table IV: InkStream, and the k-hop recomputation
    "GCN-m": (128, 676),
    "GCN-a": (115, 676),
    "SAGE-m": (381, 682),
    "SAGE-a": (371, 682),
    "GIN-m": (1756, 3425),
    "GIN-a": (1726, 3425),
}


def table_of(graph: str, results: dict[str, Beside]) -> Table:
    """Return the table of a graph: milliseconds of a batch, ours and recomputed, and how often the one is the other."""
    vertices, edges, width = GRAPHS[graph]
    table = Table(title=f"{graph}: {vertices:,} vertices, {edges:,} edges, {width} features ({machine()})")
    table.add_column("model")
    for batch in BATCHES[::-1]:
        table.add_column(f"{batch:,} edges, ms", justify="right")
    for name in ("rows made again at 100", "paper: InkStream, k-hop, ms"):
        table.add_column(name, justify="right")
    for model, one in results.items():
        cells = []
        for batch in BATCHES[::-1]:
            ours, theirs = one.freshet[batch]["p50_ms"], one.recompute[batch]["p50_ms"]
            cells.append(f"{ours:.3g} / {theirs:,.3g} = {theirs / ours:,.0f} x")
        said = ""
        if graph == "pubmed":
            of_batch, khop = PUBLISHED[model]
            said = f"{KINDS[model[:-2]].batch:,}: {of_batch:,}, {khop:,} = {khop / of_batch:.1f} x"
        table.add_row(model, *cells, percent(one.affected[100]), said)
    return table


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=["pubmed"])
    parser.add_argument("--models", nargs="+", choices=list(PUBLISHED), default=list(PUBLISHED))
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    asked = parser.parse_args()
    tell_what_it_took()
    keep_freed_memory()
    torch.manual_seed(3)
    torch.set_grad_enabled(False)
    console, everything = Console(width=190), dict[str, Any]()
    for graph in asked.graphs:
        vertices, edges, width = GRAPHS[graph]
        workload = Workload(vertices, edges, min(edges // 5 * 2, 200_000) // 1000 * 1000, width, only_edges=True)
        results = dict[str, Beside]()
        for model in asked.models:
            kind, aggregate = KINDS[model[:-2]], AGGREGATES[model[-2:]]
            net = Net(kind.conv(aggregate), (width, *kind.hidden)).eval()
            results[model] = measured(workload, net, BATCHES, asked.seconds, BATCHES)
            print(f"{graph} {model}", file=sys.stderr, flush=True)
        console.print(table_of(graph, results))
        everything[graph] = {model: one._asdict() for model, one in results.items()}
    finish(everything)


if __name__ == "__main__":
    main()
