"""Freshet beside what one would run in its place, on one stream: speed, processor time, staleness and error.

    .venv/bin/python scripts/bench/peers.py [--rate 1000] [--plot docs/measured/peers.png]
    PYTHONPATH=SITE .venv/bin/python scripts/bench/peers.py     # with DGL, of `pip install --target SITE dgl`

Every system has the same graph (arxiv's shape by default), the same two SAGE layers with a mean, 128-128-40, and the
same events: 60% new edges, 20% deleted ones, 20% new features. Each has rows for all vertices after every epoch. Two
ways recompute: all rows, or those that the epoch may reach. A third samples 10 in-neighbours for these, as GraphSAGE
does at inference. RIPPLE++ sends differences of rows along edges. Freshet's are the operators of one part in one
thread, without Flink, files and topics.

Staleness: events come at --rate a second, and a system takes all that wait as its next epoch. It is how long an event
waits for rows that have it, on a clock that each epoch moves by the time it took. Error: the largest difference from
PyTorch Geometric in float64 at the end, as a share of the largest value, and the mean over the rows that were made
again, each by its own length.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("DGLBACKEND", "pytorch")

import numpy as np
import orjson
import torch
from rich.console import Console
from rich.table import Table

from freshet.gnn.model import Model
from freshet.gnn.pyg.export import export_model
from freshet.job.local.malloc import keep_freed_memory
from scripts.bench.arxiv_stream import EDGES, VERTICES, WIDTH
from scripts.bench.peer_graph import Graph, Workload
from scripts.bench.peer_systems import (
    FANOUT,
    Affected,
    Everything,
    Net,
    OfDgl,
    OfFreshet,
    Ripple,
    Sampled,
    System,
    sage_net,
)
from scripts.bench.throughput import machine
from scripts.bench.took import tell_what_it_took
from scripts.plots.picture import picture, pyplot

TOLERANCE = 1e-4
EVENTS = 400_000


class Entry(NamedTuple):
    """A system, and whether its rows have to be those of a full pass."""

    name: str
    make: Callable[[Workload, Net, Model], System]
    is_exact: bool = True


ENTRIES = (
    Entry("PyG, everything", lambda workload, net, _: Everything(workload, net)),
    Entry("DGL, everything", lambda workload, net, _: OfDgl(workload, net)),
    Entry("PyG, what is affected", lambda workload, net, _: Affected(workload, net)),
    Entry(f"PyG, {FANOUT} sampled", lambda workload, net, _: Sampled(workload, net), is_exact=False),
    Entry("RIPPLE++ in NumPy", lambda workload, net, _: Ripple(workload, net)),
    Entry("Freshet", lambda workload, _, model: OfFreshet(workload, model)),
)


class Stream:
    """Takes epochs of a workload one after the other, and times them."""

    def __init__(self, system: System, events: int) -> None:
        self.system, self.events, self.at = system, events, 0

    def epoch(self, size: int) -> tuple[float, float]:
        """Take `size` events; return seconds on the wall and of the processor.

        Raises: EOFError at the end of the stream.
        """
        if self.at + size > self.events:
            raise EOFError
        began, cpu = time.perf_counter(), time.process_time()
        self.system.batch(self.at, self.at + size)
        self.at += size
        return time.perf_counter() - began, time.process_time() - cpu

    def rates(self, size: int, budget_s: float, most: int = EVENTS) -> dict[str, float]:
        """Return events a second, microseconds of the processor an event, and an epoch's median time, of one size.

        most: events that it takes. Raises: EOFError if the stream has none left.
        """
        spent = list[tuple[float, float]]()
        while len(spent) < 2 or (len(spent) * size < most and sum(wall for wall, _ in spent) < budget_s):
            try:
                spent.append(self.epoch(size))
            except EOFError:
                if not spent:
                    raise
                break
        wall, cpu = np.sum(spent, axis=0)
        events, p50 = len(spent) * size, float(np.median([one for one, _ in spent]))
        return {"events_per_s": events / wall, "cpu_us": 1e6 * cpu / events, "p50_ms": 1e3 * p50}

    def staleness(self, rate: float, budget_s: float) -> dict[str, float]:
        """Return how long events wait for rows that have them, in milliseconds."""
        now = done = 0.0
        waits, began = list[np.ndarray](), self.at
        while now < budget_s or len(waits) < 3:
            now = max(now, (self.at - began + 1) / rate)  # the next event is there
            size = int(now * rate) - (self.at - began)
            come = (np.arange(self.at - began, self.at - began + max(size, 1)) + 1) / rate
            try:
                done = now + self.epoch(come.size)[0]
            except EOFError:
                break
            waits.append(done - come)
            now = done
        p50, p99 = np.percentile(np.concatenate(waits), [50, 99])
        return {"p50_ms": 1e3 * p50, "p99_ms": 1e3 * p99}


def errors(system: System, workload: Workload, net: Net, end: int) -> dict[str, float]:
    """Return how far rows are from those of a full pass in float64 behind the first `end` events."""
    graph = Graph(workload)
    graph.apply(0, end)
    mask, x = graph.present, graph.x
    edge_index = torch.from_numpy(np.stack([workload.src[mask], workload.dst[mask]]))
    exact = sage_net().double()
    exact.load_state_dict(net.state_dict())
    want = exact(torch.from_numpy(x).double(), edge_index).numpy()
    off = system.rows() - want
    lengths = np.linalg.norm(off, axis=1) / np.maximum(np.linalg.norm(want, axis=1), 1e-12)
    again = system.again if isinstance(system, Affected) else slice(None)
    largest = float(np.abs(off).max() / np.abs(want).max())
    return {"max_error": largest, "mean_error": float(np.mean(lengths[again]))}


def measure(entry: Entry, asked: argparse.Namespace, workload: Workload, net: Net, model: Model) -> dict[str, Any]:
    """Return the figures of a system; only its name and the reason where it is not there."""
    try:
        stream = Stream(entry.make(workload, net, model), asked.events)
    except ImportError as error:
        return {"system": entry.name, "absent": str(error)}
    stream.epoch(max(asked.epochs))  # compiles and warms up
    found: dict[str, Any] = {"system": entry.name, "exact": entry.is_exact}
    most = asked.events // (len(asked.epochs) + 2)  # for the staleness, too
    found["epochs"] = {size: stream.rates(size, asked.seconds, most) for size in asked.epochs}
    found |= stream.staleness(asked.rate, asked.seconds) | errors(stream.system, workload, net, stream.at)
    return found | {"events": stream.at}


def table_of(results: list[dict[str, Any]], asked: argparse.Namespace) -> Table:
    """Return the results for people."""
    table = Table(title=f"{asked.vertices:,} vertices, {asked.edges:,} edges ({machine()})")
    table.add_column("system")
    names = [f"events/s, {size:,} an epoch" for size in asked.epochs]
    more = [f"staleness at {asked.rate:,}/s, p50", "p99", "error, most", "mean"]
    for name in [*names, f"processor us an event, {max(asked.epochs):,}", *more]:
        table.add_column(name, justify="right")
    for one in results:
        if "absent" in one:
            table.add_row(one["system"], f"not here: {one['absent']}")
            continue
        rates = [f"{one['epochs'][size]['events_per_s']:,.0f}" for size in asked.epochs]
        waits = [f"{one[name]:,.1f} ms" for name in ("p50_ms", "p99_ms")]
        cpu = f"{one['epochs'][max(asked.epochs)]['cpu_us']:,.0f}"
        table.add_row(one["system"], *rates, cpu, *waits, f"{one['max_error']:.1e}", f"{one['mean_error']:.1e}")
    return table


def draw(results: list[dict[str, Any]], asked: argparse.Namespace) -> None:
    """Draw events a second and staleness, each on a logarithmic axis."""
    there = [one for one in results if "absent" not in one][::-1]
    figure, axes = pyplot().subplots(1, 2, figsize=(10, 0.5 + 0.45 * len(there)), sharey=True, layout="constrained")
    names = [one["system"] + ("" if one["exact"] else " (not exact)") for one in there]
    colours = ["#1f77b4" if one["system"] == "Freshet" else "#b0b0b0" for one in there]
    size = max(asked.epochs)
    columns = (
        ([one["epochs"][size]["events_per_s"] for one in there], f"events/s, {size:,} an epoch"),
        ([one["p99_ms"] for one in there], f"staleness in ms, p99, at {asked.rate:,} events/s"),
    )
    for axis, (values, title) in zip(axes, columns, strict=True):
        bars = axis.barh(names, values, color=colours)
        axis.bar_label(bars, [f"{value:,.0f}" if value >= 10 else f"{value:.1f}" for value in values], padding=3)
        axis.set(xscale="log", title=title, xlim=(min(values) / 3, max(values) * 6))
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(asked.plot, dpi=130)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vertices", type=int, default=VERTICES)
    parser.add_argument("--edges", type=int, default=EDGES)
    parser.add_argument("--events", type=int, default=EVENTS, help="of the stream, which all systems begin")
    parser.add_argument("--epochs", nargs="+", type=int, default=[1000, 100], metavar="EVENTS")
    parser.add_argument("--rate", type=int, default=1000, help="events a second, for the staleness")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--plot", type=picture, help="draw a picture")
    asked = parser.parse_args()
    tell_what_it_took()
    keep_freed_memory()
    torch.manual_seed(3)
    torch.set_grad_enabled(False)
    workload, net = Workload(asked.vertices, asked.edges, asked.events), sage_net().eval()
    with tempfile.TemporaryDirectory() as folder:
        model = export_model(net, folder, features=WIDTH)
    assert isinstance(model, Model)  # it has no kinds
    results = []
    for entry in ENTRIES:
        results.append(measure(entry, asked, workload, net, model))
        print(entry.name, file=sys.stderr, flush=True)
    Console(width=190).print(table_of(results, asked))
    if asked.plot:
        draw(results, asked)
    option = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    print(orjson.dumps({"machine": machine(), "systems": results}, option=option).decode())
    wrong = [one["system"] for one in results if one.get("exact") and one["max_error"] > TOLERANCE]
    sys.exit(f"off by more than {TOLERANCE:g}: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
