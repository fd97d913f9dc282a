"""Compares `client.what_if` with the job after the same events, times it beside lookups, and scores payments by it.

Equality: for each model a job takes random events, one an epoch. Before each the graph of the epoch before is asked
what the rows of the event's vertices would be; the job's own rows of the next epoch judge that, by the largest
difference relative to the row.

Time: the stream of `make bench` comes from a Kafka broker at `--rate`. One client asks a server in turn for a row, for
a row as it is (`what_if` of a vertex alone), for a new vertex with three edges from others, and for a new edge between
two vertices. Memory is what the server has beside one without `--what-if`.

Payments (`--payments FOLDER`, made by scripts/payments/stream.py and train.py): each payment of the stream's last part
is scored by both of its accounts: before it is made, without and with `what_if`, and after it. Average precision says
how well the larger score finds payments with an account that launders.

The last line is JSON; exit 1 where rows differ.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.any_plan import names_of_returned
from freshet.gnn.model import save_model
from freshet.job.dev.script import unwind_at_signals
from freshet.job.options.config_file import load_run_config
from freshet.job.run import runner
from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.training.judge import average_precision
from freshet.job.what_if.engine import WhatIfEngine
from freshet.job.what_if.followed_graph import FollowedGraph
from freshet.kinds import NO_MIRROR
from freshet.operators.factory import load_plan
from scripts.bench.arxiv_stream import generate_once
from scripts.bench.serving.beside_a_job import VERTICES, has_come_to, offered, until
from scripts.bench.throughput import ROOT, machine
from tests.support.graphs.attributed import EDGE_WIDTH, gine
from tests.support.graphs.kinds import KINDS, kinds_model, sage_everywhere
from tests.support.graphs.live_truth import Bond, Truth, as_event, records_of
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.serving.server import Server
from tests.support.serving.tried import Event, Rows, item_of

MOST, TOLERANCE = 10**6, 2e-6
EQUAL = 1e-4  # of a score, a difference of terms that may be much larger
Figures = dict[str, Any]


def models() -> dict[str, tuple[Any, Truth]]:
    """The models, each with the graph that its events make."""
    plain = Truth({"": IN_WIDTH}, [Bond("", None, "")])
    attributed = Truth({"": IN_WIDTH}, [Bond("", None, "", EDGE_WIDTH)])

    def two(name: str, **options: Any) -> Any:
        return make_model(1, [conv(name, IN_WIDTH, 16, **options), conv(name, 16, 8, **options)])

    return {
        "sum": (two("graph_conv", aggr="sum"), plain),
        "mean": (two("sage_conv", aggr="mean"), plain),
        "max": (two("sage_conv", aggr="max"), plain),
        "GCN": (two("gcn_conv"), plain),
        "GAT": (two("gat_conv"), plain),
        "GINE": (make_model(1, [gine(IN_WIDTH, 16), gine(16, 8)]), attributed),
        f"{len(KINDS)} kinds": of_kinds(),
    }


def of_kinds() -> tuple[Any, Truth]:
    """A model of kinds, some of whose relations follow others."""
    model = kinds_model((sage_everywhere(KINDS, 16), sage_everywhere(dict.fromkeys(KINDS, 16), 8)), ["user"])
    kinds = model.features.kinds
    assert kinds is not None
    mirrors = {one.mirrors: number for number, one in enumerate(kinds.relations)}
    bonds = [
        Bond(*kinds.triple(one), one.edge_width, mirrors.get(number), one.mirrors == NO_MIRROR)
        for number, one in enumerate(kinds.relations)
    ]
    return model, Truth(dict(zip(kinds.names, kinds.widths, strict=True)), bonds)


def equality(name: str, model: Any, truth: Truth, hypotheses: int) -> Figures:
    """Ask before each event, and compare with the job's rows after it."""
    with tempfile.TemporaryDirectory(prefix="freshet-what-if-") as work:
        folder = Path(work)
        save_model(model, folder / "model")
        records = records_of(random.Random(name), truth, 2 * hypotheses, range(400))
        events = [as_event(truth, one) for one in records]
        (folder / "events.jsonl").write_bytes(b"\n".join(map(orjson.dumps, events)))
        given = {"model": folder / "model", "events": [str(folder / "events.jsonl")], "out": folder / "O"}
        runner.run(load_run_config(given | {"runtime": "local", "epoch_ms": 0, "epoch_events": 1}))
        (kind,) = names_of_returned(load_plan(str(folder / "model"))) or ("",)
        newest = [0]
        engine = WhatIfEngine(FollowedGraph(folder / "O", None), lambda: newest[0])
        found = _compared(engine, newest, events, Rows(folder / "O", list(range(400))), kind, hypotheses)
        engine.close()
    print(f"{name}: {found}", file=sys.stderr, flush=True)
    return {"model": name, **found}


