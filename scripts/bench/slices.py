"""Two or more ways to do the same work, in alternating slices of one stream: for a machine that is busy with others.

    .venv/bin/python scripts/bench/slices.py --peers FOLDER gat gat+attr gat+attr:recompute
    .venv/bin/python scripts/bench/slices.py --peers FOLDER sum gat --before CHECKOUT

Each is a layer of scripts/bench/layers.py, or with `:recompute` its recomputation of the affected neighbourhood
(recomputed.py). With --before each layer also runs in the version of another checkout, with that one's .venv. Each has
a process of its own; these take turns, a slice of --events events of each in a round, and figures are processor time
(user and system) an event: medians of the rounds, and the median of each round's ratio to the first one.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
RECOMPUTE = ":recompute"
# `freshet` is that of the environment, and what measures it that of this checkout.
_START = (
    "import sys, freshet; sys.path.insert(0, sys.argv[1]); from scripts.bench.slices import work; work(*sys.argv[2:])"
)


class Contender:
    """A process that has one way to do the work, and does a slice of it when it is its turn."""

    def __init__(self, label: str, checkout: Path, name: str, peers: Path) -> None:
        self.label = label
        command = [str(checkout / ".venv" / "bin" / "python"), "-c", _START, str(ROOT), name, str(peers.absolute())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=checkout.parent
        )

    def slice(self, size: int, epochs: int) -> float:
        """Take `epochs` epochs of `size` events; the microseconds of processor time of an event."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{size} {epochs}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self.label} ended with {self._process.wait()}")
        return 1e6 * float(line) / (size * epochs)

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


def work(name: str, folder: str) -> None:
    """Do slices as stdin says, and write the seconds of each to stdout."""
    from freshet.kernels.blas import use_one_thread
    from scripts.bench.layers import Peers

    use_one_thread()
    peers = Peers(Path(folder))
    batch, at = batches(name, peers), 0
    for line in sys.stdin:
        size, epochs = map(int, line.split())
        gc.collect()
        begin = time.process_time()
        for _ in range(epochs):
            batch(at, at + size)
            at += size
        print(time.process_time() - begin, flush=True)


def batches(name: str, peers: Any) -> Callable[[int, int], None]:
    """Return what takes the events from one number to another as an epoch."""
    from scripts.bench.engine import Engine
    from scripts.bench.layers import LAYERS, OF_OWN, give_attributes, model_of
    from scripts.bench.recomputed import Recomputed

    layer = name.removesuffix(RECOMPUTE)
    workload = peers.graphs.Workload("arxiv", 240_000)
    give_attributes(workload, layer)
    model = model_of(LAYERS[layer], peers.graphs, workload.d)
    if layer == name:
        return Engine(workload, model).batch
    return Recomputed(workload, peers.adj.Adj, model, OF_OWN[layer]).batch


def measure(contenders: list[Contender], size: int, events: int, rounds: int) -> dict[str, list[float]]:
    """Return the figures of each round, after one that does not count."""
    found: dict[str, list[float]] = {one.label: [] for one in contenders}
    epochs = max(1, events // size)
    for number in range(rounds + 1):
        order = contenders if number % 2 else contenders[::-1]
        for one in order:
            figure = one.slice(size, epochs if number else max(1, epochs // 4))
            if number:
                found[one.label].append(figure)
    return found


def main() -> None:
    """Measure, print a table, and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="LAYER[:recompute]")
    parser.add_argument("--peers", type=Path, required=True, help="folder with graphs.py and recompute.py")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="checkout, with .venv, of another version")
    parser.add_argument("--epochs", nargs="+", type=int, default=[1000, 100, 1], metavar="EVENTS")
    parser.add_argument("--events", type=int, default=5000, help="of a slice; of epochs of one event a fifth")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    contenders = []
    for name in options.names:
        if options.before:
            contenders.append(Contender(f"{name} before", options.before.absolute(), name, options.peers))
        contenders.append(Contender(name, ROOT, name, options.peers))
    table = Table(title=f"us of processor time an event, medians of {options.rounds} slices")
    columns = ("epoch", *(text for one in contenders for text in (one.label, "of the first")))
    for column in columns:
        table.add_column(column, justify="right")
    results: dict[int, dict[str, list[float]]] = {}
    for size in options.epochs:
        results[size] = found = measure(contenders, size, options.events // (5 if size == 1 else 1), options.rounds)
        first = found[contenders[0].label]
        cells = [f"{size:,}"]
        for one in contenders:
            ratios = [a / b for a, b in zip(found[one.label], first, strict=True)]
            cells += [f"{statistics.median(found[one.label]):.2f}", f"{statistics.median(ratios):.3f}"]
        table.add_row(*cells)
    for one in contenders:
        one.end()
    Console(stderr=True, width=200).print(table)
    told = {size: {name: [round(one, 3) for one in some] for name, some in of.items()} for size, of in results.items()}
    print(orjson.dumps(told, option=orjson.OPT_NON_STR_KEYS).decode())


if __name__ == "__main__":
    main()
