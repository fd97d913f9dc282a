"""Speed of a job in its first minute: events/s and latencies by ten seconds, from its first epoch on.

    .venv/bin/python scripts/bench/start.py
    .venv/bin/python scripts/bench/start.py --vertices 3000 --edges 10000 --parts 4 --also ../before/.venv/bin/freshet

The graph is that of scripts/bench/embed.py, by default of 3,000,000 vertices and 30,000,000 edges: 9.3 GiB of
tables. The model is SAGE 64-64-32, the state that of `freshet embed`. The events add edges between vertices at random,
1,000 an epoch, in the local runtime. `--also` names the `freshet` of another version, which runs in turn with this one.
Latencies are from an epoch's first event to its rows being in the Sink. The default size needs 50 GB on the disk and
24 GiB of memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.embed import FRESHET, Private, save_convs, save_graph
from scripts.bench.latency import Figures
from scripts.bench.throughput import machine

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = [64, 64, 32]
DEADLINE_S = 600.0
_LOOK_S = 0.05


def make(work: Path, vertices: int, edges: int, events: int, parts: int) -> None:
    """Write the graph, the model, the state and the events, if they are not there."""
    if (work / "events.parquet").exists():
        return
    save_graph(work / "S", vertices, edges, WIDTHS[0], 2.0, None)
    save_convs(work / "M", WIDTHS, "sage_conv")
    command = [FRESHET, "embed", "--model", work / "M", "--snapshot", work / "S", "--out", work / "S2"]
    subprocess.run(list(map(str, [*command, "--parts", parts])), check=True, stdout=subprocess.DEVNULL)
    ends = np.random.default_rng(3).integers(0, vertices, (2, events))
    table = pa.table({"op": pa.repeat(pa.scalar("add_edge"), events), "src": ends[0], "dst": ends[1]})
    pq.write_table(table, work / "events.parquet")


def run(freshet: Path, work: Path, seconds: float, window_s: float) -> dict[str, Any]:
    """A job from its start until so long after its first epoch, or to its end."""
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [freshet, "run", "--model", work / "M", "--snapshot", work / "S2", "--events", work / "events.parquet"]
    command += ["--out", out, "--runtime", "local", "--epoch-events", 1000]
    began, load = time.perf_counter(), os.getloadavg()[0]
    with (work / "run.log").open("wb") as log:
        job = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=log)
    private = Private(job.pid)
    while job.poll() is None and Figures(out).epochs < 1 and time.perf_counter() - began < DEADLINE_S:
        time.sleep(_LOOK_S)
    first, before, windows = time.perf_counter(), Figures(out), list[dict[str, Any]]()
    since = first
    while job.poll() is None and since - first < seconds:
        while job.poll() is None and time.perf_counter() < since + window_s:
            time.sleep(_LOOK_S)
        now, took = Figures(out), time.perf_counter() - since
        found = now.since(before)
        windows.append({"events_per_s": round(found["events"] / took), "p99_ms": found["applied_ms_p99"]})
        before, since = now, since + took
    job.send_signal(signal.SIGTERM)
    if job.wait(DEADLINE_S) not in (0, 128 + signal.SIGTERM):
        raise SystemExit(f"{freshet} ended with {job.returncode}: {(work / 'run.log').read_text()[-2000:]}")
    shutil.rmtree(out)
    told = {"first_epoch_s": round(first - began, 1), "anonymous_MiB": private.anonymous >> 20, "load": round(load, 1)}
    return {"freshet": str(freshet), **told, "windows": windows}


def show(runs: list[dict[str, Any]], window_s: float) -> None:
    """A column for each run, a line for each window."""
    table = Table("seconds", *(f"{one['freshet']}, load {one['load']}" for one in runs), box=SIMPLE)
    table.add_row("to the first epoch", *(str(one["first_epoch_s"]) for one in runs))
    for number in range(max(len(one["windows"]) for one in runs)):
        told = [one["windows"][number : number + 1] for one in runs]
        cells = [f"{w[0]['events_per_s']:,} /s, p99 {w[0]['p99_ms'] or 0:,.0f} ms" if w else "" for w in told]
        table.add_row(f"{number * window_s:.0f} to {(number + 1) * window_s:.0f}", *cells)
    Console(stderr=True, width=200).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=3_000_000)
    parser.add_argument("--edges", type=int, default=30_000_000)
    parser.add_argument("--events", type=int, default=6_000_000)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=90.0, help="of each run, from its first epoch on")
    parser.add_argument("--window", type=float, default=10.0, help="seconds that a rate is of")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="further `freshet` commands")
    parser.add_argument("--work", type=Path, help="a folder that is kept, with what was made for it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        make(work, given.vertices, given.edges, given.events, given.parts)
        commands = [*(path.absolute() for path in given.also), FRESHET]
        runs = [run(one, work, given.seconds, given.window) for _ in range(given.rounds) for one in commands]
    show(runs, given.window)
    print(orjson.dumps({"machine": machine(), "vertices": given.vertices, "edges": given.edges, "runs": runs}).decode())


if __name__ == "__main__":
    main()
