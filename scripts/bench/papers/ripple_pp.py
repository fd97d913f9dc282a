"""RIPPLE++'s throughput and latency by batch size, on graphs of its shapes: the paper's figures beside ours.

    .venv/bin/python scripts/bench/papers/ripple_pp.py [--graphs arxiv reddit products] [--seconds 1]
    .venv/bin/python scripts/bench/papers/ripple_pp.py --graphs reddit --models GC-S --scale 1    # the paper's size

Section 6.2 and figure 4 of Naman et al., RIPPLE++ (2026): seven models of two layers, updates in batches of 1 to 1,000.
"recompute" is PyTorch Geometric on the rows that a batch may reach, here and in the paper (there in NumPy). Ours are
updates in a second of the processor, and its time for a batch.

Comparable: the models, the batch sizes, the numbers of vertices, edges and features of Arxiv, the kinds of updates,
and that every batch ends with exact rows. Not comparable: the machine (12 cores of a Ryzen 9 7900X there, one thread
here); the graphs, which have the shapes of the real ones but random edges, Reddit's and Products' at 1/--scale with
their average degrees; what is held back at first (a fifth of the vertices with their edges, and a fifth of the other
edges: half of the edges are there); the hidden width, which the paper does not say (128 here); the mix, of which the
paper says that it is LinkBench's FBWorkload. Its shares of these kinds are taken (39% new edges, 13% deleted ones, 32%
new features, 11% new vertices, 4% deleted ones with all of their edges), but what is drawn is none of its trace. A
model on a graph is refused where the memory that it takes is not there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_geometric.nn import GATConv, GINConv, GraphConv, SAGEConv

from freshet.gnn.describe import describe_data
from freshet.gnn.pyg.export import export_model
from freshet.job.local.malloc import keep_freed_memory
from freshet.job.size.miniature import GraphSize, operators_of
from freshet.job.units import readable
from freshet.state.memory.machine_memory import available_memory
from scripts.bench.papers.beside import Beside, a_second, finish, measured, percent, rate
from scripts.bench.peer_graph import BEGIN, LINKBENCH, Workload
from scripts.bench.peer_systems import Net, WeightedNet
from scripts.bench.throughput import machine
from scripts.bench.took import tell_what_it_took

BATCHES = (1000, 100, 10, 1)
HIDDEN, EVENTS = 128, {"arxiv": 100_000, "reddit": 40_000, "products": 40_000}
_PROCESS, _EDGE = 1_500_000_000, 70  # bytes, measured: of PyTorch with messages of a call; of an edge beside the tables


class Shape(NamedTuple):
    """A graph of the paper's table 2."""

    vertices: int
    edges: int
    width: int
    classes: int


SHAPES = {
    "arxiv": Shape(169_343, 1_170_000, 128, 40),
    "reddit": Shape(233_000, 114_900_000, 602, 41),
    "products": Shape(2_500_000, 123_700_000, 100, 47),
}
MODELS: dict[str, Any] = {
    "GC-S": lambda a, b: GraphConv(a, b, aggr="add"),
    "GS-S": lambda a, b: SAGEConv(a, b, aggr="sum"),
    "GC-M": lambda a, b: GraphConv(a, b, aggr="mean"),
    "GI-S": lambda a, b: GINConv(nn.Linear(a, b)),
    "GC-W": lambda a, b: GraphConv(a, b, aggr="add"),
    "GC-X": lambda a, b: GraphConv(a, b, aggr="max"),
    "GA-A": lambda a, b: GATConv(a, b, add_self_loops=False),
}
ON_LARGE = ("GC-S", "GC-X", "GA-A")  # the models that are run on Reddit's and Products' shapes
PUBLISHED = {  # updates a second at 1,000 a batch, section 6.2.1
    ("arxiv", "GC-S"): "37-56 K",
    ("arxiv", "GS-S"): "37-56 K",
    ("arxiv", "GC-M"): "37-56 K",
    ("arxiv", "GI-S"): "56 K",
    ("arxiv", "GC-W"): "34 K",
    ("arxiv", "GC-X"): "17.6 K",
    ("arxiv", "GA-A"): "9.4 K",
    ("reddit", "GC-S"): "7.8 K",
    ("reddit", "GA-A"): "2.2 K",
    ("products", "GC-S"): "3.5-4 K",
    ("products", "GC-X"): "4.5 K",
    ("products", "GA-A"): "1.25 K",
}
OVER_RECOMPUTE = {"arxiv": "7 x", "reddit": "30 x", "products": "20 x"}  # mean of all models at 1,000 a batch


