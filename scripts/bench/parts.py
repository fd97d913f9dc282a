"""Costs and gains of parts and processes: a job on Flink for every mixture of parts, processes and epochs.

    .venv/bin/python scripts/bench/parts.py --shapes 1:1 2:1 1:2:2 2:2:2 2:2:1 --epochs 1000 adaptive --rounds 3

A shape is parts:processes:pipeline (`--parts`, `--parallelism`, `--pipeline`; with two numbers the pipeline is 1, so
that processes share only the parts). The stream is that of `make bench`, or a similar one on the edges of `--graph`;
with small epochs a run ends after `--epochs-max` of them. Epochs of a given size are cut by count alone (`--epoch-ms
0`). Runs alternate: a round runs every mixture once, and the figures are medians of the rounds. With `--results FILE`
they are kept, and existing ones are not repeated. CPU is that of all processes of the job while it streams, without its
start and its end. Bytes are those that operators send, within a process or beyond it.

If a pipeline was run with several numbers of processes, with as many parts as a layer then has subtasks (1:1 2:2 4:4,
or 1:2:2 2:4:2), a second table extrapolates to 8, 16 and 64 cores (`--cores`). It assumes that the processor time of an
event grows linearly with the processes, through the measured points (and never shrinks), that a process keeps as many
cores busy as with the fewest processes, and that parts are equal. The Partitioner stays one thread, so no job is faster
than that alone. The sharing of caches, memory and network is ignored.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import progress
from freshet.operators.dataflow import PARTITIONER
from scripts.bench.arxiv_stream import first_events, generate_once, graph_name
from scripts.bench.rounds import Figures, Measurement, MeasurementError, Results, medians, take_rounds
from scripts.bench.throughput import FRESHET, ROOT, inputs_in, machine
from scripts.plots.parts import plot
from scripts.plots.picture import picture

ADAPTIVE = "adaptive"
LATENCY_TARGET = "50ms"
LOOK_S = 0.5  # a look takes some 10 ms of the processor that the job could have
RUN_S_MAX = 900.0
STOPPED = 130, 143  # how freshet run ends after a signal


class Mixture(NamedTuple):
    """A run: a graph, its parts, processes, how many of them share the layers, events of an epoch and of all."""

    graph: str
    parts: int
    processes: int
    pipeline: int
    epoch: str
    events: int

    @property
    def options(self) -> list[str]:
        """The options of freshet run."""
        count_alone = ["--epoch-events", self.epoch, "--epoch-ms", "0"]
        epochs = ["--latency-target", LATENCY_TARGET] if self.epoch == ADAPTIVE else count_alone
        processes = ["--parallelism", str(self.processes), "--pipeline", str(self.pipeline)]
        return ["--parts", str(self.parts), *processes, *epochs]

    @property
    def shape(self) -> str:
        """Name of the shape, independent of the graph; for people."""
        parts, processes = f"{self.parts} part{'s' * (self.parts > 1)}", f"{self.processes} process"
        more = f"es, pipeline {self.pipeline}" if self.processes > 1 else ""
        return f"{parts}, {processes}{more}"

    def __str__(self) -> str:
        epochs = "adaptive epochs" if self.epoch == ADAPTIVE else f"epochs of {int(self.epoch):,}"
        return f"{self.graph}, {self.shape}, {epochs}, {self.events:,} events"


Found = dict[Mixture, Figures]


def mixtures_of(
    graph: str, shapes: Sequence[str], epochs: Sequence[str], events: int, epochs_max: int
) -> list[Mixture]:
    """Return every shape with every size of an epoch; the epochs of a given size are bounded."""
    made = []
    for epoch, shape in itertools.product(epochs, shapes):
        parts, processes, pipeline = (*map(int, shape.split(":")), 1)[:3]
        many = events if epoch == ADAPTIVE else min(events, int(epoch) * epochs_max)
        made.append(Mixture(graph, parts, processes, pipeline, epoch, many))
    return made


class Cpu:
    """The processor time of a process and all below it, from the first epochs to the last, and the events between."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self._process, self._out = process, out
        self._seconds: dict[tuple[int, float], float] = {}
        self._marks: list[tuple[float, int]] = []  # seconds and events, whenever there were more events
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def us_per_event(self) -> float:
        """Microseconds an event.

        Raises: MeasurementError when the process was through too soon.
        """
        self._thread.join()
        return us_between(self._marks)

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
        if events > (self._marks[-1][1] if self._marks else 0):
            self._marks.append((sum(self._seconds.values()), events))


