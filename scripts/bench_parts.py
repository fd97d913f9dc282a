"""What parts and processes cost, and what they bring: a job on Flink for every mixture of parts, processes and epochs.

    .venv/bin/python scripts/bench_parts.py --shapes 1:1 2:1 1:2:2 2:2:2 2:2:1 --epochs 1000 adaptive --rounds 3

A shape is parts:processes:pipeline (`--parts`, `--parallelism`, `--pipeline`; of two numbers, processes share the parts
alone: a pipeline of 1). The stream is that of `make bench`, or one like it on the
edges of `--graph`. Runs alternate: a round takes every mixture once, and the figures are medians of the rounds. CPU is
that of all processes of the job while it streams, without its start. Bytes are those that operators hand on, within a
process or beyond it.

Where a pipeline was run with several numbers of processes, and with as many parts as a layer then has subtasks (1:1 2:2
4:4, or 1:2:2 2:4:2), a second table says what 8, 16 and 64 cores (`--cores`) would reach. It takes the processor time
of an event to grow with the processes in a straight line through what was measured, a process to keep as many cores
busy as one of the fewest did, and parts to be equal; that caches, memory and network have to be shared is left out.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import psutil
from arxiv_stream import generate_once
from bench import FRESHET, ROOT, inputs_in, machine
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(ROOT))

from job.folder.run_file import read_run
from job.run.summary import progress

ADAPTIVE = "adaptive"
LATENCY_TARGET = "50ms"
LOOK_S = 0.2


class Mixture(NamedTuple):
    """What is run: parts of the graph, processes, how many of them share the layers, and events of an epoch."""

    parts: int
    processes: int
    pipeline: int
    epoch: str

    @property
    def options(self) -> list[str]:
        """The options of freshet run."""
        epochs = ["--latency-target", LATENCY_TARGET] if self.epoch == ADAPTIVE else ["--epoch-events", self.epoch]
        processes = ["--parallelism", str(self.processes), "--pipeline", str(self.pipeline)]
        return ["--parts", str(self.parts), *processes, *epochs]


class Cpu:
    """The processor time of a process and all below it, from the first epochs on to its end, and the events between."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self._process, self._out = process, out
        self._seconds: dict[tuple[int, float], float] = {}
        self._first: tuple[float, int] | None = None
        self._events = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def us_per_event(self) -> float:
        """Microseconds an event."""
        self._thread.join()
        seconds, events = self._first or (0.0, 0)
        return 1e6 * (sum(self._seconds.values()) - seconds) / max(1, self._events - events)

    def _watch(self) -> None:
        while self._process.poll() is None:
            self._look()
            time.sleep(LOOK_S)

    def _look(self) -> None:
        try:
            root = psutil.Process(self._process.pid)
            family = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for one in family:
            try:
                times = one.cpu_times()
                self._seconds[one.pid, one.create_time()] = times.user + times.system
            except psutil.NoSuchProcess:  # what it took so far stays
                continue
        events = int(progress(self._out)["events"])
        if events and self._first is None:
            self._first = sum(self._seconds.values()), events
        self._events = max(self._events, events)


def run(folder: Path, mixture: Mixture, more: list[str]) -> dict[str, Any]:
    """One run; its figures."""
    out = folder / "out-parts"
    shutil.rmtree(out, ignore_errors=True)
    command = [FRESHET, "run", *inputs_in(folder), "--out", out, *mixture.options, *more]
    with (folder / "said.log").open("wb") as said:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=said)
        cpu = Cpu(process, out)
        stdout, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{mixture}: exit {process.returncode}\n{(folder / 'said.log').read_text()[-3000:]}")
    result: dict[str, Any] = orjson.loads(stdout.splitlines()[-1])
    sent = sum(row["bytes_out"] for row in read_run(out).get("profile", {}).values())  # on Flink alone
    shutil.rmtree(out)
    kept = {name: result[name] for name in ("events_per_s", "applied_ms_p50", "applied_ms_p99")}
    events = result["events"]
    return kept | {
        "events_per_epoch": events / result["epochs"],
        "cpu_us_per_event": cpu.us_per_event(),
        "bytes_per_event": sent / events,
    }


