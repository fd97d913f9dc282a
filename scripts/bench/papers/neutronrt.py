"""NeutronRT's models: edge updates a second beside full recomputation, and the share of messages that are made again.

    .venv/bin/python scripts/bench/papers/neutronrt.py [--models gcn gat] [--seconds 1]

Table II and section 6 of NeutronRT: models of two layers, 256 hidden channels, batches of 0.01% of the edges (half of
them new ones, half deleted). "full" is a pass of PyTorch Geometric over the whole graph, "affected" one over the rows
that a batch may reach (the paper's UER). "messages" are those that Freshet makes in a batch, as a share of those of a
recomputation of the same rows. Rates are in seconds of the processor. Free models take differences of messages;
constrained ones, whose messages read their target, are redone where that changes, except for what is moved between the
sides of GAT's LeakyReLU.

Comparable: the models, the hidden width, the share of changed edges, arxiv's numbers of vertices, edges and features.
Not comparable: the machine (a GPU with 48 GB, or two Xeons with 512 GB, there; one thread here); edges are random in
arxiv's shape. CommNet is GraphConv; PinSAGE is SAGEConv with a projection (equal weights); MoNet's pseudo-coordinates
are attributes of edges. RGCN has 4 types of edges, drawn at random, and a mean for each, as published (the table has
one count for all). RGAT, the tenth of the table, is not among those that the paper measures or this script does: a job
keeps it with GAT's aggregates, a set for each type.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np
import orjson
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_geometric import nn as pyg

from freshet.job.local.malloc import keep_freed_memory
from scripts.bench.arxiv_stream import EDGES, VERTICES, WIDTH
from scripts.bench.layer_work import Watch
from scripts.bench.papers.beside import a_second, error_of, export_of, given_of, percent, rate
from scripts.bench.peer_graph import Graph, Workload
from scripts.bench.peer_systems import Affected, AttributedNet, Net, OfFreshet, TypedNet
from scripts.bench.peers import Stream
from scripts.bench.throughput import machine
from scripts.bench.took import tell_what_it_took

HIDDEN, CLASSES, TYPES, SHARE = 256, 40, 4, 1e-4
COUNTED = 20  # batches whose messages are counted, and not timed


class Kind(NamedTuple):
    """A model of table II: its conv, its class there, and how many attributes or types edges have."""

    conv: Any
    of_class: str
    attributes: int = 0
    types: int = 0

    def net(self) -> Net:
        """Return two layers of it."""
        made = TypedNet if self.types else AttributedNet if self.attributes else Net
        return made(self.conv, (WIDTH, HIDDEN, CLASSES)).eval()


KINDS = {
    "gin": Kind(lambda a, b: pyg.GINConv(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))), "free"),
    "monet": Kind(lambda a, b: pyg.GMMConv(a, b, 2, 3, aggr="add"), "free", 2),
    "commnet": Kind(lambda a, b: pyg.GraphConv(a, b), "free"),
    "gcn": Kind(lambda a, b: pyg.GCNConv(a, b, add_self_loops=False), "decoupled"),
    "sage": Kind(lambda a, b: pyg.SAGEConv(a, b), "decoupled"),
    "pinsage": Kind(lambda a, b: pyg.SAGEConv(a, b, project=True), "decoupled"),
    "rgcn": Kind(lambda a, b: pyg.RGCNConv(a, b, TYPES), "decoupled", types=TYPES),
    "gat": Kind(lambda a, b: pyg.GATConv(a, b, add_self_loops=False), "constrained"),
    "g-gcn": Kind(lambda a, b: pyg.ResGatedGraphConv(a, b), "constrained"),
    "a-gnn": Kind(lambda a, b: _Agnn(a, b), "constrained"),
}
PUBLISHED = "76.7-154.3 K edge updates/s in a GPU; 2.6-3.3 x a full pass, 2.2-4.1 x UER"  # of arxiv, all models


class _Agnn(nn.Module):
    """A-GNN's layer: attention by cosines, between a linear layer and none."""

    def __init__(self, read: int, made: int) -> None:
        super().__init__()
        self.lin, self.conv = nn.Linear(read, made), pyg.AGNNConv(add_self_loops=False)

    def forward(self, x: Any, edge_index: Any) -> Any:
        """Return the rows.

        Shapes: x (n, read); edge_index (2, e) int64; result (n, made)
        """
        return self.conv(self.lin(x), edge_index)