def us_between(marks: Sequence[tuple[float, int]]) -> float:
    """Microseconds an event; marks are seconds of the processor and events so far.

    Not to the last mark: at both ends as many epochs shall be under way, which took time and do not count yet.

    Raises: MeasurementError when there are too few.
    """
    if len(marks) < 3:
        msg = "over before its processor time could be measured; give more --events (or --epochs-max)"
        raise MeasurementError(msg)
    (before, first), (after, last) = marks[0], marks[-2]
    return 1e6 * (after - before) / (last - first)


def run(place: Path, graph: Path | None, stream: int, mixture: Mixture, more: Mapping[str, str]) -> Figures:
    """Run one job on the first events of a stream and return its figures.

    Raises: MeasurementError when it fails, with the end of what it said.
    """
    folder = generate_once(place, stream, graph=graph)
    events = first_events(folder, mixture.events).name
    out = folder / "out-parts"
    shutil.rmtree(out, ignore_errors=True)
    options = [text for name, value in more.items() for text in (f"--{name}", value)]
    command = [FRESHET, "run", *inputs_in(folder, events), "--out", out, *mixture.options, *options]
    with (folder / "said.log").open("wb") as said:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=said)
        cpu = Cpu(process, out)
        try:
            stdout, _ = process.communicate(timeout=RUN_S_MAX)
        except subprocess.TimeoutExpired:
            process.terminate()  # a clean stop
            process.communicate()
            msg = f"not through after {RUN_S_MAX:.0f} s; give fewer --events (or --epochs-max)"
            raise MeasurementError(msg) from None
    if process.returncode in STOPPED:  # a signal that was meant for all of this
        raise KeyboardInterrupt
    if process.returncode:
        msg = f"{' '.join(map(str, command))}\nexit {process.returncode}\n{(folder / 'said.log').read_text()[-3000:]}"
        raise MeasurementError(msg)
    result: dict[str, Any] = orjson.loads(stdout.splitlines()[-1])
    written = read_run(out)
    shutil.rmtree(out)
    taken = result["events"]
    kept = {name: result[name] for name in ("events_per_s", "applied_ms_p50", "applied_ms_p99")}
    return kept | {
        "events_per_epoch": taken / result["epochs"],
        "cpu_us_per_event": cpu.us_per_event(),
        "partitioner_us_per_event": 1e6 * written["profile_seconds"][PARTITIONER] / taken,
        "bytes_per_event": sum(row.get("bytes_out", 0) for row in written.get("profile", {}).values()) / taken,
    }


def report(found: Found, rounds: int) -> None:
    """A table for each graph, for people (on stderr); a ratio is to the first shape with the same epochs."""
    for graph in dict.fromkeys(mixture.graph for mixture in found):
        some = {mixture: one for mixture, one in found.items() if mixture.graph == graph}
        Console(stderr=True, width=140).print(table_of(some, f"{graph}: parts and processes, medians of {rounds}"))


def table_of(found: Found, title: str) -> Table:
    """The table of one graph."""
    table = Table(title=f"{title} ({machine()})")
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
    return table


class Forecast(NamedTuple):
    """Forecast for a number of cores and a kind of epochs: the best number of processes, and its speed."""

    cores: int
    processes: int
    events_per_s: float


def forecast(measured: Mapping[int, Mapping[str, float]], cores: int) -> Forecast:
    """Extrapolate figures by number of processes (see the head of this file), of which there are at least two."""
    numbers = sorted(measured)
    step = numbers[0]  # a pipeline has no fewer
    slope, first = np.polyfit(numbers, [measured[number]["cpu_us_per_event"] for number in numbers], 1)
    alone = measured[step]
    if slope < 0 or first + slope * step <= 0:  # more processes do not take less
        slope, first = 0.0, alone["cpu_us_per_event"]
    busy = alone["cpu_us_per_event"] * alone["events_per_s"] / 1e6 / step
    partitioner = 1e6 / min(measured[number]["partitioner_us_per_event"] for number in numbers)  # least disturbed
    counts = range(step, max(step, cores) + 1, step)
    rates = {n: min(1e6 * min(cores, n * busy) / (first + slope * n), partitioner) for n in counts}
    best = next(n for n in counts if rates[n] > 0.99 * max(rates.values()))  # the fewest that are about as good
    return Forecast(cores, best, float(rates[best]))


