"""`make bench`: throughput and latency of both runtimes on an arxiv-shaped stream, with the answer checked at the end.

GraphConv-sum 128-128-40 on 169,343 vertices and 1.17 M edges, 80% as the snapshot; 60/20/20 edge additions, deletions
and feature changes from Parquet (when nearly all edges are there, additions and deletions by turns), with the full
change log written. Each line is one `freshet run` with its defaults save for the epoch size. The profile says where the
time of an epoch goes, by operator.

More: `make bench-matrix` has every number of parts and processes with every size of an epoch, on two graphs, and the
engine alone beside other systems; scripts/bench/parts.py other mixtures of these, scripts/bench/layers.py other layers,
scripts/bench/from_kafka.py the same from Kafka, scripts/bench/latency.py latencies at an offered rate.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.state.memory.machine_memory import total_memory
from scripts.bench.arxiv_stream import generate_once

ROOT = Path(__file__).resolve().parents[2]
FRESHET = Path(sys.executable).with_name("freshet")


def machine() -> str:
    """The machine in a line."""
    memory_gib = total_memory() / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {memory_gib:.0f} GiB, {platform.machine()}, Python {platform.python_version()}"


def inputs_in(folder: Path, events: str = "events.parquet") -> list[str | Path]:
    """The options of a run, or of its check, that name what it reads."""
    return ["--model", folder / "model", "--snapshot", folder / "snapshot", "--events", folder / events]


def named(epoch_events: int) -> str:
    """Name of the way in which epochs are cut, for people."""
    return f"epochs of {epoch_events:,}" if epoch_events else "adaptive epochs"


def run(folder: Path, runtime: str, epoch_events: int, options: list[str]) -> dict[str, Any]:
    """One run; its summary, profile and start-up times. `epoch_events` 0: without an option, so that epochs adapt."""
    out = folder / f"out-{runtime}-{epoch_events}"
    shutil.rmtree(out, ignore_errors=True)
    command = [
        FRESHET,
        "run",
        *inputs_in(folder),
        "--out",
        out,
        "--runtime",
        runtime,
        *(["--epoch-events", epoch_events] if epoch_events else []),
        *options,
    ]
    began = time.perf_counter()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexit {done.returncode}\n{done.stderr[-3000:]}")
    result: dict[str, Any] = orjson.loads(done.stdout.splitlines()[-1])
    written = orjson.loads((out / "run.json").read_bytes())
    result |= {"runtime": runtime, "epoch_events": epoch_events, "wall_seconds": round(time.perf_counter() - began, 1)}
    result["profile_ms_per_epoch"] = {
        name: round(1e3 * seconds / result["epochs"], 2) for name, seconds in written.get("profile_seconds", {}).items()
    }
    result["startup_seconds"] = written.get("startup_seconds", {})
    return result


def check(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of `freshet check` of a run."""
    out = folder / f"out-{result['runtime']}-{result['epoch_events']}"
    command = [FRESHET, "check", "--oracle", "own", *inputs_in(folder), "--out", out]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        sys.exit(f"freshet check: exit {done.returncode}\n{done.stderr[-3000:]}")
    found: dict[str, Any] = orjson.loads(done.stdout.splitlines()[-1])
    return {"check": found, "correct": done.returncode == 0}


def report(results: list[dict[str, Any]]) -> None:
    """The table and the profiles, for people (on stderr)."""
    console = Console(stderr=True, width=140)
    table = Table(title=f"arxiv-shaped stream, GraphConv-sum 128-128-40 ({machine()})")
    latency = ("applied p50, p99 ms", "readable p50, p99 ms")
    for name in ("runtime", "epochs", "events", "events/s", *latency, "rows", "max rel error", "correct"):
        table.add_column(name, justify="right")
    for one in results:
        latencies = [f"{one[f'{name}_ms_p50']:,.0f}, {one[f'{name}_ms_p99']:,.0f}" for name in ("applied", "latency")]
        error = f"{one['check']['max_rel_error']:.1e}"
        rate = f"{one['events_per_s']:,.0f}"
        cells = [one["runtime"], named(one["epoch_events"]), f"{one['events']:,}", rate, *latencies]
        table.add_row(*cells, f"{one['rows']:,}", error, "yes" if one["correct"] else "NO")
    console.print(table)
    for one in results:
        console.print(f"{one['runtime']}, {named(one['epoch_events'])}: ms per epoch and operator (threads overlap)")
        console.print("   ", "  ".join(f"{name} {ms}" for name, ms in one["profile_ms_per_epoch"].items()))
        console.print("    start-up:", "  ".join(f"{name} {s} s" for name, s in one["startup_seconds"].items()))


def main() -> int:
    """Generate, run, check, report; JSON lines on stdout, one per run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench", help="where inputs and outputs go")
    parser.add_argument("--events", type=int, default=1_000_000, help="length of the stream")
    what = "events an epoch, one run each; 0: without an option (adaptive)"
    parser.add_argument("--epoch-events", type=int, nargs="+", default=[0, 1000, 100, 10_000], help=what)
    parser.add_argument("--runtimes", nargs="+", default=["local", "flink"], choices=["local", "flink"])
    parser.add_argument("--keep", action="store_true", help="keep the outputs")
    parser.add_argument("options", nargs="*", help="further options of freshet run, after --")
    options = parser.parse_args()
    folder = generate_once(options.folder, options.events)
    results = []
    for runtime in options.runtimes:
        for epoch_events in options.epoch_events:
            print(f"{runtime}, {named(epoch_events)} ...", file=sys.stderr)
            result = run(folder, runtime, epoch_events, options.options)
            result |= check(folder, result)
            print(orjson.dumps(result).decode(), flush=True)
            results.append(result)
            if not options.keep:
                shutil.rmtree(folder / f"out-{runtime}-{epoch_events}")
    report(results)
    return 0 if all(result["correct"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