@lru_cache(maxsize=1)
def workload_of(vertices: int, edges: int, events: int, attributes: int, types: int) -> Workload:
    """Return the graph and the stream, the same for models that read the same of edges."""
    return Workload(vertices, edges, events, attributes=attributes, types=types, only_edges=True)


def measure(kind: Kind, asked: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a model."""
    events = max(2, int(asked.edges * SHARE) // 2 * 2)
    net = kind.net()
    most = min(asked.edges // 5 * 2, 400 * events) // 2 * 2
    workload = workload_of(asked.vertices, asked.edges, most, kind.attributes, kind.types)
    ours = OfFreshet(workload, export_of(net, workload))
    stream = Stream(ours, most)
    stream.epoch(events)  # compiles and warms up
    found: dict[str, Any] = {"class": kind.of_class, "freshet": stream.rates(events, asked.seconds, most // 2)}
    watch = Watch(ours.engine.layers)
    for _ in range(min(COUNTED, (most - stream.at) // events)):
        stream.epoch(events)
    watch.end()
    made, redone = (sum(getattr(one, name) for one in watch.works) for name in ("messages", "khop_messages"))
    found |= {"messages": made / max(1, redone), "error": error_of(ours.rows(), workload, net, stream.at)}
    del ours, stream, watch
    found["full"], rows = full_pass(net, workload, events)
    affected = Stream(Affected(workload, net, rows=rows), most)
    return found | {"affected": affected.rates(events, asked.seconds)}


def full_pass(net: Net, workload: Workload, events: int) -> tuple[dict[str, float], list[np.ndarray]]:
    """Return what a pass over the whole graph takes for each of the events that it comes after; and all rows.

    These are what each layer after the first reads, and the last ones.
    """
    given, made = given_of(Graph(workload)), list[torch.Tensor]()
    hooks = [conv.register_forward_hook(lambda *called: made.append(called[-1])) for conv in net.convs]
    began, cpu = time.perf_counter(), time.process_time()
    net(*given)
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    for hook in hooks:
        hook.remove()
    rows = [*(one.relu().numpy() for one in made[:-1]), made[-1].numpy()]
    return {"events_per_s": events / wall, "cpu_us": 1e6 * cpu / events}, rows


def table_of(results: dict[str, dict[str, Any]], asked: argparse.Namespace) -> Table:
    """Return the results for people."""
    title = f"{asked.vertices:,} vertices, {asked.edges:,} edges ({machine()})"
    table = Table(title=title, caption=f"the paper on arxiv: {PUBLISHED}")
    table.add_column("model")
    table.add_column("class")
    for name in ("edge updates/s", "full", "Freshet / it", "affected", "Freshet / it", "messages", "error"):
        table.add_column(name, justify="right")
    for model, one in results.items():
        ours, full, affected = (a_second(one[name]) for name in ("freshet", "full", "affected"))
        cells = [rate(ours), rate(full), f"{ours / full:,.0f} x", rate(affected), f"{ours / affected:,.0f} x"]
        table.add_row(model, one["class"], *cells, percent(one["messages"]), f"{one['error']:.1e}")
    return table


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--vertices", type=int, default=VERTICES)
    parser.add_argument("--edges", type=int, default=EDGES)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    asked = parser.parse_args()
    tell_what_it_took()
    keep_freed_memory()
    torch.manual_seed(3)
    torch.set_grad_enabled(False)
    results = dict[str, dict[str, Any]]()
    for name in asked.models:
        results[name] = measure(KINDS[name], asked)
        print(name, file=sys.stderr, flush=True)
    Console(width=150).print(table_of(results, asked))
    worst = float(np.max([one["error"] for one in results.values()]))
    option = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    print(orjson.dumps({"machine": machine(), "models": results, "max_error": worst}, option=option).decode())
    sys.exit(f"off by {worst:.1e}" if worst > 1e-4 else 0)


if __name__ == "__main__":
    main()