def _compared(
    engine: WhatIfEngine, newest: list[int], events: list[Event], rows: Rows, kind: str, hypotheses: int
) -> Figures:
    asked = compared = same = 0
    worst, taken = 0.0, list[float]()
    for epoch, event in enumerate(events):
        if asked == hypotheses:
            break
        if (item := item_of(event, kind)) is None:
            continue
        newest[0] = epoch
        began = time.perf_counter()
        found = engine.tried([item], kind, 0, 10.0, MOST)
        taken.append(time.perf_counter() - began)
        asked += 1
        for one, row in zip(found.ids, found.rows, strict=True):
            wanted = rows.at(one, epoch + 1)
            if wanted is None:  # a deletion brings no vertex to life
                continue
            made = np.array(wanted, np.float32)
            alike = np.array_equal(row, made, equal_nan=True)
            apart = 0.0 if alike else float(np.abs(row - made).max() / max(np.abs(made).max(), 1e-30))
            worst, same, compared = max(worst, apart if np.isfinite(apart) else np.inf), same + alike, compared + 1
    return {
        "hypotheses": asked, "rows": compared, "bit_equal": same, "max_difference": worst,
        "ms_p50": round(1e3 * float(np.median(taken)), 2), "is_good": worst <= TOLERANCE,
    }  # fmt: skip


def rss(server: Server) -> int:
    """The memory of a server's process that is no shared memory, in bytes."""
    assert server.process is not None
    info = psutil.Process(server.process.pid).memory_info()
    return int(info.rss - info.shared)


@contextmanager
def serving(out: Path, *options: str) -> Iterator[tuple[Server, EmbeddingClient]]:
    """A server of a job that runs, once it has the newest epochs."""
    server = Server(out)
    (out.parent / "serve.log").unlink(missing_ok=True)
    try:
        told = server.start(*options)
        client = EmbeddingClient(told["flight"], timeout=300.0)
        until(lambda: has_come_to(client, out), "the newest epochs")
        yield server, client
        client.close()
    finally:
        server.end()


def times(folder: Path, options: Namespace) -> Figures:
    """Time requests beside a job that is offered events at a rate."""
    rng = np.random.default_rng(7)
    given = Namespace(runtime="flink", parts=1, epoch_events=1000, options=["--epoch-ms", "20"])
    with offered(folder, options.rate, given) as job:
        with serving(job.out) as (server, client):
            client.get([1])
            alone = rss(server)
        with serving(job.out, "--what-if", "base") as (server, client):
            began = time.monotonic()
            client.what_if(1)
            ready_s = time.monotonic() - began
            until(lambda: "all rows are there" in server.log(), "all rows")
            beside = rss(server)
            asks: dict[str, Callable[[], Any]] = {
                "lookup": lambda: client.get([int(rng.integers(VERTICES))]),
                "as it is": lambda: client.what_if(int(rng.integers(VERTICES))),
                "a new vertex with 3 edges": lambda: client.what_if(
                    x=rng.normal(size=128), in_edges=[[int(one)] for one in rng.integers(0, VERTICES, 3)]
                ),
                "a new edge": lambda: client.what_if(
                    int(rng.integers(VERTICES)), in_edges=[[int(rng.integers(VERTICES))]]
                ),
            }
            taken: dict[str, list[float]] = {name: [] for name in asks}
            epochs = {client.epoch()}
            deadline = time.monotonic() + options.seconds
            while time.monotonic() < deadline:
                for name, ask in asks.items():
                    since = time.perf_counter()
                    ask()
                    taken[name].append(1e3 * (time.perf_counter() - since))
                epochs.add(client.epoch())
    shown = {
        name: {"asked": len(each), **{f"ms_p{p}": round(float(np.percentile(each, p)), 2) for p in (50, 99)}}
        for name, each in taken.items()
    }
    more = {"offered_per_s": options.rate, "ready_s": round(ready_s, 1), "epochs": len(epochs)}
    return {**more, "server_mb": round(alone / 1e6), "server_with_what_if_mb": round(beside / 1e6), "requests": shown}