def report_forecasts(found: Found, cores: Sequence[int]) -> None:
    """The second table, and a line of JSON for each of its rows."""
    table = Table(title="forecast: a part for each subtask of a layer, the best number of processes")
    for name in ("graph", "epoch", "pipeline", "cores", "processes", "events/s", "of the fewest measured"):
        table.add_column(name, justify="right")
    for graph, epoch, pipeline in dict.fromkeys((m.graph, m.epoch, m.pipeline) for m in found):
        alike = {m: one for m, one in found.items() if (m.graph, m.epoch, m.pipeline) == (graph, epoch, pipeline)}
        measured = {m.processes: one for m, one in alike.items() if m.parts * pipeline == m.processes}
        for number in cores if len(measured) > 1 else ():
            one = forecast(measured, number)
            ratio = one.events_per_s / measured[min(measured)]["events_per_s"]
            figures = f"{number}", f"{one.processes}", f"{one.events_per_s:,.0f}", f"{ratio:.2f}"
            table.add_row(graph, epoch, f"{pipeline}", *figures)
            fields = {
                "graph": graph,
                "epoch": epoch,
                "pipeline": pipeline,
                **one._asdict(),
                "events_per_s": round(one.events_per_s),
            }
            print(orjson.dumps(fields).decode())
    if table.row_count:
        Console(stderr=True, width=140).print(table)


def runs_of(mixtures: Sequence[Mixture], graph: Path | None, options: argparse.Namespace) -> list[Measurement]:
    """The runs of these mixtures, all of one graph."""
    names = "runtime", "partitioner", "snapshot_placement"
    more = {name.replace("_", "-"): getattr(options, name) for name in names}
    place = options.folder / graph_name(graph)
    return [
        Measurement(one._asdict() | more, str(one), partial(run, place, graph, options.events, one, more))
        for one in mixtures
    ]


def finish(
    mixtures: Sequence[Mixture], runs: Sequence[Measurement], results: Results, options: argparse.Namespace
) -> None:
    """Everything that the results say of these mixtures: JSON on stdout, tables on stderr, the picture."""
    rounds = {one: results.of(run.what) for one, run in zip(mixtures, runs, strict=True) if results.of(run.what)}
    found = {mixture: medians(figures) for mixture, figures in rounds.items()}
    for mixture, one in found.items():
        print(orjson.dumps(mixture._asdict() | {name: round(value, 2) for name, value in one.items()}).decode())
    report(found, max(map(len, rounds.values()), default=0))
    report_forecasts(found, options.cores)
    if options.plot and found:
        plot(found, options.plot)
        print(f"picture: {options.plot}", file=sys.stderr)


def size_of(epoch: str) -> str:
    """Return a value of --epochs, unchanged."""
    if epoch != ADAPTIVE and not (epoch.isdecimal() and int(epoch)):
        msg = f"{epoch!r}: expected a number of events, or {ADAPTIVE!r}"
        raise argparse.ArgumentTypeError(msg)
    return epoch


def options_for(parser: argparse.ArgumentParser) -> None:
    """The options of every benchmark of mixtures."""
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench_parts", help="of inputs and outputs")
    parser.add_argument("--events", type=int, default=400_000, help="length of the stream (default: %(default)s)")
    parser.add_argument(
        "--epochs-max", type=int, default=10_000, help="epochs that a run takes at most (default: %(default)s)"
    )
    parser.add_argument(
        "--epochs", nargs="+", type=size_of, default=["1000", ADAPTIVE], help=f"events of an epoch, or {ADAPTIVE!r}"
    )
    parser.add_argument("--rounds", type=int, default=3, help="0: tell of what --results has (default: %(default)s)")
    parser.add_argument("--runtime", choices=["flink", "local"], default="flink")
    parser.add_argument("--partitioner", default="hybrid")
    parser.add_argument("--snapshot-placement", default="whole")
    parser.add_argument("--cores", nargs="+", type=int, default=[8, 16, 64], help="of machines to extrapolate to")
    parser.add_argument("--results", type=Path, metavar="FILE", help="figures are kept here; what it has is not run")
    parser.add_argument(
        "--plot", type=picture, metavar="FILE", help="a picture: events/s and CPU by the size of an epoch"
    )


def main() -> int:
    """Generate, run in turn, report; JSON on stdout, a line for each mixture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options_for(parser)
    parser.add_argument(
        "--shapes", nargs="+", default=["1:1", "2:1", "1:2:2", "2:2:2", "2:2:1"], metavar="PARTS:PROCESSES[:PIPELINE]"
    )
    parser.add_argument("--graph", type=Path, help="Parquet file with the edges (src, dst) of another graph")
    options = parser.parse_args()
    name = graph_name(options.graph)
    mixtures = mixtures_of(name, options.shapes, options.epochs, options.events, options.epochs_max)
    runs, results = runs_of(mixtures, options.graph, options), Results(options.results)
    failed = take_rounds(runs, options.rounds, results)
    finish(mixtures, runs, results, options)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
