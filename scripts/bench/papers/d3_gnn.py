"""D3-GNN's throughput by parallelism and window, and its replication by partitioner: the paper's figures beside ours.

    .venv/bin/python scripts/bench/papers/d3_gnn.py [--parallelism 1 2] [--runtime flink]

Section 5, table 1 and figures 4 and 5 of D3-GNN: GraphSAGE with a mean of two layers, 64 and 32 wide, on the edges of
Reddit hyperlinks, which come one after the other to a graph that has none at first. "streaming" updates all rows after
each edge; windows collect edges. Jobs run on Flink, their input is a file, and epochs stand for windows.

Comparable: the model, the numbers of vertices and edges, additions alone, and Flink. Not comparable: 10 machines of 20
cores there, the cores of this one here; the graph, which has random edges with hubs, in random order; features, which
the vertices have from the start here (64 wide); there windows end by time (200 ms), here by the number of edges.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from scripts.bench.arxiv_stream import make_edges
from scripts.bench.embed import FRESHET, ROOT, save_convs
from scripts.bench.throughput import machine
from scripts.bench.took import tell_what_it_took

WIDTHS = [64, 64, 32]
STREAMED = 2_000  # edges of the run that updates after each
PUBLISHED = {  # edges/s of table 1 by machines: streaming, and windows of 200 ms
    1: (269, 6_111),
    5: (609, 7_570),
    10: (839, 7_570),
}


def write_inputs(folder: Path, vertices: int, edges: int) -> None:
    """Write a snapshot of vertices alone, the model, and two streams of edges: all, and the first of them."""
    rng = np.random.default_rng(7)
    (folder / "S").mkdir()
    x = rng.standard_normal((vertices, WIDTHS[0]), dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), WIDTHS[0])
    pq.write_table(pa.table({"id": np.arange(vertices), "x": vectors}), folder / "S/vertices.parquet")
    none = pa.array([], pa.int64())
    pq.write_table(pa.table({"src": none, "dst": none}), folder / "S/edges.parquet")
    src, dst = make_edges(vertices, edges, rng)
    for name, count in (("all", edges), ("first", STREAMED)):
        columns = {"op": ["add_edge"] * count, "src": src[:count], "dst": dst[:count]}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    save_convs(folder / "M", WIDTHS, "sage_conv")


def lines_of(command: list[str]) -> list[dict[str, Any]]:
    """Return the JSON objects that a command prints.

    Raises: SystemExit, with what it wrote, if it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\nexit {done.returncode}\n{done.stderr[-2000:]}")
    return [orjson.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def run(folder: Path, events: str, parallelism: int, window: int, runtime: str) -> dict[str, Any]:
    """Return the summary of a job over a stream, with epochs of `window` edges."""
    out = folder / f"out-{events}-{parallelism}-{window}"
    inputs = [f"--{name}={folder / path}" for name, path in (("model", "M"), ("snapshot", "S"))]
    inputs += [f"--events={folder / events}.parquet", f"--out={out}"]
    shape = ["--runtime", runtime, "--parallelism", str(parallelism), "--parts", str(parallelism)]
    cut = ["--epoch-events", str(window), "--epoch-ms", "0"]
    summary = lines_of([str(FRESHET), "run", *inputs, *shape, *cut])[-1]
    return summary | {"parallelism": parallelism, "window": window}


def replication(folder: Path, parts: int) -> list[dict[str, Any]]:
    """Return what each partitioner makes of the stream."""
    tool = str(ROOT / "scripts/tools/partition.py")
    return lines_of([sys.executable, tool, "--events", str(folder / "all.parquet"), "--parts", str(parts)])


def tables_of(runs: list[dict[str, Any]], trials: list[dict[str, Any]], asked: argparse.Namespace) -> list[Table]:
    """Return the results for people."""
    speed = Table(title=f"{asked.vertices:,} vertices, {asked.edges:,} added edges ({machine()})")
    for name in ("parallelism", "edges an epoch", "edges/s", "rows/s", "applied p50, p99"):
        speed.add_column(name, justify="right")
    for one in runs:
        times = f"{one['applied_ms_p50']:.1f}, {one['applied_ms_p99']:.1f} ms"
        rows = f"{one['rows'] / one['seconds']:,.0f}"
        speed.add_row(str(one["parallelism"]), f"{one['window']:,}", f"{one['events_per_s']:,.0f}", rows, times)
    theirs = [f"{many}: {one:,} and {window:,}" for many, (one, window) in PUBLISHED.items()]
    speed.caption = f"the paper's edges/s by machines of 20 cores, streaming and in windows: {', '.join(theirs)}"
    names = ["partitioner", "replication_factor", "cut_share", "vertex_balance", "edge_balance", "edges_per_s"]
    quality = Table(*names, title=f"{asked.parts} parts")
    for one in trials:
        quality.add_row(*(f"{one[name]:.3g}" if isinstance(one[name], float) else str(one[name]) for name in names))
    return [speed, quality]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=36_000)
    parser.add_argument("--edges", type=int, default=286_000)
    parser.add_argument("--parallelism", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--windows", type=int, nargs="+", default=[100, 10_000], metavar="EDGES")
    parser.add_argument("--parts", type=int, default=8, help="for the partitioners")
    parser.add_argument("--runtime", default="flink", choices=["flink", "local"])
    asked = parser.parse_args()
    tell_what_it_took()
    runs = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder, asked.vertices, asked.edges)
        for parallelism in asked.parallelism:
            runs.append(run(folder, "first", parallelism, 1, asked.runtime))
            runs += [run(folder, "all", parallelism, window, asked.runtime) for window in asked.windows]
            print(f"parallelism {parallelism}", file=sys.stderr, flush=True)
        trials = replication(folder, asked.parts)
    Console(width=170).print(*tables_of(runs, trials, asked))
    print(orjson.dumps({"machine": machine(), "runs": runs, "partitioners": trials}).decode())


if __name__ == "__main__":
    main()
