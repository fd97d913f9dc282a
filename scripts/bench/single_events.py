"""Processor time of an event in small epochs: the local runtime with all its stages in one thread, nothing left out.

    .venv/bin/python scripts/bench/single_events.py --before CHECKOUT [--epochs 1 10 100 1000] [--rounds 3]
    .venv/bin/python scripts/bench/single_events.py --runtime flink --epochs 1 10
    .venv/bin/python scripts/bench/single_events.py --profile 1

GraphSAGE with sums, 128-128-64, on 20,000 vertices and 110,000 edges, one part; the stream is 60% new edges, 20%
deleted ones and 20% new features, from Parquet, with the change log, journal, cut log and commits of a real run. With
--before the version of another checkout, with that one's .venv, takes turns with this one. Figures are microseconds of
processor time (user and system, of all threads) an event: the median of the rounds. --profile prints what Python calls
in epochs of that size, and how often an event. With --runtime flink they are those of the Java process, in which all
operators run, between two reports of a `freshet run`: of the first WARM_FLINK events, and the last one that is seen.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

VERTICES, EDGES, WIDTHS = 20_000, 138_000, (128, 128, 64)
EVENTS = {1: 4_000, 10: 12_000, 100: 30_000, 1000: 60_000}
WARM = 1_000  # events before the first that is timed
WARM_FLINK = {1: 3_000, 10: 10_000, 100: 20_000, 1000: 20_000}  # Java compiles what it runs often
EVENTS_FLINK = {1: 12_000, 10: 60_000, 100: 60_000, 1000: 60_000}
# `freshet` is that of the environment, and what measures it that of this checkout.
_START = (
    "import sys, freshet; sys.path.insert(0, sys.argv[1]); "
    "from scripts.bench.single_events import work; work(*sys.argv[2:])"
)


def generate(folder: Path) -> None:
    """Write model, snapshot and the longest stream."""
    from freshet.gnn.declarations import Relu, SAGEConv
    from freshet.gnn.model import build_model, save_model
    from freshet.gnn.rows.chains import chain_tensors
    from freshet.operators.snapshot.writer import write_snapshot
    from scripts.bench.arxiv_stream import make_edges, make_stream, write_events

    rng = np.random.default_rng(7)
    src, dst = make_edges(VERTICES, EDGES, rng)
    present, events = int(src.size * 0.8), max(EVENTS.values()) + WARM
    x = rng.standard_normal((VERTICES, WIDTHS[0]), dtype=np.float32) * np.float32(0.5)
    op, arg = make_stream(src.size, present, events, rng)
    write_snapshot(folder / "snapshot", np.arange(VERTICES), x, src[:present], dst[:present])
    write_events(folder / "events.parquet", op, src[arg], dst[arg], rng.integers(0, VERTICES, events), 8)
    first, second = (SAGEConv(in_channels=a, out_channels=b, aggr="sum") for a, b in pairwise(WIDTHS))
    layers: list[Any] = [first, Relu(), second]
    shapes = chain_tensors(layers, "layers")
    weights = {name: rng.standard_normal(shape) * (2.0 / sum(shape)) ** 0.5 * 0.5 for name, shape in shapes.items()}
    save_model(build_model(layers=layers, weights=weights), folder / "model")


class InLine:
    """The steps of a pipeline one after the other in the thread that puts work, timed behind the first events."""

    profile: cProfile.Profile | None = None
    seconds, epochs = 0.0, 0  # that were timed

    def __init__(self, steps: list[Callable[[Any], None]]) -> None:
        self.failure: BaseException | None = None
        self._steps = steps
        self._since: float | None = None

    def put(self, one: Any) -> None:
        """Take an outcome of the Partitioner through all steps."""
        InLine.epochs += len(one.messages) if self._since is not None else 0  # one part: a message an epoch
        for step in self._steps:
            step(one)
        if self._since is None and not one.replay:
            self._since = time.process_time()
            if self.profile is not None:
                self.profile.enable()

    def finish(self, on_progress: Callable[[], None]) -> None:
        """Stop the time."""
        InLine.seconds = time.process_time() - (self._since or 0.0)
        if self.profile is not None:
            self.profile.disable()
        on_progress()


def work(folder: str, size: str, profile: str = "") -> None:
    """Run a job with epochs of this size, and print the microseconds of an event."""
    from freshet.job.local import runtime
    from freshet.job.options.config_file import load_run_config
    from freshet.job.run.new_job import prepare
    from freshet.kernels.blas import use_one_thread
    from scripts.bench.arxiv_stream import first_events

    use_one_thread()
    runtime.Pipeline = InLine  # type: ignore[assignment, misc]
    events = EVENTS[int(size)]
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as name:
        out, given = Path(name) / "out", Path(folder)
        options: dict[str, Any] = {"model": given / "model", "snapshot": given / "snapshot", "out": out}
        options |= {"events": [str(first_events(given, events + WARM))], "runtime": "local", "epoch_ms": 0}
        job = prepare(load_run_config(options | {"epoch_events": int(size)}), out)
        if profile:
            InLine.profile = cProfile.Profile()
        began = runtime.LocalRuntime(job.settings, len(job.sources.chunks), out / "state")
        assert began.run()
    events = InLine.epochs * int(size)
    by_operator = {name: round(1e6 * seconds / (events + WARM)) for name, seconds in began.times.seconds.items()}
    print(f"us of wall time an event, by operator: {by_operator}", file=sys.stderr)
    if InLine.profile is not None:
        stats = pstats.Stats(InLine.profile, stream=sys.stderr)
        stats.sort_stats("ncalls").print_stats(60)
        stats.sort_stats("tottime").print_stats(45)
        stats.sort_stats("cumulative").print_stats(70)
        calls: int = stats.total_calls  # type: ignore[attr-defined]
        print(f"{calls / events:.1f} calls an event", file=sys.stderr)
    print(1e6 * InLine.seconds / events, flush=True)


def on_flink(checkout: Path, folder: Path, size: int) -> float:
    """Return the microseconds of an event on Flink in the version of a checkout."""
    from scripts.bench.arxiv_stream import first_events
    from scripts.bench.latency import Figures

    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as name:
        out, events = Path(name) / "out", first_events(folder, EVENTS_FLINK[size])
        command = [checkout / ".venv" / "bin" / "freshet", "run", "--model", folder / "model"]
        command += ["--snapshot", folder / "snapshot", "--events", events, "--out", out, "--runtime", "flink"]
        command += ["--epoch-events", size, "--epoch-ms", 0]
        with (Path(name) / "log").open("w+") as log:
            job = subprocess.Popen(list(map(str, command)), cwd=checkout.parent, stdout=log, stderr=log)
            first = last = None
            while job.poll() is None:
                time.sleep(0.2)
                with suppress(OSError):  # the Java process is gone
                    found = Figures(out)
                    if found.cpu_s and found.epochs * size >= WARM_FLINK[size]:
                        first, last = first or found, found
            if job.returncode or first is None or last is None or last.epochs == first.epochs:
                log.seek(0)
                sys.exit(f"{checkout}, epochs of {size}: exit {job.returncode}\n{log.read()[-2000:]}")
    return 1e6 * (last.cpu_s - first.cpu_s) / (size * (last.epochs - first.epochs))


def measured(checkout: Path, folder: Path, size: int, profile: bool) -> float:
    """Return the microseconds of an event in the version of a checkout."""
    command = [str(checkout / ".venv" / "bin" / "python"), "-c", _START, str(ROOT), str(folder), str(size)]
    done = subprocess.run(
        command + ["profile"] * profile, cwd=checkout.parent, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{checkout}, epochs of {size}: exit {done.returncode}")
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure, print a table, and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="checkout, with .venv, of another version")
    parser.add_argument("--epochs", nargs="+", type=int, default=list(EVENTS), choices=list(EVENTS), metavar="EVENTS")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runtime", choices=["local", "flink"], default="local")
    parser.add_argument("--profile", type=int, choices=list(EVENTS), metavar="EVENTS", help="size of epochs")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "single", help="where inputs go")
    options = parser.parse_args()
    folder = options.folder.absolute()
    if not (folder / "model").exists():
        folder.mkdir(parents=True, exist_ok=True)
        generate(folder)
    if options.profile:
        measured(ROOT, folder, options.profile, profile=True)
        return
    checkouts = {"now": ROOT} | ({"before": options.before.absolute()} if options.before else {})
    found: dict[tuple[str, int], list[float]] = {(name, size): [] for name in checkouts for size in options.epochs}
    for number in range(options.rounds):
        for size in options.epochs:
            for name in list(checkouts)[:: -1 if number % 2 else 1]:
                one = checkouts[name], folder, size
                found[name, size].append(
                    on_flink(*one) if options.runtime == "flink" else measured(*one, profile=False)
                )
    us = {name: {size: round(statistics.median(found[name, size]), 1) for size in options.epochs} for name in checkouts}
    print(
        "| events an epoch |"
        + "|".join(f" {name} " for name in checkouts)
        + "|\n|--:" * 1
        + "|--:" * len(checkouts)
        + "|"
    )
    for size in options.epochs:
        print(f"| {size:,} |" + "|".join(f" {us[name][size]:,} " for name in checkouts) + "|")
    print(
        orjson.dumps({name: {str(size): one for size, one in figures.items()} for name, figures in us.items()}).decode()
    )


if __name__ == "__main__":
    main()
