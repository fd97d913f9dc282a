"""Compares the processor time of a job whose embeddings are computed as they are asked for with that of an eager one.

The stream of `make bench` comes from a Kafka broker at `--rate` into a job on Flink with `--embeddings eager`, then
into one with `asked`. A server runs beside it, and a client asks it for a number of rows of each epoch, over Flight.
Printed is the processor time by epoch of the job's processes and of the server's, without checkpoints: RocksDB merges
their files when it likes. At the end both take in a file as fast as they can, and rows of both are asked for, which
must be equal. The last line is JSON; exit 1 where rows differ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.dev.script import unwind_at_signals
from freshet.job.serving.clients.client import EmbeddingClient
from scripts.bench.arxiv_stream import generate_once
from scripts.bench.serving.beside_a_job import VERTICES, Server, finished, has_come_to, offered, run_of, until
from scripts.bench.throughput import ROOT, inputs_in, machine

MODES = "eager", "asked"
TOLERANCE = 1e-5
Figures = dict[str, Any]


def cpu_s(process: int) -> float:
    """Return the processor time of a process and of its children until now."""
    each = [found := psutil.Process(process), *found.children(recursive=True)]
    return sum(sum(one.cpu_times()[:2]) for one in each)


def asking(client: EmbeddingClient, rows: int, seconds: float) -> tuple[int, list[float]]:
    """Ask for rows of each epoch for some seconds; return the number of epochs, and the milliseconds of the answers."""
    rng, taken, first = np.random.default_rng(rows), list[float](), client.epoch()
    epoch, until_s = first, time.monotonic() + seconds
    while time.monotonic() < until_s:
        newest = client.epoch()
        if newest == epoch:
            time.sleep(0.002)
            continue
        epoch = newest
        if rows:
            began = time.perf_counter()
            client.rows(rng.choice(VERTICES, rows, replace=False))
            taken.append(1e3 * (time.perf_counter() - began))
    return epoch - first, taken


def beside(folder: Path, mode: str, options: Namespace) -> list[Figures]:
    """Measure a job, by the number of rows that are asked for."""
    run = ["--epoch-ms", options.epoch_ms, "--embeddings", mode, "--checkpoint-interval", "1h"]
    found, given = [], Namespace(runtime="flink", parts=1, epoch_events=100_000, options=run)
    with offered(folder, options.rate, given) as job:
        server = Server(job.out / "tables")
        try:
            with EmbeddingClient(server.addresses["flight"], timeout=300.0) as client:
                until(lambda: has_come_to(client, job.out), "the newest epochs")
                client.rows(np.arange(1000))
                for rows in options.rows:
                    before = [cpu_s(one.pid) for one in (job.process, server.process)]
                    epochs, taken = asking(client, rows, options.seconds)
                    after = [cpu_s(one.pid) for one in (job.process, server.process)]
                    spent = [round(1e3 * (b - a) / max(epochs, 1), 2) for a, b in zip(before, after, strict=True)]
                    answers = {f"ms_p{p}": round(float(np.percentile(taken or [0.0], p)), 2) for p in (50, 99)}
                    found.append(
                        {"mode": mode, "rows": rows, "epochs": epochs, "job_ms": spent[0], "server_ms": spent[1]}
                        | answers
                    )
        finally:
            server.end()
    shutil.rmtree(job.out)
    return found


def at_full_speed(folder: Path, events: int) -> Figures:
    """Run both on a file, in one process; return their speeds, and the largest difference of their rows.

    The difference is relative to the largest value of a row.
    """
    found, rows, stream = Figures(), list[np.ndarray](), _first(folder, events)
    for mode in MODES:
        out = folder / f"out-{mode}"
        given = Namespace(runtime="local", parts=1, epoch_events=1000, options=["--embeddings", mode])
        summary = finished(run_of(out, [*inputs_in(folder)[:4], "--events", stream], given))
        found[f"{mode}_events_per_s"] = summary["events_per_s"]
        server = Server(out / "tables")
        try:
            with EmbeddingClient(server.addresses["flight"], timeout=300.0) as client:
                rows.append(client.rows(np.arange(0, VERTICES, 17))[2])
        finally:
            server.end()
        shutil.rmtree(out)
    off = np.abs(rows[0] - rows[1]) / np.abs(rows[0]).max(axis=1, keepdims=True)
    return found | {"max_difference": float(off.max())}


def _first(folder: Path, events: int) -> Path:
    import pyarrow.parquet as pq

    path = folder / "first.parquet"
    pq.write_table(pq.read_table(folder / "events.parquet").slice(0, events), path)
    return path


def report(found: list[Figures]) -> None:
    """Print a table for people, on stderr."""
    table = Table(
        "embeddings",
        "rows asked an epoch",
        "epochs",
        "job, ms an epoch",
        "server, ms an epoch",
        "answer, ms p50",
        "p99",
    )
    for one in found:
        table.add_row(*map(str, one.values()))
    Console(stderr=True).print(table)


def main() -> int:
    """Measure both, compare their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench-asked", help="inputs and outputs")
    parser.add_argument("--events", type=int, default=400_000, help="length of the stream")
    parser.add_argument("--rate", type=int, default=1000, help="events a second")
    parser.add_argument("--epoch-ms", type=int, default=100, help="an epoch is cut so often")
    parser.add_argument("--rows", type=int, nargs="+", default=[0, 100, 1000], help="that are asked for, of each epoch")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each of these numbers")
    parser.add_argument("--compared", type=int, default=200_000, help="events of a file, after which rows are compared")
    options = parser.parse_args()
    folder = generate_once(options.folder, options.events)
    found: Figures = {"machine": machine(), "load": round(os.getloadavg()[0], 1)}
    found["measured"] = [one for mode in MODES for one in beside(folder, mode, options)]
    found |= at_full_speed(folder, options.compared)
    report(found["measured"])
    print(orjson.dumps(found).decode())
    return 0 if found["max_difference"] <= TOLERANCE else 1


if __name__ == "__main__":
    unwind_at_signals()
    sys.exit(main())
