"""Predictions of `freshet size --machines N` beside a job of N processes on this machine.

    .venv/bin/python scripts/bench/scale.py                          # 1, 2 and 4 processes on Flink, some minutes
    .venv/bin/python scripts/bench/scale.py --shapes 4:2 --vertices 60000 --edges 600000

The graph is the snapshot of each job; its edges are deleted and added again in epochs of 1,000. A shape is
processes:groups that share the layers (`--pipeline`). Compared are the tables of all operators, the base image, and the
bytes an event that each operator sends; those that hand over within their thread send none. How many rows an event
changes depends on the graph: the prediction's edges have ends at random, those here arxiv's degrees. Prints a JSON line
for each job, and a last one with the largest deviation of tables and image; exits with 1 if that is greater than
--tolerance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.arxiv_stream import make_edges
from scripts.bench.size import FRESHET, folder_bytes, make_events, make_model

EPOCH, ROUNDS = 1000, 30
RATE = 1000  # events/s that are asked for: bytes a second are then those of 1,000 events, which are an epoch
COMPARED = "tables", "base image"


def write_changes(path: Path, vertices: int, edges: int) -> int:
    """Delete edges of the graph and add them again, an epoch each; returns the number of events."""
    src, dst = make_edges(vertices, edges, np.random.default_rng(11))
    ops, rows = [], []
    for k in range(min(ROUNDS, edges // EPOCH)):
        for op in ("del_edge", "add_edge"):
            ops += [op] * EPOCH
            rows.append(np.arange(k * EPOCH, (k + 1) * EPOCH))
    at = np.concatenate(rows)
    pq.write_table(pa.table({"op": ops, "src": src[at], "dst": dst[at]}), path)
    return len(ops)


def run(folder: Path, processes: int, predicted: dict[str, Any]) -> dict[str, Any]:
    """Run the job to its end; its `run.json`."""
    command = [str(FRESHET), "run", "--model", "M", "--snapshot", "S", "--events", "changes.parquet", "--out", "out"]
    command += [
        "--parallelism",
        str(processes),
        "--pipeline",
        str(predicted["groups"]),
        "--parts",
        str(predicted["parts"]),
    ]
    command += ["--epoch-events", str(EPOCH), "--epoch-ms", "0"]
    command += ["--snapshot-placement", "stream", "--checkpoint-interval", "10m"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found: dict[str, Any] = json.loads((folder / "out" / "run.json").read_text())
    return found


def measure(shape: str, vertices: int, edges: int, width: int) -> dict[str, Any]:
    """Compare a job of a shape, processes:groups, with its prediction."""
    processes, groups = map(int, shape.split(":"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_model(folder / "M", width, "sage")
        make_events(folder / "unused.parquet", folder / "S", vertices, edges, width, keyed=False)
        events = write_changes(folder / "changes.parquet", vertices, edges)
        asked = [str(FRESHET), "size", "M", "--vertices", str(vertices), "--edges", str(edges), "--json"]
        asked += ["--machines", str(processes), "--pipeline", str(groups), "--events-per-s", str(RATE)]
        predicted = json.loads(subprocess.run(asked, cwd=folder, check=True, capture_output=True).stdout)["machines"]
        found = run(folder, processes, predicted)
        rows: dict[str, Any] = found["profile"]
        sent = {name: row["bytes_out"] / events for name, row in rows.items()}
        held = sum(sum(rows[name]["memory_bytes"].values()) for name in predicted["held"])
        image = folder_bytes(folder / "out" / "base")
    of_link = {name: size for name, size in predicted["sent"].items() if sent[name]}  # the others stay in a thread
    pairs = {
        "tables": (sum(predicted["held"].values()), held),
        "base image": (predicted["checkpoint"], image),
        "bytes an event": (sum(of_link.values()) / RATE, sum(sent[name] for name in of_link)),
    }
    pairs |= {f"bytes of {name}": (size / RATE, sent[name]) for name, size in of_link.items()}
    line: dict[str, Any] = {
        "processes": processes,
        "groups": groups,
        "parts": predicted["parts"],
        "vertices": vertices,
        "edges": edges,
    }
    for name, (predicted, measured) in pairs.items():
        print(f"  {name:22} {predicted:>14,.0f} {measured:>14,.0f}", file=sys.stderr)
        line[name] = {"predicted": round(predicted), "measured": round(measured)}
    return line


def main() -> int:
    """Measure the jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["1:1", "2:2", "2:1", "4:4", "4:2"])
    parser.add_argument("--vertices", type=int, default=60_000)
    parser.add_argument("--edges", type=int, default=240_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--tolerance", type=float, default=0.2)
    given = parser.parse_args()
    worst = 0.0
    for shape in given.shapes:
        line = measure(shape, given.vertices, given.edges, given.width)
        print(orjson.dumps(line).decode(), flush=True)
        worst = max(worst, *(abs(line[name]["predicted"] / line[name]["measured"] - 1) for name in COMPARED))
    print(orjson.dumps({"jobs": len(given.shapes), "largest_deviation": round(worst, 3)}).decode(), flush=True)
    return int(worst > given.tolerance)


if __name__ == "__main__":
    sys.exit(main())
