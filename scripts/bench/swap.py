"""Seconds of a swap by step, and the latency of the job that serves before it, in each step and after it.

A job on Flink reads the stream of `make bench` (169,343 vertices) from a broker on the same machine, at a steady rate.
`freshet swap` exchanges its model; with --nice the command, and so the new job, have a lower priority. Latencies are
from the arrival of an epoch's last event to its rows being readable. A line of JSON at the end.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.dev.broker import start_broker
from freshet.job.dev.script import unwind_at_signals
from freshet.job.service.generations import Service
from freshet.job.swap.record import STEPS, Swap
from scripts.bench.arxiv_stream import generate_once, write_model
from scripts.bench.from_kafka import freshet, write_jsonl
from scripts.bench.latency import await_epochs, produce
from scripts.bench.throughput import FRESHET, ROOT, machine

MIB = 1 << 20


def latencies(out: Path, from_ms: float, to_ms: float) -> dict[str, Any]:
    """Return p50 and p99 in milliseconds of the epochs that arrived between two moments."""
    table = pa.concat_tables([pq.read_table(one) for one in sorted((out / "epochs").glob("[!._]*.parquet"))])
    table = table.filter(table["published_ms"].is_valid()).group_by("epoch").aggregate(
        [("arrived_ms", "max"), ("published_ms", "max")]
    )  # fmt: skip
    arrived, published = table["arrived_ms_max"].to_numpy(), table["published_ms_max"].to_numpy()
    found = (published - arrived)[(arrived >= from_ms) & (arrived < to_ms)]
    if not len(found):
        return {"epochs": 0}
    return {"epochs": len(found), **{f"p{q}": round(float(np.percentile(found, q)), 1) for q in (50, 99)}}


def used_mib(folder: Path) -> int:
    """Return the memory of all processes whose command line names this folder, in MiB."""
    sizes = [
        one.info["memory_info"].rss for one in psutil.process_iter(["cmdline", "memory_info"])
        if any(str(folder) in word for word in one.info["cmdline"] or ())
    ]  # fmt: skip
    return int(sum(sizes)) // MIB


def swapped(service: Service, model: Path, keep: str, nice: int) -> tuple[float, dict[str, Any]]:
    """Swap the model; returns when that began, in ms, and what the command says."""
    line = ["swap", service.folder, "--model", model, "--keep", keep]
    command = [*(["nice", "-n", nice] if nice else []), FRESHET, *line]
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE)
    while (record := Swap(service).record()) is None and process.poll() is None:
        time.sleep(0.05)
    said, _ = process.communicate()
    if process.returncode or record is None:
        sys.exit(f"freshet swap: exit {process.returncode}")
    return record.began_ms, orjson.loads(said.splitlines()[-1])


def measure(folder: Path, address: str, options: argparse.Namespace, number: int) -> dict[str, Any]:
    """Swap once, while events come."""
    work = folder / f"swap-{number}"
    out, service, topic = work / "O", Service(work / "V"), f"kafka://{address}/swap-{number}"
    work.mkdir()
    freshet("produce", "--events", folder / "first.jsonl", "--to", topic, "--partitions", 1)
    inputs = ["--model", folder / "model", "--snapshot", folder / "snapshot", "--events", topic, "--out", out]
    with (work / "run.log").open("wb") as log:
        job = subprocess.Popen([*map(str, [FRESHET, "run", *inputs])], stdout=subprocess.DEVNULL, stderr=log)
    producer = None
    try:
        await_epochs(out, job, 1)
        freshet("promote", service.folder, out, "--wait", "300s")
        producer = produce(folder / "events.jsonl", topic, "--rate", options.rate)
        time.sleep(options.seconds)
        before, memory = time.time() * 1e3, used_mib(work)
        began_ms, result = swapped(service, folder / "model-2", f"{options.seconds:g}s", options.nice if number else 0)
        ended = time.time() * 1e3
        peak = used_mib(work)
        time.sleep(options.seconds)
        found: dict[str, Any] = {"nice": options.nice if number else 0, "seconds": result["seconds"]}
        found["before"] = latencies(out, before - 500 * options.seconds, before)
        for name in STEPS[:-1]:
            found[name] = latencies(out, began_ms, began_ms := began_ms + 1e3 * result["seconds"][name])
        new = Path(result["out"])
        found["new job, after"] = latencies(new, ended + 2e3, time.time() * 1e3 - 2e3)
        return found | {"mib": {"before": memory, "at the end": peak, "after": used_mib(work)}}
    finally:
        for out_ in (out, service.folder / "jobs" / "g1"):
            subprocess.run([str(FRESHET), "stop", str(out_)], capture_output=True, check=False)
        for one in (producer, job):
            if one is not None:
                one.send_signal(signal.SIGTERM)
                one.wait()


def main() -> int:
    """Generate, swap twice, the second time with a lower priority."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench-swap", help="inputs and outputs")
    parser.add_argument("--events", type=int, default=400_000, help="length of the stream")
    parser.add_argument("--rate", type=int, default=500, help="events a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="before the swap, of --keep, and after it")
    parser.add_argument("--nice", type=int, default=10, help="priority of the second swap")
    options = parser.parse_args()
    folder = generate_once(options.folder, options.events, write_jsonl)
    write_model(folder / "model-2", 7)
    lines = (folder / "events.jsonl").open("rb")
    (folder / "first.jsonl").write_bytes(lines.readline())
    print(machine(), file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as data, start_broker(Path(data) / "broker") as broker:
        for number in range(2):
            found = measure(folder, broker.address, options, number)
            print(orjson.dumps(found).decode(), flush=True)
    return 0


if __name__ == "__main__":
    unwind_at_signals()
    sys.exit(main())