def medians(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Each figure's median."""
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def report(found: dict[Mixture, dict[str, float]], rounds: int) -> None:
    """The table, for people (on stderr); a ratio is to the first shape with the same epochs."""
    table = Table(title=f"parts and processes, medians of {rounds} ({machine()})")
    names = ("parts", "processes", "pipeline", "epoch", "events/s", "ratio", "CPU us/event", "ratio", "bytes/event")
    for name in (*names, "applied p50, p99 ms", "events an epoch"):
        table.add_column(name, justify="right")
    for mixture, one in found.items():
        first = next(other for other in found if other.epoch == mixture.epoch)
        rates = [f"{one[name]:,.{digits}f}" for name, digits in (("events_per_s", 0), ("cpu_us_per_event", 1))]
        ratios = [f"{one[name] / found[first][name]:.2f}" for name in ("events_per_s", "cpu_us_per_event")]
        table.add_row(
            str(mixture.parts),
            str(mixture.processes),
            str(mixture.pipeline),
            mixture.epoch,
            *(cell for pair in zip(rates, ratios, strict=True) for cell in pair),
            f"{one['bytes_per_event']:,.0f}",
            f"{one['applied_ms_p50']:,.0f}, {one['applied_ms_p99']:,.0f}",
            f"{one['events_per_epoch']:,.0f}",
        )
    Console(stderr=True, width=140).print(table)


class Forecast(NamedTuple):
    """What so many cores would reach with epochs of a kind: with the best number of processes, and what that is."""

    cores: int
    processes: int
    events_per_s: float


def forecast(measured: Mapping[int, Mapping[str, float]], cores: int) -> Forecast:
    """Extrapolate figures by number of processes (see the head of this file), of which there are at least two."""
    numbers = sorted(measured)
    step = numbers[0]  # a pipeline has no fewer
    slope, first = np.polyfit(numbers, [measured[number]["cpu_us_per_event"] for number in numbers], 1)
    alone = measured[numbers[0]]
    busy = alone["cpu_us_per_event"] * alone["events_per_s"] / 1e6 / numbers[0]
    counts = [n for n in range(step, cores + 1, step) if first + slope * n > 0]
    rates = {n: 1e6 * min(cores, n * busy) / (first + slope * n) for n in counts}
    best = max(rates, key=lambda n: rates[n])
    return Forecast(cores, best, float(rates[best]))


def report_forecasts(found: dict[Mixture, dict[str, float]], cores: list[int]) -> None:
    """The second table, and a line of JSON for each of its rows."""
    table = Table(title="from these figures: one part for each subtask of a layer, as many processes as are best")
    for name in ("epoch", "pipeline", "cores", "processes", "events/s", "of the fewest measured"):
        table.add_column(name, justify="right")
    for epoch, pipeline in dict.fromkeys((mixture.epoch, mixture.pipeline) for mixture in found):
        alike = {m: one for m, one in found.items() if (m.epoch, m.pipeline) == (epoch, pipeline)}
        measured = {m.processes: one for m, one in alike.items() if m.parts * pipeline == m.processes}
        for number in cores if len(measured) > 1 else ():
            one = forecast(measured, number)
            ratio = one.events_per_s / measured[min(measured)]["events_per_s"]
            figures = f"{number}", f"{one.processes}", f"{one.events_per_s:,.0f}", f"{ratio:.2f}"
            table.add_row(epoch, f"{pipeline}", *figures)
            print(orjson.dumps({"epoch": epoch, "pipeline": pipeline, **one._asdict()}).decode())
    if table.row_count:
        Console(stderr=True, width=140).print(table)


def main() -> int:
    """Generate, run in turn, report; JSON on stdout, a line for each mixture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench_parts", help="of inputs and outputs")
    parser.add_argument("--events", type=int, default=400_000, help="length of the stream")
    parser.add_argument(
        "--shapes", nargs="+", default=["1:1", "2:1", "1:2:2", "2:2:2", "2:2:1"], metavar="PARTS:PROCESSES[:PIPELINE]"
    )
    parser.add_argument("--epochs", nargs="+", default=["1000", ADAPTIVE], help=f"events of an epoch, or {ADAPTIVE!r}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--graph", type=Path, help="Parquet file with the edges (src, dst) of another graph")
    parser.add_argument("--runtime", choices=["flink", "local"], default="flink")
    parser.add_argument("--partitioner", default="hybrid")
    parser.add_argument("--cores", nargs="+", type=int, default=[8, 16, 64], help="of machines to extrapolate to")
    options = parser.parse_args()
    folder = generate_once(options.folder, options.events, graph=options.graph)
    more = ["--runtime", options.runtime, "--partitioner", options.partitioner]
    shapes = [(*map(int, shape.split(":")), 1)[:3] for shape in options.shapes]
    mixtures = [Mixture(*shape, epoch) for epoch, shape in itertools.product(options.epochs, shapes)]
    found: dict[Mixture, list[dict[str, Any]]] = {mixture: [] for mixture in mixtures}
    for number, mixture in itertools.product(range(options.rounds), mixtures):
        print(f"round {number + 1} of {options.rounds}: {mixture}", file=sys.stderr)
        found[mixture].append(run(folder, mixture, more))
    results = {mixture: medians(rounds) for mixture, rounds in found.items()}
    for mixture, one in results.items():
        print(orjson.dumps(mixture._asdict() | {name: round(value, 1) for name, value in one.items()}).decode())
    report(results, options.rounds)
    report_forecasts(results, options.cores)
    return 0


if __name__ == "__main__":
    sys.exit(main())
