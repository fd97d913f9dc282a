"""ATLAS's full pass within a memory budget: seconds and bytes of the disk beside what reads rows as they come.

    .venv/bin/python scripts/bench/papers/atlas.py [--vertices 200000 --edges 2400000] [--memory 64MiB 1GiB]

Section 4 of ATLAS: GraphConv, SAGEConv and GINConv of two layers and 128 hidden channels over a graph whose rows need
not fit into memory. `freshet embed` runs in a process of its own; its anonymous memory is looked at from outside, and
its bytes are those of its calls, whether the page cache had them or not. Beside it stand a gather of each
destination's in-neighbours over memory-mapped rows (DGI's way), whose rows stay in the page cache here, and the bytes
that it reads where they do not: a page of 4 KiB for each edge and layer. Both are of GraphConv.

Comparable: the models, the hidden width, layer-wise execution within a budget, and exactness. Not comparable: the size
(111 to 269 million vertices there); the machine (12 cores and an RTX 5090 there, one process here); the disk.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import orjson
from rich.console import Console
from rich.table import Table

from freshet.gnn.any_plan import without_kinds
from freshet.operators.factory import load_plan
from scripts.bench.embed import gathers, run_embed, save_convs, save_graph
from scripts.bench.throughput import machine
from scripts.bench.took import tell_what_it_took

WIDTHS = [128, 128, 40]
CONVS = {"GraphConv": "graph_conv", "SAGEConv": "sage_conv", "GINConv": "gin_conv"}
PAGE = 4096
PUBLISHED = "12.4-30 x Ginex, which reads 11-16 x more; 36-44 x DGI in layer 1 where features are wide, else equal"


def measure(asked: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Return a row for each model and budget, each with the seconds of the gathers."""
    snapshot, rows = work / "S", list[dict[str, Any]]()
    save_graph(snapshot, asked.vertices, asked.edges, WIDTHS[0], 2.0, None)
    gather: dict[str, float] = {}
    for name in asked.models:
        model = work / f"M-{name}"
        save_convs(model, WIDTHS, CONVS[name])
        gather = gather or gathers(without_kinds(load_plan(str(model)), "`freshet embed`"), snapshot, work)
        for memory in asked.memory:
            out = work / f"out-{name}-{memory}"
            found = run_embed(model, snapshot, out, "--memory", memory)
            row = {name: found[name] for name in ("wall_s", "anonymous", "read", "written", "passes")}
            as_they_come = (len(WIDTHS) - 1) * asked.edges * PAGE
            rows.append({"model": name, "memory": memory, "as_they_come": as_they_come, **row, **gather})
            print(f"{name} {memory}", file=sys.stderr, flush=True)
    return rows


def table_of(rows: list[dict[str, Any]], asked: argparse.Namespace) -> Table:
    """Return the results for people."""
    title = f"{asked.vertices:,} vertices, {asked.edges:,} edges, {WIDTHS[0]} features ({machine()})"
    table = Table(title=title, caption=f"the paper: {PUBLISHED}")
    table.add_column("model")
    for name in ("budget", "passes", "seconds", "anonymous", "read", "written", "rows as they come, read"):
        table.add_column(name, justify="right")
    table.add_column("gather in page cache, in memory", justify="right")
    for one in rows:
        sizes = [f"{one[name] / 1e9:.2f} GB" for name in ("read", "written", "as_they_come")]
        passes = ", ".join(map(str, one["passes"])) if isinstance(one["passes"], list) else str(one["passes"])
        cells = [one["memory"], passes, f"{one['wall_s']:.1f}", f"{one['anonymous'] >> 20:,} MiB", *sizes]
        table.add_row(one["model"], *cells, f"{one['gather_mapped_s']} s, {one['gather_in_memory_s']} s")
    return table


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=2_400_000)
    parser.add_argument("--models", nargs="+", choices=list(CONVS), default=list(CONVS))
    parser.add_argument("--memory", nargs="+", default=["64MiB", "1GiB"])
    parser.add_argument("--work", type=Path, help="an existing folder on the disk to measure (default: temporary)")
    asked = parser.parse_args()
    tell_what_it_took()
    with tempfile.TemporaryDirectory(dir=asked.work) as folder:
        rows = measure(asked, Path(folder))
    Console(width=170).print(table_of(rows, asked))
    print(orjson.dumps({"machine": machine(), "runs": rows}).decode())


if __name__ == "__main__":
    main()
