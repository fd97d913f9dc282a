"""A graph past memory: a local job with `--memory`, beside the same job without, and killed on its way.

    .venv/bin/python scripts/bench/paging.py --vertices 300000 --edges 3000000 --memory 512MiB
    .venv/bin/python scripts/bench/paging.py --memory 2GiB 3GiB --stream skewed --kills 20

The graph, the model (SAGE 64-64-32) and the state are those of scripts/bench/start.py. The events add edges, between
vertices at random (`uniform`) or from and to few of them (`skewed`), 1,000 an epoch. Every run must give the rows of
the first one, bit by bit. `--kills`: the job with the least memory is killed that often with SIGKILL, and resumed.

Memory is looked at from outside, every 0.1 s: anonymous memory, which no kernel can take back without swap, and all of
the process. Bytes read and written are those of the disk.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.bench.embed import FRESHET
from scripts.bench.latency import Figures
from scripts.bench.start import make
from scripts.bench.throughput import machine

DEADLINE_S = 3600.0
_SKEW = 4.0  # the k-th of n vertices has a share of about (k / n) ** (1 / _SKEW - 1)


class Held:
    """The most memory that a process had, and what it read and wrote. Units: bytes."""

    def __init__(self, pid: int) -> None:
        self.anonymous = self.all = self.read = self.written = 0
        self._process = psutil.Process(pid)
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            try:
                lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
                held = {one.split(":")[0]: int(one.split()[1]) << 10 for one in lines if one.startswith("Rss")}
                self.anonymous = max(self.anonymous, held["RssAnon"])
                self.all = max(self.all, sum(held.values()))
                disk = self._process.io_counters()
                self.read, self.written = disk.read_bytes, disk.write_bytes
            except (psutil.Error, OSError, KeyError):
                return
            time.sleep(0.1)


def write_events(path: Path, vertices: int, events: int, stream: str) -> None:
    """Write events that add edges."""
    rng = np.random.default_rng(3)
    ends = rng.random((2, events)) ** (_SKEW if stream == "skewed" else 1.0)
    src, dst = (rng.permutation(vertices)[(one * vertices).astype(np.int64)] for one in ends)
    pq.write_table(pa.table({"op": pa.repeat(pa.scalar("add_edge"), events), "src": src, "dst": dst}), path)


def start(work: Path, out: Path, memory: str) -> subprocess.Popen[bytes]:
    """Start a job, or go on with it."""
    command = [FRESHET, "run", "--model", work / "M", "--snapshot", work / "S2", "--events", work / "stream.parquet"]
    command += ["--out", out, "--runtime", "local", "--epoch-events", 1000, "--resume", "auto"]
    command += ["--memory", memory] if memory else []
    with (work / "run.log").open("wb") as log:
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=log)


def run(work: Path, out: Path, memory: str) -> dict[str, Any]:
    """A job from its begin to its end."""
    shutil.rmtree(out, ignore_errors=True)
    began, job = time.perf_counter(), start(work, out, memory)
    held, first, before = Held(job.pid), 0.0, Figures(out)
    while job.poll() is None and time.perf_counter() - began < DEADLINE_S:
        if not first and (before := Figures(out)).epochs > 0:
            first = time.perf_counter()
        time.sleep(0.1)
    ended, events = time.perf_counter(), Figures(out).events
    looked_at, since = (before.events, first) if before.events < events else (0, began)  # it may be over by then
    if job.returncode != 0:
        raise SystemExit(f"--memory {memory}: {(work / 'run.log').read_text()[-2000:]}")
    return {
        "memory": memory or "all",
        "first_epoch_s": round(first - began, 1),
        "events_per_s": round((events - looked_at) / (ended - since)),
        "anonymous_MiB": held.anonymous >> 20,
        "rss_MiB": held.all >> 20,
        "read_GB": round(held.read / 1e9, 2),
        "written_GB": round(held.written / 1e9, 2),
    }


def run_killed(work: Path, out: Path, memory: str, kills: int, seconds: float, seed: int) -> dict[str, Any]:
    """A job that is killed at random moments of its life, and resumed each time, until it is over."""
    shutil.rmtree(out, ignore_errors=True)
    rng, killed, attempts = random.Random(seed), 0, 0
    while True:
        job = start(work, out, memory)
        attempts += 1
        try:
            code = job.wait(rng.uniform(2.0, 2.0 * seconds / kills) + 5.0 if killed < kills else DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.kill(job.pid, signal.SIGKILL)
            job.wait()
            killed += 1
            continue
        if code:
            raise SystemExit(f"attempt {attempts}: {(work / 'run.log').read_text()[-2000:]}")
        return {"memory": memory, "kills": killed, "attempts": attempts, "seed": seed}


def rows_of(out: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids and the bits of their newest rows."""
    found = ds.dataset(out / "embeddings", format="parquet").to_table(columns=["id", "epoch", "embedding"])
    ids, epochs = (found[name].to_numpy() for name in ("id", "epoch"))
    order = np.lexsort((epochs, ids))
    last = order[np.append(ids[order][1:] != ids[order][:-1], True)]
    values = found["embedding"].combine_chunks()
    return ids[last], values.values.to_numpy().reshape(len(ids), -1)[last].view(np.uint32)


def show(runs: list[dict[str, Any]]) -> None:
    """A line for each run."""
    table = Table(*runs[0], box=SIMPLE)
    for one in runs:
        table.add_row(*map(str, one.values()))
    Console(stderr=True, width=160).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=3_000_000)
    parser.add_argument("--edges", type=int, default=30_000_000)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--memory", nargs="+", default=["2GiB", "3GiB"])
    parser.add_argument("--stream", choices=("uniform", "skewed"), default="uniform")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    parser.add_argument("--work", type=Path, help="a folder that is kept, with what was made for it")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        make(work, given.vertices, given.edges, 1, 1)
        write_events(work / "stream.parquet", given.vertices, given.events, given.stream)
        runs, differing = [run(work, work / "out", "")], 0
        expected = rows_of(work / "out")
        for memory in given.memory:
            runs.append(run(work, work / "out", memory))
            differing += int(not all(map(np.array_equal, expected, rows_of(work / "out"))))
        if given.kills:
            seconds = given.events / runs[1]["events_per_s"]
            killed = run_killed(work, work / "out", given.memory[0], given.kills, seconds, given.seed)
            differing += int(not all(map(np.array_equal, expected, rows_of(work / "out"))))
            print(orjson.dumps(killed).decode(), file=sys.stderr)
        shutil.rmtree(work / "out")
    show(runs)
    sizes = {name: getattr(given, name) for name in ("vertices", "edges", "events", "stream")}
    print(orjson.dumps({"machine": machine(), **sizes, "runs": runs, "differing": differing}).decode())
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
