"""Predictions of `freshet size` beside what real jobs take: memory of each operator and of the process, and disk.

    .venv/bin/python scripts/bench/size.py                       # three jobs, some minutes
    .venv/bin/python scripts/bench/size.py --vertices 50000 --edges 400000 --parts 2
    .venv/bin/python scripts/bench/size.py --vertices 50000 --edges 400000 --edge-key

Each job streams a graph from a file, in one process, and another one starts from the same graph as a snapshot. Compared
are the tables of all operators, the change log and the base image. The memory of the process, which streams at full
load, is shown beside them. Prints a JSON line for each job, and a last one with the largest deviation; exits with 1 if
that is greater than --tolerance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.convs.degree_scaled import GCNConv
from freshet.gnn.convs.sums import SAGEConv
from freshet.gnn.model import build_model, save_model
from freshet.gnn.rows.chains import chain_tensors
from freshet.job.units import readable
from scripts.bench.arxiv_stream import make_edges

FRESHET = Path(sys.executable).with_name("freshet")
COMPARED = "tables", "change log", "base image"
JOBS = ((100_000, 500_000, 1, 64), (40_000, 1_200_000, 1, 16), (60_000, 300_000, 4, 32))


def make_model(folder: Path, width: int, conv: str) -> None:
    """Save a model of two layers."""
    kind = {"gcn": GCNConv, "sage": SAGEConv}[conv]
    layers = [kind(in_channels=width, out_channels=width), kind(in_channels=width, out_channels=width)]
    rng = np.random.default_rng(3)
    weights = {
        name: (rng.standard_normal(shape) / 8).astype(np.float32)
        for name, shape in chain_tensors(layers, "layers").items()
    }
    save_model(build_model(layers=layers, weights=weights), folder)


def make_events(path: Path, snapshot: Path, vertices: int, edges: int, width: int, *, keyed: bool) -> None:
    """Write a graph as events, each vertex before its first edge, and as a snapshot.

    `keyed`: edges have keys, and a quarter of them is parallel to others.
    """
    rng = np.random.default_rng(11)
    src, dst = make_edges(vertices, edges, rng)
    if keyed:
        again = rng.integers(0, edges, edges // 4)
        src[: len(again)], dst[: len(again)] = src[again], dst[again]
    keys = pa.array(np.arange(edges))
    order = np.argsort(np.maximum(src, dst), kind="stable")
    rows = rng.random(vertices * width, np.float32)
    snapshot.mkdir(exist_ok=True)
    features = pa.FixedSizeListArray.from_arrays(pa.array(rows), width)
    pq.write_table(pa.table({"id": np.arange(vertices), "x": features}), snapshot / "vertices.parquet")
    given = {"key": keys} if keyed else {}
    pq.write_table(pa.table({"src": src, "dst": dst, **given}), snapshot / "edges.parquet")
    ops = pa.array(["add_vertex"] * vertices + ["add_edge"] * edges)
    x = pa.ListArray.from_arrays(
        pa.array(np.concatenate([np.arange(vertices + 1), np.full(edges, vertices)]).astype(np.int32) * width),
        pa.array(rows),
    )
    none = pa.nulls(edges, pa.int64())
    at = np.concatenate([np.arange(vertices), vertices + np.arange(edges)])
    place = np.concatenate([np.arange(vertices), np.maximum(src, dst)[order]]).astype(np.float64)
    place[vertices:] += 0.5
    table = pa.table(
        {
            "op": ops,
            "id": pa.concat_arrays([pa.array(np.arange(vertices)), none]),
            "x": x,
            "src": pa.concat_arrays([pa.nulls(vertices, pa.int64()), pa.array(src[order])]),
            "dst": pa.concat_arrays([pa.nulls(vertices, pa.int64()), pa.array(dst[order])]),
            **({"key": pa.concat_arrays([pa.nulls(vertices, pa.int64()), keys])} if keyed else {}),
        }
    )
    pq.write_table(table.take(pa.array(at[np.argsort(place, kind="stable")])), path, row_group_size=50_000)


def run(folder: Path, out: str, *options: str, events: str = "") -> tuple[dict[str, Any], int]:
    """Run a job to its end; its `run.json`, and the private memory that its process held last."""
    command = [str(FRESHET), "run", "--model", "M", "--events", f"{events or out}.parquet", "--out", out, *options]
    said = folder / f"{out}.stderr"
    with said.open("wb") as stderr:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=stderr)
    last, over = [0], threading.Event()

    def sample() -> None:
        while not over.wait(0.2):
            try:
                last[0] = psutil.Process(process.pid).memory_full_info().uss or last[0]
            except psutil.Error:
                return

    watcher = threading.Thread(target=sample, daemon=True)
    watcher.start()
    code = process.wait()
    over.set()
    watcher.join()
    if code:
        raise SystemExit(f"freshet run ended with {code}:\n{said.read_text()[-2000:]}")
    return json.loads((folder / out / "run.json").read_text()), last[0]


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def measure(vertices: int, edges: int, parts: int, width: int, conv: str, *, keyed: bool) -> dict[str, Any]:
    """Compare one job with its prediction; deviations are relative to what was measured."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_model(folder / "M", width, conv)
        make_events(folder / "small.parquet", folder / "other", 10, 20, width, keyed=keyed)
        make_events(folder / "large.parquet", folder / "S", vertices, edges, width, keyed=keyed)
        asked = [str(FRESHET), "size", "M", "--vertices", str(vertices), "--edges", str(edges), "--parts", str(parts)]
        asked += ["--edge-key", "int"] if keyed else []
        told = json.loads(subprocess.run([*asked, "--json"], cwd=folder, check=True, capture_output=True).stdout)
        how = ["--parts", str(parts), "--runtime", "local", "--checkpoint-interval", "10m"]  # no page is held twice
        _, before = run(folder, "small", *how)
        found, after = run(folder, "large", *how)
        run(folder, "started", "--snapshot", "S", *how, events="small")
        by_operator: dict[str, int] = {}
        for place, held in found["memory_bytes"].items():
            name = place.rpartition("-")[0]
            by_operator[name] = by_operator.get(name, 0) + held
        summary = found["summary"]
        pairs = {
            "tables": (told["memory"]["tables"], sum(by_operator.values())),
            "process at full load": (sum(told["memory"][name] for name in ("tables", "process", "buffers")), after),
            "empty process": (told["memory"]["process"], before),
            "change log": (
                told["disk"]["change_log_per_million_rows"] * summary["rows"] / 1e6,
                folder_bytes(folder / "large" / "embeddings"),
            ),
            "base image": (told["disk"]["base_image"], folder_bytes(folder / "started" / "base")),
        }
        pairs |= {name: (told["memory"]["operators"].get(name, 0), held) for name, held in by_operator.items()}
    line = {"vertices": vertices, "edges": edges, "parts": parts, "width": width, "conv": conv}
    for name, (predicted, measured) in pairs.items():
        print(f"  {name:16} {readable(int(predicted)):>10} {readable(measured):>10}", file=sys.stderr)
        line[name] = {"predicted": int(predicted), "measured": measured}
    return line


def main() -> int:
    """Measure the jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int)
    parser.add_argument("--edges", type=int)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--edge-key", action="store_true", help="edges have keys, a quarter is parallel to others")
    parser.add_argument("--tolerance", type=float, default=0.2)
    given = parser.parse_args()
    jobs = JOBS if given.vertices is None else ((given.vertices, given.edges, given.parts, given.width),)
    worst = 0.0
    for k, job in enumerate(jobs):
        line = measure(*job, ("gcn", "sage")[k % 2], keyed=given.edge_key)
        print(orjson.dumps(line).decode(), flush=True)
        pairs = [line[name] for name in COMPARED]
        worst = max(worst, *(abs(pair["predicted"] / pair["measured"] - 1) for pair in pairs))
    print(orjson.dumps({"jobs": len(jobs), "largest_deviation": round(worst, 3)}).decode(), flush=True)
    return int(worst > given.tolerance)


if __name__ == "__main__":
    sys.exit(main())