def shape_of(graph: str, scale: int) -> Shape:
    """Return the shape that is generated: Arxiv's as it is, the others' smaller."""
    shape = SHAPES[graph]
    return shape if graph == "arxiv" else shape._replace(vertices=shape.vertices // scale, edges=shape.edges // scale)


def needed(shape: Shape, folder: Path) -> int:
    """Return the bytes that a measurement takes at most: Freshet's tables, and the graph and rows beside them."""
    held = operators_of(folder, GraphSize((shape.vertices,), (_present(shape),)))
    tables = sum(one.memory for one in held.values())
    rows = 8 * shape.vertices * (3 * shape.width + 2 * (HIDDEN + shape.classes))
    return int(_PROCESS + tables + rows + _EDGE * shape.edges)


def _present(shape: Shape) -> int:
    """Return how many edges are there at most, both of whose ends are, too."""
    return int(shape.edges * BEGIN**3) + max(EVENTS.values())


def check_memory(graph: str, shape: Shape, folders: Sequence[Path]) -> None:
    """Print what the measurement takes of that model of these folders which has most to keep.

    Raises: SystemExit where there is less.
    """

    def state(folder: Path) -> int:
        model = describe_data(folder)
        vertices = shape.vertices * model["state_bytes_per_vertex"]
        return int(vertices + _present(shape) * model["state_bytes_per_edge"])

    needs, there = needed(shape, max(folders, key=state)), available_memory()
    what = f"{graph}: {shape.edges:,} edges take {readable(needs)}, {readable(there)} are free"
    if needs > there:
        sys.exit(f"{what}; give a larger --scale, or leave it out of --graphs")
    print(what, file=sys.stderr, flush=True)


def table_of(graph: str, shape: Shape, results: dict[str, Beside]) -> Table:
    """Return the table of a graph."""
    size = f"{shape.vertices:,} vertices, {shape.edges:,} edges, {shape.width} features"
    table = Table(title=f"{graph}: {size} ({machine()})")
    table.add_column("model")
    for name in ("RIPPLE++, paper, 1,000", *(f"Freshet, {batch:,}" for batch in BATCHES), "batch"):
        table.add_column(name, justify="right")
    for name in ("affected at 1,000", "recompute, 1,000", "Freshet / it", "the paper's"):
        table.add_column(name, justify="right")
    for model, one in results.items():
        ours = [rate(a_second(one.freshet[batch])) for batch in BATCHES]
        times = " / ".join(f"{one.freshet[batch]['cpu_us'] * batch / 1000:.3g}" for batch in BATCHES)
        recomputed = a_second(one.recompute[1000])
        over = a_second(one.freshet[1000]) / recomputed
        cells = [PUBLISHED.get((graph, model), ""), *ours, f"{times} ms", percent(one.affected[1000])]
        table.add_row(model, *cells, rate(recomputed), f"{over:.0f} x", OVER_RECOMPUTE[graph])
    return table


def of_graph(graph: str, shape: Shape, asked: argparse.Namespace, folder: Path) -> dict[str, Beside]:
    """Measure the models on a graph, which is drawn once; the models are exported to the folder.

    Raises: SystemExit where there is not enough memory.
    """
    nets, models, results = dict[str, Net](), dict[str, Any](), dict[str, Beside]()
    for name in asked.models or (MODELS if graph == "arxiv" else ON_LARGE):
        made = WeightedNet if name == "GC-W" else Net
        nets[name] = made(MODELS[name], (shape.width, HIDDEN, shape.classes)).eval()
        models[name] = export_model(nets[name], folder / name, features=shape.width)
    check_memory(graph, shape, [folder / name for name in nets])
    weighted = Workload(shape.vertices, shape.edges, EVENTS[graph], shape.width, weights=True, mix=LINKBENCH)
    plain = weighted.without_weights()
    for name, net in nets.items():
        workload = weighted if name == "GC-W" else plain
        results[name] = measured(workload, net, BATCHES, asked.seconds, model=models[name])
        print(f"{graph} {name}", file=sys.stderr, flush=True)
    return results


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--models", nargs="+", choices=list(MODELS), help="default: all on arxiv, three on the others")
    parser.add_argument("--scale", type=int, default=40, help="divides Reddit's and Products' shapes; 1: as published")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    asked = parser.parse_args()
    tell_what_it_took()
    keep_freed_memory()
    torch.manual_seed(3)
    torch.set_grad_enabled(False)
    console, everything = Console(width=190), dict[str, Any]()
    for graph in asked.graphs:
        shape = shape_of(graph, asked.scale)
        with tempfile.TemporaryDirectory() as folder:
            results = of_graph(graph, shape, asked, Path(folder))
        console.print(table_of(graph, shape, results))
        everything[graph] = {model: one._asdict() for model, one in results.items()}
    finish(everything)


if __name__ == "__main__":
    main()