def payments(folder: Path, model: str, count: int) -> Figures:
    """Score payments before they are made, and after."""
    import pyarrow.parquet as pq

    launders = pq.read_table(folder / "truth.parquet")["launders_from"].to_numpy() >= 0
    events = [orjson.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines()]
    edges = [k for k, one in enumerate(events) if one["op"] == "add_edge"]
    chosen = edges[-2 * count :: 2]  # a payment is two edges
    with tempfile.TemporaryDirectory(prefix="freshet-what-if-") as work:
        path, out = Path(work) / "events.jsonl", Path(work) / "O"
        path.write_bytes(b"\n".join(map(orjson.dumps, events)))
        given = {"model": folder / model, "snapshot": folder / "snapshot", "events": [str(path)], "out": out}
        runner.run(load_run_config(given | {"runtime": "local", "epoch_ms": 0, "epoch_events": 1}))
        ends = sorted({events[k][end] for k in chosen for end in ("src", "dst")})
        rows, newest = Rows(out, ends), [0]
        engine = WhatIfEngine(FollowedGraph(out, None), lambda: newest[0])
        scores: dict[str, list[float]] = {"without it": [], "what if": [], "after it": []}
        labels, worst = list[bool](), 0.0
        for k in chosen:
            both = events[k : k + 2]
            if any(one["op"] != "add_edge" for one in both):
                continue
            src, dst = both[0]["src"], both[0]["dst"]
            newest[0] = k
            items = [
                {name: [_edge(one, "src" if name == "in_edges" else "dst")] for name, one in _ways(both, src)}
                | {"id": src, "also": [dst]}
            ]
            tried = engine.tried(items, "", 0, 60.0, MOST)
            after = [rows.at(one, k + 2) for one in (src, dst)]
            made = np.array(after)[:, 0]
            worst = max(worst, float((np.abs(tried.rows[:, 0] - made) / np.maximum(np.abs(made), 1.0)).max()))
            before = [row[0] for one in (src, dst) if (row := rows.at(one, k)) is not None]
            scores["without it"].append(max(before, default=-1e9))
            scores["what if"].append(float(tried.rows[:, 0].max()))
            scores["after it"].append(max(row[0] for row in after))
            labels.append(bool(launders[src] or launders[dst]))
        engine.close()
    precision = {
        name: round(average_precision(np.array(each), np.array(labels, np.int64)), 4) for name, each in scores.items()
    }
    found = {"model": model, "payments": len(labels), "launder": sum(labels), "max_difference": worst}
    return found | {"average_precision": precision, "is_good": worst <= EQUAL}


def _ways(both: list[Event], vertex: Any) -> Iterator[tuple[str, Event]]:
    for one in both:
        yield ("out_edges" if one["src"] == vertex else "in_edges"), one


def _edge(event: Event, end: str) -> Event:
    return {"id": event[end]} | {name: event[name] for name in ("weight", "type", "attr", "key") if name in event}


def report(found: Figures) -> None:
    """Print tables for people, on stderr."""
    console = Console(stderr=True)
    table = Table("model", "hypotheses", "rows", "bit-equal", "largest difference", "ms, median")
    for one in found["equality"]:
        names = ("model", "hypotheses", "rows", "bit_equal", "max_difference", "ms_p50")
        table.add_row(*(f"{one[name]:.1e}" if name == "max_difference" else str(one[name]) for name in names))
    console.print(table)
    if "times" in found:
        table = Table("request", "asked", "ms p50", "ms p99")
        for name, one in found["times"]["requests"].items():
            table.add_row(name, *map(str, one.values()))
        console.print(table)


def main() -> int:
    """Compare, time, score; a line of JSON at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hypotheses", type=int, default=1500, help="of each model")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench-what-if", help="inputs and outputs")
    parser.add_argument("--events", type=int, default=400_000, help="length of the stream")
    parser.add_argument("--rate", type=int, default=1000, help="events a second; 0: no times")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long requests are timed")
    parser.add_argument("--payments", type=Path, help="folder of scripts/payments")
    parser.add_argument("--count", type=int, default=3000, help="payments that are scored")
    options = parser.parse_args()
    found: Figures = {"machine": machine(), "load": round(os.getloadavg()[0], 1)}
    found["equality"] = [equality(name, *one, options.hypotheses) for name, one in models().items()]
    if options.rate:
        found["times"] = times(generate_once(options.folder, options.events), options)
    if options.payments:
        found["payments"] = [payments(options.payments, name, options.count) for name in ("gine", "gat")]
    report(found)
    print(orjson.dumps(found).decode())
    return 0 if all(one["is_good"] for one in [*found["equality"], *found.get("payments", [])]) else 1


if __name__ == "__main__":
    unwind_at_signals()
    sys.exit(main())
