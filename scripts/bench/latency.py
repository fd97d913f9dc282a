"""Gains of adaptive epochs (the default) on Flink: latency at an offered rate, and throughput under backlog.

The stream of `make bench`, once from a Kafka broker on the same machine at a steady rate (in twenty bursts a second, as
`freshet produce --rate` sends), once from a file as fast as it goes; each with epochs that adapt, and with epochs of
1,000 events or 20 ms. Latencies are from the arrival of an epoch's first event at the Parser to its rows being in the
Sink, without those of the first seconds. `cpu_us_per_event` is the processor time of the whole job's Java process.
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
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.dev.broker import start_broker
from freshet.job.dev.script import unwind_at_signals
from freshet.job.folder.run_file import read_run
from freshet.operators.telemetry.status_file import BUCKETS, percentile_ms, read_statuses
from scripts.bench.arxiv_stream import generate_once
from scripts.bench.from_kafka import write_jsonl
from scripts.bench.throughput import FRESHET, ROOT, check, machine, run

WARM_UP_S = 8.0
DEADLINE_S = 180.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
FIXED = ["--epoch-events", "1000", "--epoch-ms", "20"]


class Figures:
    """Figures that a job has reported at one moment."""

    def __init__(self, out: Path) -> None:
        statuses = read_statuses(out, needs={"applied_counts": list, "epoch": int, "events": int})
        self.counts = np.zeros(BUCKETS, np.int64)
        for one in statuses:
            buckets, numbers = np.array(one["applied_counts"], np.int64).reshape(2, -1)
            self.counts[buckets] += numbers
        self.epochs = max((one["epoch"] for one in statuses), default=0)
        self.events = max((one["events"] for one in statuses), default=0)
        java = read_run(out).get("pids", {}).get("java")
        fields = Path(f"/proc/{java}/stat").read_text().rpartition(")")[2].split() if java else []
        self.cpu_s = (int(fields[11]) + int(fields[12])) / TICKS_PER_S if fields else 0.0

    def since(self, before: Figures) -> dict[str, Any]:
        """The figures of the time between."""
        counts, events = self.counts - before.counts, self.events - before.events
        return {
            "events": events,
            "epochs": self.epochs - before.epochs,
            "applied_ms_p50": percentile_ms(counts, 50),
            "applied_ms_p99": percentile_ms(counts, 99),
            "cpu_us_per_event": round(1e6 * (self.cpu_s - before.cpu_s) / max(1, events)),
        }


def await_epochs(out: Path, job: subprocess.Popen[bytes], epochs: int) -> None:
    """Wait until the job has passed this many epochs."""
    deadline = time.monotonic() + DEADLINE_S
    while Figures(out).epochs < epochs:
        if job.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"no {epochs} epochs in {out}; exit {job.poll()}")
        time.sleep(0.2)


def produce(events: Path, topic: str, *options: object) -> subprocess.Popen[bytes]:
    """Begin to write events to a topic."""
    command = [FRESHET, "produce", "--events", events, "--to", topic, "--partitions", 1, *options]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def cut_input(folder: Path, count: int) -> tuple[Path, Path]:
    """The first event of the stream, with which the topic begins, and the next ones."""
    first, others = folder / "first.jsonl", folder / "others.jsonl"
    with (folder / "events.jsonl").open("rb") as source, others.open("wb") as target:
        first.write_bytes(source.readline())
        target.writelines(islice(source, count))
    return first, others


def offered(folder: Path, address: str, name: str, rate: int, seconds: float, options: list[str]) -> dict[str, Any]:
    """Run a job that reads a topic, to which events are written at this rate."""
    out, topic = folder / "out-latency", f"kafka://{address}/{name}"
    shutil.rmtree(out, ignore_errors=True)
    first, others = cut_input(folder, int(rate * (seconds + WARM_UP_S)))
    produce(first, topic).wait()
    inputs = ["--model", folder / "model", "--snapshot", folder / "snapshot", "--events", topic, "--out", out]
    with (folder / "latency.log").open("wb") as log:
        command = list(map(str, [FRESHET, "run", *inputs, *options]))
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        try:
            await_epochs(out, job, 1)
            producer = produce(others, topic, "--rate", rate)
            time.sleep(WARM_UP_S)
            before = Figures(out)
            producer.wait()
            time.sleep(1.0)  # a status is written twice a second
            found = Figures(out).since(before)
        finally:
            job.send_signal(signal.SIGTERM)
            job.wait(DEADLINE_S)
    return {"offered_per_s": rate, "options": options, **found}


def backlog(folder: Path, options: list[str]) -> dict[str, Any]:
    """A job that reads a file as fast as it goes, checked at the end."""
    result = run(folder, "flink", 0, options)
    result |= check(folder, result)
    shutil.rmtree(folder / "out-flink-0")
    names = ("epochs", "events_per_s", "applied_ms_p50", "applied_ms_p99", "correct")
    return {"options": options, **{name: result[name] for name in names}}


def main() -> int:
    """Generate, run, check; a line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench-latency", help="inputs and outputs")
    parser.add_argument("--events", type=int, default=400_000, help="length of the stream")
    parser.add_argument("--rates", type=int, nargs="*", default=[1000, 5000], help="events a second that are offered")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each rate is measured")
    parser.add_argument("--no-backlog", action="store_true", help="latencies alone")
    parser.add_argument("options", nargs="*", help="further options of freshet run, after --")
    options = parser.parse_args()
    folder = generate_once(options.folder, options.events, write_jsonl)
    found: dict[str, list[dict[str, Any]]] = {"offered": [], "backlog": []}
    kinds = {"fixed": [*FIXED, *options.options], "adaptive": options.options}
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as data, start_broker(Path(data) / "broker") as broker:
        for rate in options.rates:
            for name, given in kinds.items():
                topic = f"bench-{name}-{rate}"
                found["offered"].append(offered(folder, broker.address, topic, rate, options.seconds, given))
                print(found["offered"][-1], file=sys.stderr, flush=True)
    for given in () if options.no_backlog else kinds.values():
        found["backlog"].append(backlog(folder, given))
        print(found["backlog"][-1], file=sys.stderr, flush=True)
    print(orjson.dumps({"machine": machine(), **found}).decode())
    return 0 if all(one["correct"] for one in found["backlog"]) else 1


if __name__ == "__main__":
    unwind_at_signals()
    sys.exit(main())
