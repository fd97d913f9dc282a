"""`make bench-matrix`: the whole matrix of parts, processes and sizes of an epoch, on two graphs. It takes hours.

    make bench-matrix
    make bench-matrix ARGS="--peers FOLDER --graph arxiv FOLDER/edges.parquet"
    make bench-matrix ARGS="--graph arxiv --processes 1 2 --epochs 1000 adaptive --rounds 1"

Every number of parts is combined with every number of processes, if there are parts enough; processes share layers and
parts by the defaults of `freshet run`; and for forecasts, with large epochs, the other ways to share. Graphs are
`arxiv`, of its shape, and files with the edges (src, dst) of real ones; without --graph, that and the friendships of
Deezer's users in Hungary, if deezer_hu/edges.parquet is in FRESHET_DATA or in shared/data beside the checkout
(docs/measured/parts.md says how to make it). All runs of a graph read the beginning of one stream: up to --events
events and --epochs-max epochs, so that runs with one event an epoch end.

With --peers the engine alone (the cores of one part in one thread, arrays in and nothing written) runs beside other
systems in each round, too: see scripts/bench/layers.py. Those need scipy and torch.

Runs alternate: a round runs everything once, and figures are medians of the rounds. They are kept in --results, so the
same command continues after a stop; `--rounds 0` prints the existing ones. scripts/bench/parts.py runs other mixtures,
and explains the figures and forecasts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.flink.pipeline import pipeline_of
from scripts.bench.arxiv_stream import ARXIV, graph_name
from scripts.bench.parts import ADAPTIVE, Mixture, finish, mixtures_of, options_for, runs_of
from scripts.bench.rounds import Figures, Measurement, MeasurementError, Results, medians, take_rounds
from scripts.bench.throughput import ROOT, machine

CONVS = 2  # of the model
SIZES = (1, 10, 100, 1000, 10_000)
FORECAST_EPOCHS = ("1000", ADAPTIVE)
ENGINE = {"engine": "sum"}
PEERS = {"RP": "RIPPLE++", "RC": "recompute"}
LAYERS = Path(__file__).with_name("layers.py")
BESIDE_CHECKOUT = ROOT.parent / "shared" / "data"


def default_shapes(parts: Sequence[int], processes: Sequence[int]) -> list[str]:
    """Each number of parts with each of processes, shared as by default, as far as every subtask gets a part."""
    shared = [(number, pipeline_of(number, None, CONVS, max(parts))) for number in processes]
    return [f"{p}:{n}:{k}" for n, k in shared for p in parts if n // k <= p]


def forecast_shapes(processes: Sequence[int]) -> list[str]:
    """Return the shapes that forecasts need: each pipeline with one, two and four subtasks and parts."""
    pipelines = sorted({pipeline_of(number, None, CONVS, number) for number in processes})
    return [f"{n}:{n * k}:{k}" for k in pipelines for n in (1, 2, 4) if n * k <= 2 * max(processes)]


def all_mixtures(graph: str, options: argparse.Namespace) -> list[Mixture]:
    """Return the mixtures to run on a graph."""
    shapes, limits = default_shapes(options.parts, options.processes), (options.events, options.epochs_max)
    large = [epoch for epoch in FORECAST_EPOCHS if epoch in options.epochs]
    more = mixtures_of(graph, forecast_shapes(options.processes), large, *limits)
    made = dict.fromkeys([*mixtures_of(graph, shapes, options.epochs, *limits), *more])
    return sorted(made, key=lambda mixture: options.epochs.index(mixture.epoch))


def engine(peers: Path) -> Figures:
    """The engine alone beside its peers: events a second of one thread's processor time, by system and epoch.

    Raises: MeasurementError when that fails, or the result is wrong.
    """
    sizes = map(str, reversed(SIZES))
    command = [sys.executable, str(LAYERS), "--peers", str(peers), "--layers", ENGINE["engine"], "--epochs", *sizes]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        msg = f"{' '.join(command)}\nexit {done.returncode}\n{done.stderr[-3000:]}"
        raise MeasurementError(msg)
    (found,) = orjson.loads(done.stdout.splitlines()[-1])["layers"]
    return {f"{system}_{size}": rate for system in ("freshet", *PEERS) for size, rate in found[system].items()}


def report_engine(results: Results) -> None:
    """The engine's table, if there are figures; a line of JSON."""
    rounds = results.of(ENGINE)
    if not rounds:
        return
    found = medians(rounds)
    print(orjson.dumps(ENGINE | {name: round(rate, 1) for name, rate in found.items()}).decode())
    table = Table(
        title=f"engine alone, events/s of one thread's processor time, medians of {len(rounds)} ({machine()})"
    )
    for name in ("epoch", "Freshet", *(name for peer in PEERS.values() for name in (peer, "of it"))):
        table.add_column(name, justify="right")
    for size in SIZES:
        own, *others = (found[f"{system}_{size}"] for system in ("freshet", *PEERS))
        cells = [cell for rate in others for cell in (f"{rate:,.0f}", f"{own / rate:.1f} x")]
        table.add_row(f"{size:,}", f"{own:,.0f}", *cells)
    Console(stderr=True, width=140).print(table)


def graphs_of(given: Sequence[str] | None) -> list[Path | None]:
    """The files of the graphs, None for the generated one; without any given, the generated one and Deezer's."""
    if given is None:
        real = Path(os.environ.get("FRESHET_DATA", BESIDE_CHECKOUT)) / "deezer_hu" / "edges.parquet"
        if not real.exists():
            print(f"no {real}: arxiv's shape alone (--graph arxiv FILE for others)", file=sys.stderr)
        given = [ARXIV, *([str(real)] if real.exists() else [])]
    missing = [name for name in given if name != ARXIV and not Path(name).is_file()]
    if missing:
        sys.exit(f"--graph: no file {missing[0]}; expected {ARXIV!r} or Parquet files with columns src and dst")
    return [None if name == ARXIV else Path(name) for name in given]


def main() -> int:
    """Run the missing mixtures and report all; JSON on stdout, a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options_for(parser)
    place = ROOT / "build" / "bench_matrix"
    parser.set_defaults(folder=place, results=place / "results.jsonl", plot=str(place / "matrix.png"))
    parser.set_defaults(epochs=[*map(str, SIZES), ADAPTIVE], events=1_000_000, epochs_max=3000)
    parser.add_argument("--parts", nargs="+", type=int, default=[1, 2, 4, 16])
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--graph", nargs="+", metavar="GRAPH", help=f"{ARXIV!r}, or Parquet files with edges")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="of graphs.py, recompute.py and ripple.py")
    options = parser.parse_args()
    results, mixtures, runs = Results(options.results), [], []
    for graph in graphs_of(options.graph):
        some = all_mixtures(graph_name(graph), options)
        mixtures += some
        runs += runs_of(some, graph, options)
    print(f"figures are kept in {options.results}", file=sys.stderr)
    alone = Measurement(ENGINE, "engine alone, beside its peers", partial(engine, options.peers))
    failed = take_rounds([alone, *runs] if options.peers else runs, options.rounds, results)
    finish(mixtures, runs, results, options)
    report_engine(results)
    return int(failed > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from here")
