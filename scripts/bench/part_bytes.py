"""Memory of a vertex by the number of parts: bytes of all tables with a vertex's data in each part.

    .venv/bin/python scripts/bench/part_bytes.py --graph edges.parquet --parts 1 4 16 64 256 --partitioner hybrid

The edges (columns src, dst; without --graph those of arxiv's shape) become one epoch of a job with a model of two
layers. "columns" is what a column per part takes, as rows times width, "held" what the operators have in memory, and
"pages" what of that goes into a checkpoint of all of it. All in bytes a vertex.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
from rich.console import Console
from rich.table import Table as Shown

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.declarations import GraphConv
from freshet.gnn.model import build_model
from freshet.gnn.plan import compile_plan
from freshet.gnn.rows.chains import chain_tensors
from freshet.operators.control import control_values
from freshet.operators.dataflow import PARTITIONER, STORAGE, Place
from freshet.operators.factory import dataflow_of, stages_of
from freshet.operators.network import Network
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.operators.storage.features import FeatureStorage
from freshet.operators.storage.layer import LayerStorage
from freshet.partitioner.config import STRATEGIES, PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import OP_ADD_EDGE, Events
from freshet.partitioner.ids import Ids
from freshet.schema import EdgeValues, Features
from freshet.state.table import Table, TableSet
from freshet.state.task_parts import TaskParts
from scripts.bench.arxiv_stream import EDGES, VERTICES, make_edges, read_edges

SLOT_TABLES = ("replica", "index")
SLOT_HEADS = (*SLOT_TABLES, *(f"{name}.head" for name in SLOT_TABLES))


class Cost(NamedTuple):
    """Bytes a vertex: of columns, and in memory and pages as they are."""

    parts: int
    replication: float
    columns_partitioner: float
    held_partitioner: float
    columns_storages: float
    held_storages: float
    pages: float


def edge_events(src: np.ndarray, dst: np.ndarray) -> Events:
    """An epoch that adds these edges."""
    n, empty = src.size, Events.empty(Features(1))
    return Events(
        op=np.full(n, OP_ADD_EDGE, np.uint8),
        a=Ids.of_ints(src),
        b=Ids.of_ints(dst),
        values=EdgeValues.default(n),
        etype=np.zeros(n, np.int32),
        x_row=np.full(n, -1, np.int32),
        x=empty.x,
        position=np.arange(1, n + 1),
        source=np.zeros(n, np.int16),
        partition=np.zeros(n, np.int16),
    )


def pages_of(tables: Iterable[Table]) -> int:
    """Bytes of the pages of all parts, as the first checkpoint has them."""
    return sum(
        len(page)
        for table in tables
        for owed in [table.freeze()]
        for part in range(table.parts)
        for _, page in table.take_owed(owed, part)
    )


def of_slots(tables: TableSet) -> list[Table]:
    """Return the tables that have a vertex's data in each part."""
    return [table for table in tables if table.name.split(".")[0] in SLOT_TABLES and table.rows]


def measure(parts: int, strategy: str, src: np.ndarray, dst: np.ndarray) -> Cost:
    """Take the edges through a job of `parts` parts on one task."""
    layers = [GraphConv(in_channels=1, out_channels=1, edge_weights=True) for _ in range(2)]
    weights = {name: np.ones(shape) for name, shape in chain_tensors(layers, "layers").items()}
    plan = compile_plan(build_model(layers=layers, weights=weights))
    settings = Settings(model="", out="", parts=parts, tasks=(parts,))
    core = Partitioner(parts, Features(1), PartitionerConfig(strategy=strategy), TaskParts.dealt(parts, 1))
    change = core.partition(edge_events(src, dst), snapshot=True)
    flow = dataflow_of(settings, plan)
    stages = stages_of(settings, plan, [row for row in flow.staged if row.kind != "sink"])
    for stage in stages.values():
        stage.restore(*((),) * len(stage.parts))
    network = Network(flow, stages)
    blocks = core.split(change, control_values(events=src.size, vertices=core.vertices), 1)
    network.send(Place(PARTITIONER, 0), [Message(STORAGE, task, 1, block) for task, block in enumerate(blocks)])
    while not network.idle:
        network.step()
    stats, n = core.stats(), core.vertices
    of_vertex = [table for table in core.tables if table.name in ("vertex", "lists")]
    held = [table for stage in stages.values() for table in of_slots(stage.core.tables)]
    columns = [sum(table.name in SLOT_HEADS for table in of_slots(stage.core.tables)) for stage in stages.values()]
    storages = [stage.core for stage in stages.values() if isinstance(stage.core, FeatureStorage | LayerStorage)]
    slots = [int(owner.at.needs.sum()) for core in storages for owner in core.owners]
    return Cost(
        parts,
        stats.replication_factor,
        4.0 * (18 + 3 * parts + parts % 2),
        sum(table.nbytes for table in of_vertex) / n,
        4.0 * parts * float(np.dot(columns, slots)) / n,
        sum(table.nbytes for table in held) / n,
        (pages_of(of_vertex) + pages_of(held)) / n,
    )


def main() -> int:
    """Measure each number of parts; a table for people, JSON lines on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path, help="Parquet file with the edges (src, dst)")
    parser.add_argument("--parts", nargs="+", type=int, default=[1, 4, 16, 64, 256])
    parser.add_argument("--partitioner", choices=STRATEGIES, default="hybrid")
    options = parser.parse_args()
    rng = np.random.default_rng(7)
    src, dst = make_edges(VERTICES, EDGES, rng) if options.graph is None else read_edges(options.graph, rng)
    shown = Shown(title=f"{options.graph or 'arxiv-shaped'}, {options.partitioner}: bytes a vertex")
    for name in Cost._fields:
        shown.add_column(name.replace("_", " "), justify="right")
    for parts in options.parts:
        cost = measure(parts, options.partitioner, src, dst)
        print(orjson.dumps({name: round(value, 2) for name, value in cost._asdict().items()}).decode(), flush=True)
        shown.add_row(*(f"{value:,.1f}" if isinstance(value, float) else str(value) for value in cost))
    Console(stderr=True, width=140).print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
