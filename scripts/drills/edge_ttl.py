"""Edges that expire, through kills and wrong clocks: `scripts/drills/edge_ttl.py --events 1000000 --kills 6`.

A stream of edges with `ts`: some are added again, some deleted, some have no `ts`; some clocks are late by up to twice
the time that an edge lives, and one in a thousand is a year ahead. The job is killed (SIGKILL) and goes on, and
`freshet check` holds it against the oracle after every tenth epoch. The same stream then runs without a kill, in turn
with that TTL and with one that is longer than the stream, which gives the cost.

The last line is JSON; exit 1 when something is wrong, or expiry costs more than `--cost-max`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.gnn.model import save_model
from tests.support.graphs.models import conv, make_model
from tests.support.runs.jobs import Input, Job

STEP_MS = 1000  # between two events, on the right clock
YEAR_MS = 365 * 86_400_000
LONG = "100000d"
WIDTH = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--every", type=int, default=10, help="epochs between comparisons with the oracle")
    parser.add_argument("--runtime", choices=("local", "flink"), default="local")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind that the cost is measured by")
    parser.add_argument("--cost-max", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="freshet-ttl-") as folder:
        line = drill(Path(folder), options)
    print(orjson.dumps(line).decode())
    return 0 if line["is_good"] else 1


def drill(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run all parts; the closing line."""
    ttl = f"{options.events * STEP_MS // 4}ms"
    given = make_stream(folder, options.events, int(ttl[:-2]), options.seed)
    common = ("--runtime", options.runtime, "--parts", 2, "--epoch-events", 1000, "--epoch-ms", 0)
    say(f"{options.events:,} events over {options.events * STEP_MS / 86_400_000:.1f} days, --edge-ttl {ttl}")
    killed = Job(given, folder / "killed")
    try:
        kills, result = run_with_kills(killed, options, *common, "--edge-ttl", ttl)
    finally:
        killed.end()
    say(f"killed {kills} times: {result}")
    began = time.perf_counter()
    checked = killed.checked("--every", options.every, timeout_s=None)
    say(f"checked in {time.perf_counter() - began:.0f} s: {checked.result}")
    if checked.code:
        say(checked.errors)
    seconds: dict[str, list[float]] = {ttl: [], LONG: []}
    for number in range(options.rounds):
        for lives in seconds if number % 2 else reversed(seconds):
            job = Job(given, folder / f"{lives}-{number}")
            ended = job.done(*common, "--edge-ttl", lives)
            seconds[lives].append(ended["seconds"])
            say(f"--edge-ttl {lives}: {ended['seconds']:.1f} s, {ended['events_per_s']:,.0f} events/s")
    cost = min(seconds[ttl]) / min(seconds[LONG]) - 1
    return {
        "events": options.events,
        "kills": kills,
        "epochs_checked": options.events // 1000 // options.every,
        "rejected": result["rejected"],
        "max_rel_error": checked.result.get("max_rel_error"),
        "missing": checked.result.get("missing"),
        "extra": checked.result.get("extra"),
        "faults": checked.result.get("faults"),
        "seconds": {"expiring": min(seconds[ttl]), "not": min(seconds[LONG])},
        "cost": round(cost, 4),
        "is_good": checked.code == 0 and kills == options.kills and cost <= options.cost_max,
    }


def make_stream(folder: Path, n: int, ttl_ms: int, seed: int) -> Input:
    """A small model, and a Parquet file of events."""
    rng = np.random.default_rng(seed)
    vertices = max(50, n // 20)
    src, dst = rng.integers(0, vertices, (2, n))
    again = np.flatnonzero(rng.random(n) < 0.2)
    again = again[again > 0]
    former = (again * rng.random(len(again))).astype(np.int64)
    src[again], dst[again] = src[former], dst[former]
    op = np.where(rng.random(n) < 0.1, "del_edge", "add_edge").astype(object)
    ts = np.arange(n, dtype=np.int64) * STEP_MS + rng.integers(-5000, 5000, n)
    late = rng.random(n) < 0.03
    ts[late] -= (rng.random(int(late.sum())) * 2 * ttl_ms).astype(np.int64)
    ts[rng.random(n) < 0.001] += YEAR_MS
    columns = {
        "op": pa.array(op, pa.string()),
        "src": src,
        "dst": dst,
        "weight": rng.integers(1, 4, n).astype(np.float32),
        "ts": pa.array(ts, mask=rng.random(n) < 0.02),
    }
    features = np.arange(vertices)
    x = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=vertices * WIDTH).astype(np.float32)), WIDTH)
    births = pa.table({"op": pa.array(["add_vertex"] * vertices), "id": features, "x": x})
    table = pa.concat_tables([births, pa.table(columns)], promote_options="default")
    pq.write_table(table, folder / "events.parquet", row_group_size=1 << 16)
    model = make_model(seed, [conv("sage_conv", WIDTH, 16), {"type": "relu"}, conv("gcn_conv", 16, 8)])
    save_model(model, folder / "model")
    return Input(folder / "model", folder / "events.parquet", len(table))


def run_with_kills(job: Job, options: argparse.Namespace, *given: object) -> tuple[int, dict[str, Any]]:
    """Run to the end, killed at epochs drawn from the seed; how often, and the closing line."""
    draw, kills = random.Random(options.seed), 0
    last = options.events // 1000
    more: tuple[object, ...] = ()
    for epoch in sorted(draw.sample(range(last // 20, last * 9 // 10), options.kills)):
        job.start(*given, *more)
        job.until_epoch(epoch)
        job.kill()
        kills += 1
        more = "--resume", "latest"
    job.start(*given, *more)
    ended = job.wait(timeout_s=3600)
    assert ended.code == 0, ended.errors
    return kills, ended.result


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
